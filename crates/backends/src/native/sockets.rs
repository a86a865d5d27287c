//! Sockets of a sandbox over its own loopback, as far as they affect the whole host.
//!
//! The kernel has one count of orphaned connections and one bound for the memory of all TCP sockets. A
//! program can exceed both without any network, through connections to itself. The host therefore counts the
//! sockets in its namespace.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

use super::kernel_file;

/// Sockets for each file that a process may have open. Both ends of a connection belong to the sandbox,
/// several processes have sockets, and some sockets are closing.
const PER_OPEN_FILE: u64 = 8;
/// So few sockets cannot hold much memory.
pub(super) const COUNT_FEW: u64 = 16;
/// Minimum number of allowed sockets, however few open files are allowed.
const COUNT_MIN: u64 = 256;
/// One sandbox gets at most one part in this many of the host's capacity.
const SHARE_OF_HOST: u64 = 16;
/// Used if the host's values cannot be read.
const ORPHANS_USUAL: u64 = 16_384;
const MEMORY_PAGES_USUAL: u64 = 65_536;
const PAGE_BYTES: u64 = 4096;

/// How many TCP and UDP sockets the watch allows a sandbox.
pub(super) fn count_max(open_files: u32) -> u64 {
    static ORPHANS: OnceLock<u64> = OnceLock::new();
    let orphans =
        *ORPHANS.get_or_init(|| setting("/proc/sys/net/ipv4/tcp_max_orphans", 0).unwrap_or(ORPHANS_USUAL));
    (u64::from(open_files) * PER_OPEN_FILE).min(orphans / SHARE_OF_HOST).max(COUNT_MIN)
}

/// How much of the host's socket memory one sandbox may use.
pub(super) fn bytes_max() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let pages = setting("/proc/sys/net/ipv4/tcp_mem", 2).unwrap_or(MEMORY_PAGES_USUAL);
        pages * PAGE_BYTES / SHARE_OF_HOST
    })
}

fn setting(path: &str, field: usize) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.split_whitespace().nth(field)?.parse().ok()
}

/// The files that count the sockets of a network namespace, kept open.
pub(super) struct SocketCounts {
    files: [Option<OwnedFd>; 2],
}

impl SocketCounts {
    /// The files of a process's namespace. A file that cannot be opened counts nothing: a kernel without IPv6
    /// has only one.
    pub(super) fn of(pid: i32) -> Self {
        let open = |name: &str| kernel_file::open(Path::new(&format!("/proc/{pid}/net/{name}"))).ok();
        Self { files: ["sockstat", "sockstat6"].map(open) }
    }

    /// TCP connections in every state, including TIME_WAIT, and UDP sockets.
    pub(super) fn count(&self) -> u64 {
        let texts = self.files.iter().flatten().filter_map(|file| kernel_file::read_again(file).ok());
        texts.map(|text| sockets_in(&text)).sum()
    }
}

/// Only these two figures are per namespace; the others cover the whole machine.
fn sockets_in(text: &str) -> u64 {
    let lines = text.lines().filter(|line| line.starts_with("TCP") || line.starts_with("UDP"));
    let counts = lines.map(|figures| {
        let words: Vec<&str> = figures.split_whitespace().collect();
        let pairs = words.windows(2).filter(|pair| ["inuse", "tw"].contains(&pair[0]));
        pairs.filter_map(|pair| pair[1].parse::<u64>().ok()).sum::<u64>()
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_the_namespace_are_counted_and_not_those_of_the_machine() {
        let four = "sockets: used 9\nTCP: inuse 5 orphan 70 tw 3 alloc 90 mem 81\nUDP: inuse 4 mem 0\n";
        assert_eq!(sockets_in(four), 12);
        assert_eq!(sockets_in("TCP6: inuse 2\nUDP6: inuse 1\nFRAG6: inuse 7 memory 0\n"), 3);
        let own = SocketCounts::of(rustix::process::getpid().as_raw_nonzero().get());
        let before = own.count();
        let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // Other tests on this machine have connections too.
        assert!(before > 0 || own.count() > 0);
    }

    #[test]
    fn a_sandbox_gets_a_small_part_of_the_host() {
        let (usual, many) = (count_max(256), count_max(4096));
        assert!((COUNT_MIN..=2048).contains(&usual) && (usual..=32_768).contains(&many));
    }
}
