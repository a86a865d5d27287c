//! Measures a process tree without control groups, for an ordinary user without delegation.
//!
//! `watch`, `nameless`, `descriptors` and `lease` call it. Orphans become children of the sandbox's process 1, so
//! its descendants are the whole sandbox.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use super::kernel_file;
use super::status::{Status, cpu_ticks};

/// A larger tree is not walked completely; the limit of processes is far below.
const PROCESSES_MAX: usize = 8192;
/// USER_HZ, fixed by the kernel's interface on every supported architecture.
const TICKS_PER_SECOND: u64 = 100;

/// What a tree uses at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TreeUse {
    pub(super) memory_bytes: u64,
    pub(super) processes: u64,
    pub(super) cpu_us: u64,
}

/// How much one look may read, and how much processor time it may use. A program decides how many mappings
/// and file descriptors there are to inspect. A tree that exceeds this budget counts as beyond its limit.
const MAPS_BYTES_MAX: usize = 4 << 20;
const LOOK_MAX: Duration = Duration::from_millis(300);
/// Additional budget for each process when shared pages are counted once.
const LOOK_PER_PROCESS_MAX: Duration = Duration::from_millis(20);
/// What the kernel keeps for one mapping.
const MAPPING_BYTES: u64 = 256;

/// The processor time of this thread that a look may use. On a busy machine the look lasts longer, as does
/// the observed program.
pub(super) struct Budget {
    started: Duration,
    most: Duration,
}

impl Budget {
    pub(super) fn new(most: Duration) -> Self {
        Self { started: Self::used(), most }
    }

    fn used() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap_or_default()
    }

    /// How much of it is used.
    pub(super) fn taken(&self) -> Duration {
        Self::used().saturating_sub(self.started)
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.taken() > self.most
    }
}

/// What a tree uses. Expensive measurements are skipped once the rest exceeds `memory_limit`.
pub(super) fn measure(first: i32, memory_limit: u64, mappings: &mut Mappings) -> TreeUse {
    let budget = Budget::new(LOOK_MAX);
    let mut sum = TreeUse::default();
    let mut ticks = cpu_ticks(first).1;
    let members = members(first);
    for pid in &members {
        if let Ok(status) = Status::read(speaker(*pid)) {
            sum.memory_bytes +=
                ["RssAnon", "VmSwap", "VmPTE"].map(|name| status.bytes(name)).iter().sum::<u64>();
            sum.processes += status.number("Threads").max(1);
            let (own, waited) = cpu_ticks(*pid);
            ticks += own + if *pid == first { 0 } else { waited };
        }
    }
    if sum.memory_bytes <= memory_limit {
        let maps = mappings.bytes(&members, memory_limit, &budget);
        let beside = maps.map(|maps| maps + socket_bytes(first));
        sum.memory_bytes = sum.memory_bytes.saturating_add(beside.unwrap_or(BEYOND));
    }
    sum.cpu_us = ticks * (1_000_000 / TICKS_PER_SECOND);
    sum
}

/// More than any limit, and far from overflowing a sum.
pub(super) const BEYOND: u64 = 1 << 60;

/// How many threads a tree has.
pub(super) fn threads(first: i32) -> u64 {
    let of = |pid| Status::read(pid).map_or(1, |status| status.number("Threads").max(1));
    members(first).into_iter().map(of).sum()
}

/// The process with the most anonymous memory among the given ones. Pages that it shares with others count in
/// part: a clone of a zygote shows all memory of the zygote, which its end would not release.
pub(super) fn largest(pids: &[i32]) -> Option<i32> {
    /// The precise measurement takes long, so only the first few get it.
    const PRECISE_MAX: usize = 4;
    let shown = |pid: &i32| Status::read(speaker(*pid)).map_or(0, |status| status.bytes("RssAnon"));
    let mut by_size: Vec<(u64, i32)> = pids.iter().map(|pid| (shown(pid), *pid)).collect();
    by_size.sort_unstable_by(|a, b| b.cmp(a));
    by_size.into_iter().take(PRECISE_MAX).map(|(_, pid)| pid).max_by_key(|pid| proportional_of(*pid))
}

/// Page tables, and about what the kernel keeps for threads.
pub(super) fn kernel_bytes(first: i32) -> u64 {
    const THREAD_BYTES: u64 = 32 << 10;
    let of = |status: Status| status.bytes("VmPTE") + status.number("Threads") * THREAD_BYTES;
    members(first).into_iter().filter_map(|pid| Status::read(speaker(pid)).ok()).map(of).sum()
}

/// Processor time of a tree.
pub(super) fn cpu_us(first: i32) -> u64 {
    let own_and_waited = |pid| {
        let (own, waited) = cpu_ticks(pid);
        own + waited
    };
    let ticks: u64 = members(first).into_iter().map(own_and_waited).sum();
    ticks * (1_000_000 / TICKS_PER_SECOND)
}

