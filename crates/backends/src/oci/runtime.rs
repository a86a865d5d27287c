//! Calls of an OCI runtime, each with a time limit. The stage (`jail::stage`) goes before each of them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

/// How long one call may take. The slowest runtime needs a third of a second on an idle machine.
const CALL_PATIENCE: Duration = Duration::from_secs(15);
/// Where distributions put runtimes that are not on every user's PATH.
const MORE_FOLDERS: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/libexec"];
/// Longest explanation of a runtime that is passed on.
const WORDS_BYTES_MAX: usize = 2000;
/// Longest list of flags that is read.
const FLAGS_BYTES_MAX: u64 = 256 << 10;

/// A runtime that builds containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OciRuntime {
    /// runc.
    Runc,
    /// crun.
    Crun,
    /// runsc: gVisor, which has a kernel of its own.
    Gvisor,
}

impl OciRuntime {
    /// Every runtime.
    pub const ALL: [Self; 3] = [Self::Runc, Self::Crun, Self::Gvisor];

    /// The name of its wall.
    pub fn name(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Crun => "crun",
            Self::Gvisor => "gvisor",
        }
    }

    /// The name of its executable, and of the package that has it.
    pub fn command(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Crun => "crun",
            Self::Gvisor => "runsc",
        }
    }

    /// Its executable on this machine.
    pub fn find(self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from));
        folders.map(|folder| folder.join(self.command())).find(|file| file.is_file())
    }

    /// Options of that executable before every command.
    pub fn options(self, program: &Path) -> Vec<String> {
        match self {
            Self::Runc | Self::Crun => Vec::new(),
            Self::Gvisor => gvisor_options(&known_flags(program)),
        }
    }
}

/// Nothing of the host's network and none of its sockets, no layer over the planned root, and no KVM, which needs rights that
/// this server should not have. `known` is what this version says about its flags.
fn gvisor_options(known: &str) -> Vec<String> {
    let mut options = vec!["--network=none", "--host-uds=none", "--overlay2=none"];
    options.push(if known.contains("systrap") { "--platform=systrap" } else { "--platform=ptrace" });
    // Newer versions let the kernel itself open files, with more rights, unless they are told not to.
    if known.contains("-directfs") {
        options.push("--directfs=false");
    }
    options.into_iter().map(str::to_owned).collect()
}

/// What `runsc flags` says; nothing if it says nothing in time. Some versions say it on standard error.
fn known_flags(program: &Path) -> String {
    let Ok((reader, writer)) = io::pipe() else { return String::new() };
    let Ok(errors) = writer.try_clone() else { return String::new() };
    let mut command = Command::new(program);
    command.arg("flags").env_clear().stdin(Stdio::null()).stdout(writer).stderr(errors);
    let Ok(child) = command.spawn() else { return String::new() };
    // The pipe ends with the child only if this process does not hold its other end too.
    drop(command);
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let running = Running(child);
    std::thread::spawn(move || {
        let mut text = String::new();
        reader.take(FLAGS_BYTES_MAX).read_to_string(&mut text).ok();
        sender.send(text).ok();
    });
    let text = receiver.recv_timeout(CALL_PATIENCE).unwrap_or_default();
    drop(running);
    text
}

/// How a runtime is called.
#[derive(Debug, Clone)]
pub(super) struct Runtime {
    pub(super) kind: OciRuntime,
    pub(super) program: PathBuf,
    /// Its options before every command.
    pub(super) options: Vec<String>,
    /// The executable that prepares mounts before it becomes the runtime.
    pub(super) guest: PathBuf,
    /// Where the runtime keeps its own state.
    pub(super) state: PathBuf,
}

/// The standard streams of a call.
pub(super) struct Streams {
    pub(super) input: Stdio,
    pub(super) output: Stdio,
    pub(super) errors: Stdio,
}

impl Runtime {
    /// Executes a command and waits for it. The error of a command that fails contains what it wrote to `log`.
    pub(super) fn call(
        &self,
        stage: &Path,
        log: &Path,
        arguments: &[&str],
        streams: Streams,
    ) -> io::Result<()> {
        let mut command = Command::new(&self.guest);
        command.arg(jail::STAGE_ROLE).arg(stage).arg(&self.program).args(&self.options);
        command.arg("--root").arg(&self.state).arg("--log").arg(log).args(arguments);
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.current_dir("/").stdin(streams.input).stdout(streams.output).stderr(streams.errors);
        let child = Running(command.spawn()?);
        // The streams of a container end with it only if this process does not hold them too.
        drop(command);
        if child.wait()? { Ok(()) } else { Err(io::Error::other(last_words(log))) }
    }

    /// A call whose streams nobody needs.
    pub(super) fn call_quietly(&self, stage: &Path, log: &Path, arguments: &[&str]) -> io::Result<()> {
        let errors = File::options().create(true).append(true).open(log)?;
        let streams = Streams { input: Stdio::null(), output: Stdio::null(), errors: errors.into() };
        self.call(stage, log, arguments, streams)
    }
}

/// A child that is killed and reaped when it is dropped.
struct Running(Child);

impl Running {
    /// Whether it succeeded.
    fn wait(mut self) -> io::Result<bool> {
        let number = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        let process = number.ok_or(io::ErrorKind::InvalidInput)?;
        let pidfd = rustix::process::pidfd_open(process, PidfdFlags::empty())?;
        let mut list = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        let patience = Timespec::try_from(CALL_PATIENCE).ok();
        loop {
            match rustix::event::poll(&mut list, patience.as_ref()) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::TimedOut)),
                Ok(_) => return Ok(self.0.wait()?.success()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A child that has ended can be neither killed nor waited for again.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The end of a log, for an error.
fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let tail = text.len().saturating_sub(WORDS_BYTES_MAX);
    let words = String::from_utf8_lossy(&text[tail..]).trim().replace('\n', "; ");
    if words.is_empty() { "it failed without a word".to_owned() } else { words }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn flags_are_heard_on_both_outputs() {
        let folder = harness::TestFolder::new();
        for output in ["1", "2"] {
            let script = format!("#!/bin/sh\necho '  -directfs  systrap' >&{output}\n");
            let program = folder.file(&format!("runsc-{output}"), script);
            fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
            let options = OciRuntime::Gvisor.options(&program);
            assert_eq!(options[3..], ["--platform=systrap", "--directfs=false"], "output {output}");
        }
    }

    #[test]
    fn gvisor_gets_the_options_that_its_version_knows() {
        let old = gvisor_options("  -platform string\n    \tptrace (default), kvm\n  -overlay2 value\n");
        assert_eq!(old.last().map(String::as_str), Some("--platform=ptrace"));
        let new = gvisor_options("  -directfs\n  -platform string\n    \tsystrap (default), ptrace, kvm\n");
        assert_eq!(new[3..], ["--platform=systrap", "--directfs=false"]);
        assert!(
            gvisor_options("").iter().any(|option| option == "--network=none"),
            "no answer opens nothing"
        );
    }
}
