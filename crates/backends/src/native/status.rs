//! Reads the state of a process from outside: /proc/PID/status, /proc/PID/stat. See proc(5).

use std::fs::File;
use std::io;

use rustix::io::Errno;

use super::kernel_file;

/// The lines of `status` as name and value.
pub(crate) struct Status(String);

impl Status {
    pub(crate) fn read(pid: i32) -> io::Result<Self> {
        kernel_file::read(format!("/proc/{pid}/status")).map(Self)
    }

    pub(crate) fn get(&self, name: &str) -> &str {
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

/// Whether a process has ended, though its parent may not have waited for it yet.
pub(crate) fn has_ended(pid: i32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
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

/// Whether a process is on its way out: it was killed or is exiting, and is not a zombie yet. The kernel releases
/// its memory meanwhile, so its groups still count what `status` no longer shows.
pub(super) fn is_dying(pid: i32) -> bool {
    Fields::read(pid).is_ok_and(|fields| fields.is_dying())
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

    fn is_dying(&self) -> bool {
        const EXITING: u64 = 0x4; // PF_EXITING in the kernel's sched.h
        const KILLED: u64 = 1 << 8; // SIGKILL among the pending signals
        let state = self.0.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        let is_dead = state.is_none_or(|letter| ['Z', 'X'].contains(&letter));
        let has = |number: usize, bits: u64| self.number(number).is_some_and(|value| value & bits != 0);
        !is_dead && (has(9, EXITING) || has(31, KILLED) || self.number(23) == Some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_dying_from_its_kill_until_it_is_a_zombie() {
        let line = |state: char, flags: u64, bytes: u64, pending: u64| {
            let middle = "0 ".repeat(13);
            Fields(format!("7 (a) b) {state} 1 7 7 0 -1 {flags} {middle}{bytes} 100 0 0 0 0 0 0 {pending} 0"))
        };
        assert_eq!(line('R', 4, 5, 6).number(23), Some(5));
        assert_eq!(line('R', 4, 5, 6).number(31), Some(6));
        assert!(!line('R', 0x40_0000, 4096, 1 << 14).is_dying(), "alive, with SIGTERM pending");
        assert!(line('R', 0x40_0000, 4096, 1 << 8).is_dying(), "killed, and not scheduled since");
        assert!(line('R', 0x40_0004, 4096, 0).is_dying(), "exiting");
        assert!(line('D', 0x40_0004, 0, 0).is_dying(), "its memory is being released");
        assert!(!line('Z', 0x40_0004, 0, 0).is_dying(), "its memory is released");
        assert!(!is_dying(i32::try_from(std::process::id()).unwrap()));
    }

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