/// Whether memory exceeds a limit when pages that several processes share are counted once, where the kernel
/// allows this inspection.
pub(super) fn is_proportionally_beyond(first: i32, limit: u64, mappings: &mut Mappings) -> bool {
    let members = members(first);
    let processes = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let budget = Budget::new(LOOK_MAX + LOOK_PER_PROCESS_MAX.saturating_mul(processes));
    let Some(maps) = mappings.bytes(&members, limit, &budget) else { return true };
    let mut sum = maps + socket_bytes(first);
    for pid in members {
        if sum > limit || budget.is_used_up() {
            return true;
        }
        sum += proportional_of(pid);
    }
    sum > limit
}

fn proportional_of(pid: i32) -> u64 {
    let pid = speaker(pid);
    let Ok(status) = Status::read(pid) else { return 0 };
    let precise = kernel_file::read(format!("/proc/{pid}/smaps_rollup")).ok().and_then(|text| {
        let of = |name: &str| text.lines().find_map(|line| kilobytes(line.strip_prefix(name)?));
        Some(of("Pss_Anon:")? + of("SwapPss:").unwrap_or(0))
    });
    precise.unwrap_or_else(|| status.bytes("RssAnon") + status.bytes("VmSwap")) + status.bytes("VmPTE")
}

fn kilobytes(text: &str) -> Option<u64> {
    text.trim().split(' ').next()?.parse::<u64>().ok().map(|number| number * 1024)
}

/// What mappings cost in addition to the pages that processes show: their entries in the kernel, and shared
/// anonymous memory.
///
/// Shared anonymous memory stays while one process maps a single page of it, and the kernel does not report
/// its size. Therefore the largest length ever seen of a piece counts as long as the piece is mapped at all.
/// If there are many pieces, each counts at least as much as a program can fill and unmap between two looks.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    /// By inode.
    pieces: BTreeMap<String, u64>,
}

impl Mappings {
    /// Ordinary programs have one or two.
    const PIECES_FREE: usize = 2;
    const PIECE_BYTES_MIN: u64 = 64 << 20;
    /// At most this part of the limit, so that small limits allow some.
    const PIECE_SHARE: u64 = 4;

    /// What they cost now; `None` if there are too many to inspect.
    fn bytes(&mut self, members: &[i32], limit: u64, budget: &Budget) -> Option<u64> {
        let mut left = MAPS_BYTES_MAX;
        let mut mappings = 0;
        let mut seen = BTreeMap::new();
        for pid in members {
            // A process that has ended has none.
            let maps = format!("/proc/{}/maps", speaker(*pid));
            let Ok((maps, is_whole)) = kernel_file::read_at_most(maps, left) else { continue };
            if !is_whole || budget.is_used_up() {
                return None;
            }
            left = left.saturating_sub(maps.len());
            mappings += maps.lines().count() as u64;
            pieces_in(&maps, &mut seen);
        }
        Some(mappings * MAPPING_BYTES + self.charge(seen, limit))
    }

    /// Records the pieces that are mapped now, and returns what they cost.
    fn charge(&mut self, mut seen: BTreeMap<String, u64>, limit: u64) -> u64 {
        for (inode, bytes) in &mut seen {
            *bytes = (*bytes).max(self.pieces.get(inode).copied().unwrap_or(0));
        }
        self.pieces = seen;
        let least = match self.pieces.len() <= Self::PIECES_FREE {
            true => 0,
            false => Self::PIECE_BYTES_MIN.min(limit / Self::PIECE_SHARE),
        };
        self.pieces.values().map(|bytes| (*bytes).max(least)).sum()
    }
}

/// The length of each piece of shared anonymous memory in a list of mappings.
fn pieces_in(maps: &str, seen: &mut BTreeMap<String, u64>) {
    for line in maps.lines().filter(|line| line.ends_with("/dev/zero (deleted)")) {
        // start-end permissions offset device inode path; see proc(5).
        let mut fields = line.split_whitespace();
        let (Some(range), Some(inode)) = (fields.next(), fields.nth(3)) else { continue };
        let bytes = range.split_once('-').and_then(|(start, end)| {
            let number = |text| u64::from_str_radix(text, 16).ok();
            number(end)?.checked_sub(number(start)?)
        });
        let piece = seen.entry(inode.to_owned()).or_default();
        *piece = (*piece).max(bytes.unwrap_or(0));
    }
}

/// The data queued in the sandbox's sockets. The kernel does not report it for local ones, so beyond a few
/// each counts as full.
pub(super) fn socket_bytes(first: i32) -> u64 {
    const LOCAL_FREE: usize = 64;
    const LOCAL_BYTES_MAX: u64 = 416 << 10;
    let table = |name: &str| kernel_file::read(format!("/proc/{first}/net/{name}")).unwrap_or_default();
    let local = table("unix").lines().skip(1).count().saturating_sub(LOCAL_FREE) as u64 * LOCAL_BYTES_MAX;
    let queued = |text: String| -> u64 {
        let queues = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(4)?.split_once(':'));
        let bytes = queues.map(|(sent, received)| {
            let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            number(sent) + number(received)
        });
        bytes.sum()
    };
    if !has_internet_sockets(first) {
        return local;
    }
    local + ["tcp", "tcp6", "udp", "udp6"].map(|name| queued(table(name))).iter().sum::<u64>()
}

