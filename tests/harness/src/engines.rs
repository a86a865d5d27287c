//! Docker and Podman as the tests start them: with a data directory of their own, without touching the host's network,
//! ended by their process.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an engine may take to answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// The engines.
pub const DOCKER: &str = "docker";
/// See [`DOCKER`].
pub const PODMAN: &str = "podman";
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// A running engine with a data directory of its own.
#[derive(Debug)]
pub struct Running {
    folder: PathBuf,
    process: Child,
    name: &'static str,
}

/// The executable of an engine, if it is installed.
pub fn program(name: &str) -> Option<PathBuf> {
    let file = if name == DOCKER { "dockerd" } else { name };
    FOLDERS.iter().map(|folder| Path::new(folder).join(file)).find(|file| file.is_file())
}

impl Running {
    /// Starts an engine; `None` if it is not installed.
    pub fn start(name: &'static str, above: &Path) -> Option<Self> {
        let program = program(name)?;
        let folder = above.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let process = Self::launch(name, &program, &folder);
        let mut running = Self { folder, process, name };
        running.wait();
        Some(running)
    }

    fn launch(name: &str, program: &Path, folder: &Path) -> Child {
        let at = |name: &str| folder.join(name).display().to_string();
        let listen = format!("unix://{}", at("socket"));
        let mut command = Command::new(program);
        match name {
            DOCKER => {
                command.args(["--data-root", &at("data"), "--exec-root", &at("exec")]);
                command.args(["--pidfile", &at("pid"), "-H", &listen, "--bridge=none", "--iptables=false"]);
                command.args(["--ip-forward=false", "--ip-masq=false"]);
            }
            _ => {
                command.args(["--root", &at("data"), "--runroot", &at("run"), "--tmpdir", &at("tmp")]);
                // crun 1.8 refuses machines with both versions of control groups.
                command.args(["--cgroup-manager", "cgroupfs", "--events-backend", "none"]);
                if let Some(runc) =
                    FOLDERS.iter().map(|at| Path::new(at).join("runc")).find(|it| it.is_file())
                {
                    command.arg("--runtime").arg(runc);
                }
                command.args(["system", "service", "--time=0", &listen]);
            }
        }
        let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
        let errors = log.try_clone().unwrap();
        // Podman's monitors leave files where they are started.
        command.current_dir(folder);
        command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().unwrap()
    }

    fn wait(&mut self) {
        let began = Instant::now();
        while !is_answering(&self.socket()) {
            // On a busy machine Docker gives up on its own helper.
            if self.process.try_wait().ok().flatten().is_some() {
                self.process = Self::launch(self.name, &program(self.name).unwrap(), &self.folder);
            }
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "{} does not answer: {log}", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// The name of the engine.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Kills the engine as by `kill -9`, and starts it again.
    pub fn restart_by_force(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        // A process number that is left would keep Docker from starting.
        std::fs::remove_file(self.folder.join("pid")).ok();
        std::fs::remove_file(self.socket()).ok();
        self.process = Self::launch(self.name, &program(self.name).unwrap(), &self.folder);
        self.wait();
    }

    /// Processes that the engine started and that live on: their command lines name its directory.
    fn helpers(&self) -> Vec<i32> {
        let mark = self.folder.display().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if pid != i32::try_from(std::process::id()).unwrap()
                && String::from_utf8_lossy(&line).contains(&mark)
                && !String::from_utf8_lossy(&line).contains("palisade-guest")
            {
                found.push(pid);
            }
        }
        found
    }
}

fn is_answering(socket: &Path) -> bool {
    let answer = ask(socket, "GET", "version", ("", b"")).unwrap_or_default();
    String::from_utf8_lossy(&answer).contains("ApiVersion")
}

impl Drop for Running {
    fn drop(&mut self) {
        let signal = |pid: i32, name: &str| {
            Command::new("/bin/kill").args([name, &pid.to_string()]).stderr(Stdio::null()).status().ok();
        };
        signal(i32::try_from(self.process.id()).unwrap(), "-TERM");
        let began = Instant::now();
        while self.process.try_wait().ok().flatten().is_none() && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.process.kill().ok();
        self.process.wait().ok();
        self.helpers().into_iter().for_each(|pid| signal(pid, "-KILL"));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mark = self.folder.display().to_string();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for point in points.filter(|point| point.starts_with(&mark)) {
            Command::new("/bin/umount").args(["-l", point]).stderr(Stdio::null()).status().ok();
        }
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// Asks an engine over its socket, and returns the body of its answer.
pub fn ask(socket: &Path, method: &str, path: &str, content: (&str, &[u8])) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    let (kind, body) = content;
    let head = format!(
        "{method} /v1.40/{path} HTTP/1.0\r\nHost: engine\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    // An engine answers an archive at its end mark and does not read the padding.
    stream.write_all(body).ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    Ok(answer.split_off(end))
}

/// Makes an image of a tar archive. Returns its id.
pub fn import(socket: &Path, archive: &[u8], query: &str) -> Result<String, String> {
    let path = format!("images/create?fromSrc=-{query}");
    let body =
        ask(socket, "POST", &path, ("application/x-tar", archive)).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&body).into_owned();
    let at = text.rfind("sha256:").ok_or_else(|| format!("no image: {text}"))?;
    Ok(text[at..at + "sha256:".len() + 64].to_owned())
}
