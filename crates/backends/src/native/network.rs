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
        let shown = |name: &str| match kernel_file::read(format!("/proc/{pid}/net/{name}")) {
            // A kernel without IPv6 has none of its files.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            shown => shown,
        };
        TRACES.into_iter().map(shown).collect::<io::Result<_>>().map(Self)
    }
}

/// Whether there are no sockets by which something could be reached or heard, nor connections that are over but not
/// forgotten. `sockstat` says how many of each protocol there are, beside figures of the whole machine. `unix` names those that
/// have a name; the new guest has two without, and one without that nobody holds any more is out of reach.
fn has_no_sockets(sockstat: &str, unix: &str) -> bool {
    const FIELDS_WITHOUT_NAME: usize = 7;
    let count = |line: &str, name: &str| {
        let counts = sockstat.lines().find_map(|found| found.strip_prefix(line)).unwrap_or("");
        counts.split_whitespace().skip_while(|word| *word != name).nth(1).map(str::to_owned)
    };
    let counts =
        [count("TCP:", "inuse"), count("TCP:", "tw"), count("UDP:", "inuse"), count("RAW:", "inuse")];
    let mut sockets = unix.lines();
    sockets.next().is_some()
        && sockets.all(|socket| socket.split_whitespace().count() == FIELDS_WITHOUT_NAME)
        && counts.iter().all(|count| count.as_deref() == Some("0"))
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
        let [sockstat, unix] =
            ["sockstat", "unix"].map(|name| kernel_file::read(format!("/proc/{pid}/net/{name}")));
        Ok(has_no_sockets(&sockstat?, &unix?) && self.new.get().is_some_and(|new| *new == traces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_the_namespace_are_told_from_those_of_the_machine() {
        let unix = "Num       RefCount Protocol Flags    Type St Inode Path\n";
        let text =
            "sockets: used 2\nTCP: inuse 0 orphan 0 tw 0 alloc 1 mem 81\nUDP: inuse 0 mem 0\nRAW: inuse 0\n";
        assert!(has_no_sockets(text, unix));
        assert!(!has_no_sockets(&text.replace("tw 0", "tw 1"), unix));
        assert!(!has_no_sockets(&text.replace("UDP: inuse 0", "UDP: inuse 1"), unix));
        let unnamed = format!("{unix}00: 00000002 00000000 00000000 0001 03 4711\n");
        assert!(has_no_sockets(text, &unnamed), "that of a guest");
        assert!(!has_no_sockets(text, &unnamed.replace("4711", "4711 @name")));
        assert!(!has_no_sockets("", unix) && !has_no_sockets(text, ""), "what is not shown is not known");
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