/// Whether the sandbox has any socket that those tables would show. Even to list none the kernel walks the
/// connection table of the whole machine, which takes milliseconds, whereas its counters are cheap. If the
/// counters cannot be read, the tables are.
fn has_internet_sockets(first: i32) -> bool {
    ["sockstat", "sockstat6"].into_iter().any(|name| {
        let counts = kernel_file::read(format!("/proc/{first}/net/{name}")).unwrap_or_default();
        let mut in_use = counts.lines().filter_map(|line| {
            let (kind, rest) = line.split_once(": inuse ")?;
            let number = rest.split(' ').next()?.parse::<u64>().ok()?;
            kind.starts_with(['T', 'U']).then_some(number)
        });
        // The system may lack IPv6; it always has the other file.
        let is_unknown = counts.is_empty() && name == "sockstat";
        is_unknown || in_use.any(|number| number > 0)
    })
}

/// The thread of a process that shows its memory and file descriptors: the first, unless it has ended and
/// others continue.
pub(super) fn speaker(pid: i32) -> i32 {
    let has_memory = |thread: i32| Status::read(thread).is_ok_and(|status| !status.get("RssAnon").is_empty());
    if has_memory(pid) {
        return pid;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads = threads.filter_map(|thread| thread.file_name().to_string_lossy().parse::<i32>().ok());
    threads.find(|thread| has_memory(*thread)).unwrap_or(pid)
}

/// Process 1 and its descendants.
pub(super) fn members(first: i32) -> Vec<i32> {
    let mut found = vec![first];
    let mut next = 0;
    while next < found.len() && found.len() < PROCESSES_MAX {
        let pid = found[next];
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = kernel_file::read(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|number| number.parse::<i32>().ok()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_shared_memory_counts_as_much_as_may_be_hidden() {
        const LIMIT: u64 = 512 << 20;
        let mut mappings = Mappings::default();
        let mut charge = |text: &str| {
            let mut seen = BTreeMap::new();
            pieces_in(text, &mut seen);
            mappings.charge(seen, LIMIT)
        };
        let line =
            |end: &str, inode: u32| format!("7f0000000000-{end} rw-s 0 00:01 {inode}  /dev/zero (deleted)\n");
        let small = |inode| line("7f0000001000", inode);
        assert_eq!(charge(&[small(1), small(1), small(2)].concat()), 8192, "one or two are what they show");
        assert_eq!(charge(&line("7f0010000000", 1)), 256 << 20);
        assert_eq!(charge(&small(1)), 256 << 20, "cut off, and still there");
        assert_eq!(charge(""), 0, "gone");
        assert_eq!(
            charge(&[small(1), small(2), small(3)].concat()),
            3 * (64 << 20),
            "many hide what they may"
        );
    }

    #[test]
    fn a_look_that_takes_too_long_finds_too_much() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let mut mappings = Mappings::default();
        assert!(mappings.bytes(&[own], BEYOND, &Budget::new(LOOK_MAX)).is_some_and(|bytes| bytes > 0));
        assert_eq!(mappings.bytes(&[own], BEYOND, &Budget::new(Duration::ZERO)), None);
        assert!(is_proportionally_beyond(own, 1 << 10, &mut mappings));
        assert!(!is_proportionally_beyond(own, BEYOND, &mut mappings));
        assert_eq!(largest(&[own]), Some(own));
    }

    /// A Python that holds 48 MB and shares it with three copies, and one that holds 32 MB alone.
    #[test]
    fn the_largest_process_is_the_one_whose_end_releases_most() {
        use std::io::{BufRead, BufReader};
        use std::process::{Command, Stdio};
        let start = |code: &str| {
            let mut command = Command::new("python3");
            command.args(["-c", code]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            (child, line)
        };
        // Each process ends with the standard input that the test holds.
        let shared = "import os, sys\nx = bytearray(b'x') * (48 << 20)\nfor _ in range(3):\n    if os.fork() == 0: break\n\
                      else: print('ready', flush=True)\nsys.stdin.read()";
        let alone =
            "import sys\nx = bytearray(b'x') * (32 << 20)\nprint('ready', flush=True)\nsys.stdin.read()";
        let (mut first, second) = (start(shared), start(alone));
        let (mut second, words) = (second.0, [first.1.clone(), second.1]);
        let pids = [&first.0, &second].map(|child| i32::try_from(child.id()).unwrap());
        let found = largest(&pids);
        for child in [&mut first.0, &mut second] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        assert_eq!((words.concat().as_str(), found), ("ready\nready\n", Some(pids[1])));
    }

    #[test]
    fn a_socket_that_holds_data_is_counted() {
        use std::io::Write;
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sender.write_all(&[0; 10_000]).unwrap();
        assert!(has_internet_sockets(own));
        assert!(socket_bytes(own) >= 10_000);
    }
}
