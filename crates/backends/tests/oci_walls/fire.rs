//! SIGKILL of the server, of the runtime's commands and of processes inside, at moments that a seed chooses.
//!
//! A second process serves: it builds sandboxes, runs a command in each, and destroys them. A build may fail while its
//! parts are killed; a later one must not. What a killed server leaves is removed by the next one.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use backends::native::NativeBackend;
use backends::oci::{OciBackend, OciRuntime};
use harness::Chance;
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};
use sandbox::SandboxSpec;

use crate::killed::until_gone;
use crate::place::{Place, backend, executor, inhabited};

const ROLE: &str = "server-under-fire";
const SEED: u64 = 22;
const KILLS: usize = 10;
/// With PALISADE_LONG.
const KILLS_LONG: usize = 150;
/// Longer than it takes to build a sandbox and to destroy it.
const MOMENT_MS: usize = 500;
const PATIENCE: Duration = Duration::from_secs(90);

/// Builds and destroys, two at a time, until standard input ends. Each line is a run that succeeded.
pub(crate) fn take_role(native: &NativeBackend) -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let (folder, name) = (PathBuf::from(arguments.next()?), arguments.next()?);
    let runtime = OciRuntime::ALL.into_iter().find(|runtime| runtime.name() == name)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    std::thread::spawn(move || {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        over.store(true, Ordering::Relaxed);
    });
    executor().block_on(async {
        let wall = backend(native, &folder, runtime, None);
        tokio::join!(serve(&wall, &is_over), serve(&wall, &is_over));
    });
    Some(ExitCode::SUCCESS)
}

async fn serve(wall: &OciBackend, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        // What becomes of it while its parts are killed is not the question.
        let Ok((mut sandbox, mut shell)) = inhabited(wall, &SandboxSpec::default()).await else { continue };
        let answer = shell.run("echo ran").await;
        sandbox.destroy().await.ok();
        if answer.is_ok_and(|answer| answer == "ran\n") {
            let mut out = std::io::stdout().lock();
            writeln!(out, "ran").and_then(|()| out.flush()).ok();
        }
    }
}

/// A process in that role.
struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    runs: mpsc::Receiver<()>,
    group: String,
}

impl Server {
    fn start(folder: &Path, runtime: OciRuntime) -> Result<Self, Failed> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ROLE, &folder.to_string_lossy(), runtime.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, out) = (child.stdin.take(), child.stdout.take().ok_or("no output")?);
        let (told, runs) = mpsc::sync_channel(1 << 16);
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).for_each(|_| {
                told.try_send(()).ok();
            });
        });
        let mut server = Self { child, stdin, runs, group: String::new() };
        server.serves()?;
        server.group = server.locked_in(folder)?;
        Ok(server)
    }

    /// The name of the directory whose lock the server holds, and of its control groups.
    fn locked_in(&self, folder: &Path) -> Result<String, Failed> {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.flatten();
        let mut open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let lock = open.find(|path| path.starts_with(folder) && path.ends_with("lock"));
        let group = lock.as_deref().and_then(Path::parent).and_then(Path::file_name);
        Ok(group.ok_or("the server holds no lock")?.to_string_lossy().into_owned())
    }

    /// Waits for a run that began after this call.
    fn serves(&self) -> Result<(), Failed> {
        while self.runs.try_recv().is_ok() {}
        for _ in 0..3 {
            self.runs.recv_timeout(PATIENCE).map_err(|_| "no run succeeds any more")?;
        }
        Ok(())
    }

    /// Kills a party; a moment without it is none.
    fn lose(&mut self, victim: Victim, chance: &mut Chance) -> Result<(), Failed> {
        match victim {
            Victim::Server => {
                self.child.kill()?;
                self.child.wait()?;
            }
            Victim::Runtime => kill_one(&self.commands(), chance),
            Victim::Member => kill_one(&self.inside(), chance),
        }
        Ok(())
    }

    /// Its children that are, or become, the runtime. The spawner is its child, too, and stays.
    fn commands(&self) -> Vec<i32> {
        let own = self.child.id().to_string();
        let is_command = |pid: &i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)).unwrap_or("");
            parent == own && line.contains("--root")
        };
        processes().into_iter().filter(is_command).collect()
    }

    fn inside(&self) -> Vec<i32> {
        let beneath = format!("{}/s", self.group);
        let is_inside = |pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(&beneath))
        };
        processes().into_iter().filter(is_inside).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[derive(Debug, Clone, Copy)]
enum Victim {
    Server,
    Runtime,
    Member,
}

fn processes() -> Vec<i32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
}

fn kill_one(pids: &[i32], chance: &mut Chance) {
    if pids.is_empty() {
        return;
    }
    if let Some(pid) = Pid::from_raw(pids[chance.below(pids.len())]) {
        // It may have ended meanwhile.
        kill_process(pid, Signal::KILL).ok();
    }
}

pub(crate) fn leaves_nothing(place: &Place, runtime: OciRuntime) -> Result<(), Failed> {
    let folder = place.folder.join(format!("fire-{}", runtime.name()));
    std::fs::create_dir(&folder)?;
    let kills = if std::env::var_os("PALISADE_LONG").is_some() { KILLS_LONG } else { KILLS };
    let mut chance = Chance::new(SEED);
    let mut server = Server::start(&folder, runtime)?;
    for number in 0..kills {
        std::thread::sleep(Duration::from_millis(chance.below(MOMENT_MS) as u64));
        // The first is the server, so that also few kills are of every kind.
        let victim = [Victim::Server, Victim::Runtime, Victim::Member]
            [if number < 3 { number } else { chance.below(3) }];
        server.lose(victim, &mut chance)?;
        if matches!(victim, Victim::Server) {
            let gone = server.group.clone();
            server = Server::start(&folder, runtime)?;
            until_gone(&folder, runtime, &gone)?;
        } else {
            server.serves().map_err(|_| format!("after kill {number} of {victim:?} no run succeeds"))?;
        }
    }
    server.stdin = None;
    let ended = server.child.wait()?;
    assert!(ended.success(), "{ended}");
    until_gone(&folder, runtime, &server.group)
}
