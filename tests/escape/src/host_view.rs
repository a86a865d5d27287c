//! What the host sees of gVisor's processes while an attack runs behind that wall.
//!
//! An attack may get locks, terminals, timers, threads and zombies of gVisor's own kernel, and says that it got out. Whether
//! they are the host's shows only here: a thread looks at the processes of gVisor in sandboxes of Palisade again and again,
//! and the most that it has seen is judged.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::attack::Attack;

const PAUSE: Duration = Duration::from_millis(10);
/// The executable of gVisor.
const PROGRAM: &str = "runsc";
/// Begins the names of control groups of Palisade's servers.
const GROUP: &str = "palisade-";
/// What a sandbox has for each process of its limit, and for gVisor itself (`backends::oci::sentry`).
const THREADS_EACH: u64 = 2;
const THREADS_OWN: u64 = 96;
const PROCESSES_DEFAULT: u64 = 64;
/// Far below what the attacks ask for, and more than gVisor itself uses.
const LOCKS_MAX: u64 = 16;
const SIGNALS_MAX: u64 = 256;
const ZOMBIES_MAX: u64 = 16;
const TERMINALS_MAX: u64 = 0;
/// Only 1 keeps a handler of the host from starting (core(5)); 0 where the server itself has no more.
const CORE_MAX: u64 = 1;

/// The most that was seen of one sandbox.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Seen {
    threads: u64,
    zombies: u64,
    locks: u64,
    terminals: u64,
    signals: u64,
    core: u64,
}

impl Seen {
    fn most(&mut self, other: &Self) {
        let pairs = [
            (&mut self.threads, other.threads),
            (&mut self.zombies, other.zombies),
            (&mut self.locks, other.locks),
            (&mut self.terminals, other.terminals),
            (&mut self.signals, other.signals),
            (&mut self.core, other.core),
        ];
        for (own, other) in pairs {
            *own = (*own).max(other);
        }
    }

    /// The error says what the host has more of than one sandbox may take.
    pub fn judge(&self, attack: &Attack) -> Result<(), String> {
        let processes = attack.limit("--processes", PROCESSES_DEFAULT);
        let bounds = [
            ("threads", self.threads, processes * THREADS_EACH + THREADS_OWN),
            ("zombies", self.zombies, ZOMBIES_MAX),
            ("file locks", self.locks, LOCKS_MAX),
            ("terminals", self.terminals, TERMINALS_MAX),
            ("pending signals", self.signals, SIGNALS_MAX),
            ("bytes of a core file", self.core, CORE_MAX),
        ];
        let beyond = bounds.into_iter().find(|(_, seen, most)| seen > most);
        match beyond {
            None => Ok(()),
            Some((what, seen, most)) => {
                Err(format!("ESCAPED behind gVisor: the host sees {seen} {what}, {most} at most"))
            }
        }
    }
}

/// A thread that looks.
pub struct HostView {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl HostView {
    /// Begins to look.
    pub fn begin() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !over.load(Ordering::Relaxed) {
                look().values().for_each(|sandbox| seen.most(sandbox));
                std::thread::sleep(PAUSE);
            }
            seen
        });
        Self { is_over, thread }
    }

    /// The most that was seen.
    pub fn end(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// One look: the sandboxes of gVisor, by their groups.
fn look() -> BTreeMap<String, Seen> {
    let mut sandboxes: BTreeMap<String, Seen> = BTreeMap::new();
    let mut dead: Vec<String> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        // Its main thread shows no executable once it is a zombie.
        let program = fs::read_link(entry.path().join("exe")).unwrap_or_default();
        let is_gvisor = program.to_string_lossy().contains(PROGRAM);
        let is_dead = program.as_os_str().is_empty();
        let Some(group) = (is_gvisor || is_dead).then(|| group_of(pid)).flatten() else { continue };
        if is_dead {
            dead.push(group);
            continue;
        }
        let own = of_process(pid);
        let sandbox = sandboxes.entry(group).or_default();
        sandbox.threads += own.threads;
        sandbox.locks += own.locks;
        sandbox.terminals += own.terminals;
        sandbox.signals = sandbox.signals.max(own.signals);
        sandbox.core = sandbox.core.max(own.core);
    }
    for group in dead {
        if let Some(sandbox) = sandboxes.get_mut(&group) {
            sandbox.zombies += 1;
        }
    }
    sandboxes
}

fn group_of(pid: u32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let line = groups.lines().find(|line| line.contains("pids") || line.starts_with("0::"))?;
    let path = line.rsplit(':').next()?;
    path.contains(GROUP).then(|| path.to_owned())
}

fn of_process(pid: u32) -> Seen {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.trim().split('/').next()?.parse().ok()).unwrap_or(0)
    };
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
    let core = core
        .and_then(|line| line.split_whitespace().next())
        .map_or(0, |word| word.parse().unwrap_or(u64::MAX));
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let (mut locks, mut terminals) = (0, 0);
    for fd in fds {
        let name = fs::read_link(fd.path()).unwrap_or_default();
        terminals += u64::from(name.starts_with("/dev/pts") || name.starts_with("/dev/ptmx"));
        let info = format!("/proc/{pid}/fdinfo/{}", fd.file_name().to_string_lossy());
        let info = fs::read_to_string(info).unwrap_or_default();
        locks += info.lines().filter(|line| line.starts_with("lock:")).count() as u64;
    }
    Seen { threads: value("Threads"), zombies: 0, locks, terminals, signals: value("SigQ"), core }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attack;

    #[test]
    fn what_the_host_has_too_much_of_is_named() {
        let attack = attack::named("exhaust_processes.py");
        assert_eq!(Seen { threads: 128, ..Seen::default() }.judge(&attack), Ok(()));
        let judged = Seen { threads: 129, ..Seen::default() }.judge(&attack);
        assert!(judged.is_err_and(|told| told.contains("129 threads")));
        let judged = Seen { locks: 4000, ..Seen::default() }.judge(&attack);
        assert!(judged.is_err_and(|told| told.contains("file locks")));
    }

    #[test]
    fn a_process_with_a_lock_is_seen() {
        let path = std::env::temp_dir().join(format!("palisade-view-{}", std::process::id()));
        let locked = fs::File::create(&path).unwrap();
        locked.lock().unwrap();
        let seen = of_process(std::process::id());
        fs::remove_file(&path).unwrap();
        assert!(seen.threads >= 1 && seen.locks >= 1, "{seen:?}");
    }
}
