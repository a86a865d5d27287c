//! A server under fire: a process that runs sandboxes in a loop while parts of it are killed.
//!
//! The process writes a line for each run that succeeded, and ends when its standard input ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::Chance;

const PATIENCE: Duration = Duration::from_secs(90);
/// Two of them may have begun before.
const RUNS_UNTIL_SERVING: usize = 3;

/// The process.
#[derive(Debug)]
pub struct UnderFire {
    child: Child,
    stdin: Option<ChildStdin>,
    runs: mpsc::Receiver<()>,
}

impl UnderFire {
    /// Starts this executable in a role, and waits until it serves.
    pub fn start(arguments: &[&str]) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(own)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let (stdin, out) = (child.stdin.take(), child.stdout.take().ok_or("no output")?);
        let (told, runs) = mpsc::sync_channel(1 << 16);
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).for_each(|_| {
                told.try_send(()).ok();
            });
        });
        let server = Self { child, stdin, runs };
        server.serves()?;
        Ok(server)
    }

    /// Waits for a run that began after this call.
    pub fn serves(&self) -> Result<(), String> {
        while self.runs.try_recv().is_ok() {}
        for _ in 0..RUNS_UNTIL_SERVING {
            self.runs.recv_timeout(PATIENCE).map_err(|_| "no run succeeds any more".to_owned())?;
        }
        Ok(())
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The name of the directory below `folder` whose lock the server holds.
    pub fn locked_in(&self, folder: &Path) -> Result<String, String> {
        let open =
            std::fs::read_dir(format!("/proc/{}/fd", self.pid())).map_err(|error| error.to_string())?;
        let mut open = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let lock = open.find(|path| path.starts_with(folder) && path.ends_with("lock"));
        let name = lock.as_deref().and_then(Path::parent).and_then(Path::file_name);
        Ok(name.ok_or("the server holds no lock")?.to_string_lossy().into_owned())
    }

    /// Kills it as by `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Lets it end, and waits for that.
    pub fn end(&mut self) -> Result<ExitStatus, String> {
        self.stdin = None;
        self.child.wait().map_err(|error| error.to_string())
    }
}

impl Drop for UnderFire {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Becomes true when standard input ends. For the process itself.
pub fn until_input_ends() -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    std::thread::spawn(move || {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        over.store(true, Ordering::Relaxed);
    });
    is_over
}

/// Says that a run succeeded. For the process itself.
pub fn tell_run() {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ran").and_then(|()| out.flush()).ok();
}

/// The processes of this machine whose file of that name in `/proc/PID` meets a condition.
pub fn processes_with(file: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    let read = |pid: &i32| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    numbers.filter(|pid| is_wanted(&String::from_utf8_lossy(&read(pid)))).collect()
}

/// Kills one of them, if there is one.
pub fn kill_one(pids: &[i32], chance: &mut Chance) {
    if pids.is_empty() {
        return;
    }
    if let Some(pid) = rustix::process::Pid::from_raw(pids[chance.below(pids.len())]) {
        // It may have ended meanwhile.
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
    }
}
