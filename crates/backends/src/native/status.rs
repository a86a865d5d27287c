//! Reads the state of a process from outside: /proc/PID/status, /proc/PID/stat. See proc(5).

use std::fs::File;
use std::io;

use rustix::io::Errno;

use super::kernel_file;

/// The lines of `status` as name and value.
pub(super) struct Status(String);

impl Status {
    pub(super) fn read(pid: i32) -> io::Result<Self> {
        kernel_file::read(format!("/proc/{pid}/status")).map(Self)
    }

    pub(super) fn get(&self, name: &str) -> &str {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map_or("", str::trim)
    }

    /// A value in kilobytes, as bytes.
    pub(super) fn bytes(&self, name: &str) -> u64 {
        self.get(name).split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    pub(super) fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }
}

/// Processor time of a process, and of its children that it has waited for, in clock ticks.
pub(super) fn cpu_ticks(pid: i32) -> (u64, u64) {
    let Ok(fields) = Fields::read(pid) else { return (0, 0) };
    let ticks = |first: usize| fields.number(first).unwrap_or(0) + fields.number(first + 1).unwrap_or(0);
    (ticks(14), ticks(16))
}

/// The state letter of a process, if the process exists.
pub(super) fn state(pid: i32) -> Option<char> {
    let stat = kernel_file::read(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain any character, including a parenthesis.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether a thread could execute another instruction of its program: it exists and has memory. A thread
/// whose `stat` does not have the format of proc(5) counts as able to run.
pub(super) fn may_run(thread: i32) -> bool {
    may_run_by(Fields::read(thread))
}

/// The same for a thread whose `stat` was opened before.
pub(super) fn may_run_in(stat: &File) -> bool {
    may_run_by(kernel_file::read_value_again(stat).map(Fields))
}

fn may_run_by(fields: io::Result<Fields>) -> bool {
    match fields {
        Ok(fields) => fields.number(23) != Some(0),
        Err(error) => !is_of_nobody(&error),
    }
}

/// The errors that the kernel returns for a thread that no longer exists.
fn is_of_nobody(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [Errno::NOENT, Errno::SRCH].iter().any(|gone| number == Some(gone.raw_os_error()))
}

/// The fields of `stat`, numbered as in proc(5).
struct Fields(String);

impl Fields {
    fn read(pid: i32) -> io::Result<Self> {
        kernel_file::read(format!("/proc/{pid}/stat")).map(Self)
    }

    fn number(&self, number: usize) -> Option<u64> {
        // The name may contain any character; the fields begin after its closing parenthesis, with the third.
        let (_, rest) = self.0.rsplit_once(')')?;
        rest.split_whitespace().nth(number - 3)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_ended_runs_no_more_buried_or_not() {
        assert!(may_run(i32::try_from(std::process::id()).unwrap()));
        let mut child = std::process::Command::new("/bin/sleep").arg("100").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let is_alive = || may_run(pid) && may_run_in(&File::open(format!("/proc/{pid}/stat")).unwrap());
        assert!(is_alive(), "it sleeps, and may wake up");
        child.kill().unwrap();
        let opened = File::open(format!("/proc/{pid}/stat")).unwrap();
        let process = rustix::process::Pid::from_raw(pid).unwrap();
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(process), options).unwrap();
        let unburied = (may_run(pid), may_run_in(&opened));
        child.wait().unwrap();
        assert_eq!((unburied, may_run(pid), may_run_in(&opened)), ((false, false), false, false));
    }
}
