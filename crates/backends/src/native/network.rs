//! Network namespaces that are used again.
//!
//! To make one and to take it down is the dearest part of a sandbox for the kernel, and most programs never touch theirs. One
//! in which nothing happened, and in which nobody is left, is as good as a new one. That is not believed but seen: before a
//! program is sent, the host compares what the kernel shows of such a namespace with what it showed of a new one.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::free::Free;
use super::kernel_file;

/// How long none is kept after one was not as it should be.
const PAUSE: Duration = Duration::from_secs(1);

/// Files of /proc/PID/net that show what happened in a namespace: packets of every interface; counters of every protocol,
/// which know attempts too; labels of flows, which outlive their sockets for a while. (`netstat` counts only what packets did.)
const TRACES: [&str; 4] = ["dev", "snmp", "snmp6", "ip6_flowlabel"];

/// What can be seen of a network namespace from outside, but for what it shares with others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Traces(Vec<String>);

impl Traces {
    /// As the namespace of that process shows them.
    pub(super) fn read(pid: i32) -> io::Result<Self> {
        TRACES.into_iter().map(|name| shown(pid, name)).collect::<io::Result<_>>().map(Self)
    }
}

/// What is said of sockets: how many of each protocol there are, and local ones one by one.
struct Sockets {
    counts: [String; 2],
    unix: String,
}

impl Sockets {
    fn read(pid: i32) -> io::Result<Self> {
        Ok(Self { counts: [shown(pid, "sockstat")?, shown(pid, "sockstat6")?], unix: shown(pid, "unix")? })
    }

    /// Whether there are none but the two of a guest, which have no name, nor connections that are over but not forgotten. A
    /// socket of a dead process that is still on its way to another is found by the local ones that hold it.
    fn are_those_of_a_guest(&self) -> bool {
        const OF_A_GUEST: usize = 2;
        const FIELDS_WITHOUT_NAME: usize = 7;
        let counts = self.counts.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once(':'));
        // The other figures are those of the whole machine.
        let mut used = counts.filter(|(kind, _)| *kind != "sockets").flat_map(|(_, counts)| {
            let words: Vec<&str> = counts.split_whitespace().collect();
            words
                .windows(2)
                .filter(|pair| ["inuse", "tw"].contains(&pair[0]))
                .map(|pair| pair[1].to_owned())
                .collect::<Vec<_>>()
        });
        let is_told = self.counts[0].contains("TCP: inuse") && self.unix.contains("Inode");
        let mut local = self.unix.lines().skip(1);
        is_told
            && used.all(|count| count == "0")
            && self.unix.lines().count() <= 1 + OF_A_GUEST
            && local.all(|socket| socket.split_whitespace().count() == FIELDS_WITHOUT_NAME)
    }
}

/// A file of /proc/PID/net. A kernel without IPv6 has none of its files.
fn shown(pid: i32, name: &str) -> io::Result<String> {
    let is_of_ipv6 = name.ends_with('6') || name.starts_with("ip6");
    match kernel_file::read(format!("/proc/{pid}/net/{name}")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_of_ipv6 => Ok(String::new()),
        shown => shown,
    }
}

/// Those of the sandboxes of one stem. Another's cannot be entered: its user namespace is not theirs.
#[derive(Default)]
pub(super) struct Networks {
    free: Arc<Free<OwnedFd>>,
    new: OnceLock<Traces>,
    not_before: Mutex<Option<Instant>>,
}

impl Networks {
    /// One that nobody is in.
    pub(super) fn take(&self) -> Option<OwnedFd> {
        self.free.take(|_| true)
    }

    /// Takes one back whose processes are all dead; gives it back if there are enough.
    pub(super) fn put(&self, namespace: OwnedFd) -> Option<OwnedFd> {
        let is_pause = self.not_before().is_some_and(|begin| Instant::now() < begin);
        if self.new.get().is_none() || is_pause { Some(namespace) } else { self.free.put(namespace) }
    }

    fn not_before(&self) -> MutexGuard<'_, Option<Instant>> {
        self.not_before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets those that are free, as one was not as it should be, and takes none for a while: each costs a sandbox.
    pub(super) fn forget(&self) {
        self.free.clear();
        *self.not_before() = Some(Instant::now() + PAUSE);
    }

    /// Remembers what a new one looks like.
    pub(super) fn learn(&self, pid: i32) -> io::Result<()> {
        if self.new.get().is_none() {
            let traces = Traces::read(pid)?;
            self.new.get_or_init(|| traces);
        }
        Ok(())
    }

    /// Whether the namespace of that process looks like a new one.
    pub(super) fn is_as_new(&self, pid: i32) -> io::Result<bool> {
        let traces = Traces::read(pid)?;
        let is_free = Sockets::read(pid)?.are_those_of_a_guest();
        Ok(is_free && self.new.get().is_some_and(|new| *new == traces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_the_namespace_are_told_from_those_of_the_machine() {
        let four =
            "sockets: used 9\nTCP: inuse 0 orphan 0 tw 0 alloc 1 mem 81\nUDP: inuse 0 mem 0\nRAW: inuse 0\n";
        let six = "TCP6: inuse 0\nUDP6: inuse 0\nRAW6: inuse 0\nFRAG6: inuse 0 memory 0\n";
        let names = "Num       RefCount Protocol Flags    Type St Inode Path\n";
        let one = "00: 00000002 00000000 00000000 0001 03 4711\n";
        let is_free = |four: &str, six: &str, unix: &str| {
            Sockets { counts: [four.to_owned(), six.to_owned()], unix: unix.to_owned() }
                .are_those_of_a_guest()
        };
        assert!(is_free(four, six, names) && is_free(four, "", names));
        assert!(is_free(four, six, &format!("{names}{one}{one}")), "those of a guest");
        assert!(!is_free(four, six, &format!("{names}{one}{one}{one}")), "one more is on its way");
        assert!(!is_free(four, six, &format!("{names}{}", one.replace("4711", "4711 @name"))));
        assert!(!is_free(&four.replace("tw 0", "tw 1"), six, names));
        assert!(!is_free(&four.replace("UDP: inuse 0", "UDP: inuse 1"), six, names));
        assert!(!is_free(four, &six.replace("TCP6: inuse 0", "TCP6: inuse 1"), names));
        assert!(!is_free("", six, names) && !is_free(four, six, ""), "what is not shown is not known");
    }

    #[tokio::test]
    async fn none_is_kept_before_it_is_known_what_a_new_one_looks_like() {
        let networks = Networks::default();
        let any = || OwnedFd::from(std::fs::File::open("/proc/self/ns/net").unwrap());
        assert!(networks.put(any()).is_some());
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(!networks.is_as_new(pid).unwrap());
        networks.learn(pid).unwrap();
        assert!(networks.put(any()).is_none());
        assert!(networks.take().is_some() && networks.take().is_none());
        assert!(networks.put(any()).is_none());
        networks.forget();
        assert!(networks.take().is_none());
        assert!(networks.put(any()).is_some(), "one is kept at once");
    }
}
