//! Reuse of network namespaces.
//!
//! Creating and removing a network namespace is the most expensive part of a sandbox for the kernel, and most
//! programs never use theirs. A namespace in which nothing happened, and which has no processes left, is as
//! good as a new one. The host verifies this instead of assuming it: before a program is sent, it compares
//! what the kernel shows of the reused namespace with what it showed of a new one.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::free::Free;
use super::kernel_file;

/// How long no namespace is kept after one failed the comparison.
const PAUSE: Duration = Duration::from_secs(1);

/// Files of /proc/PID/net that show what happened in a namespace: packets of every interface; counters of
/// every protocol, which include attempts; flow labels, which outlive their sockets for a while. (`netstat`
/// counts only the effects of packets.)
const TRACES: [&str; 4] = ["dev", "snmp", "snmp6", "ip6_flowlabel"];
/// Files about sockets: how many of each protocol there are, and the local ones one by one.
const SOCKETS: [&str; 3] = ["sockstat", "sockstat6", "unix"];

/// A network namespace that is held open, with the files that show it. The files keep showing it
/// independently of the processes in it. Opening them is the most expensive part of a look.
pub(super) struct Network {
    namespace: OwnedFd,
    traces: [Option<OwnedFd>; TRACES.len()],
    sockets: [Option<OwnedFd>; SOCKETS.len()],
}

impl Network {
    /// The network namespace of a process.
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        Ok(Self {
            namespace: kernel_file::open(Path::new(&format!("/proc/{pid}/ns/net")))?,
            traces: opened(pid, TRACES)?,
            sockets: opened(pid, SOCKETS)?,
        })
    }

    pub(super) fn namespace(&self) -> &OwnedFd {
        &self.namespace
    }

    pub(super) fn into_namespace(self) -> OwnedFd {
        self.namespace
    }

    /// Whether a process is in this namespace.
    pub(super) fn is_of(&self, pid: i32) -> io::Result<bool> {
        let (own, theirs) =
            (rustix::fs::fstat(&self.namespace)?, rustix::fs::stat(format!("/proc/{pid}/ns/net"))?);
        Ok((own.st_dev, own.st_ino) == (theirs.st_dev, theirs.st_ino))
    }

    fn traces(&self) -> io::Result<Traces> {
        self.traces.iter().map(shown).collect::<io::Result<_>>().map(Traces)
    }

    fn sockets(&self) -> io::Result<Sockets> {
        let [four, six, unix] = &self.sockets;
        Ok(Sockets { counts: [shown(four)?, shown(six)?], unix: shown(unix)? })
    }
}

/// Opens files of /proc/PID/net. A kernel without IPv6 has none of the IPv6 files.
fn opened<const N: usize>(pid: i32, names: [&str; N]) -> io::Result<[Option<OwnedFd>; N]> {
    let mut files = [const { None }; N];
    for (place, name) in files.iter_mut().zip(names) {
        let is_of_ipv6 = name.ends_with('6') || name.starts_with("ip6");
        *place = match kernel_file::open(Path::new(&format!("/proc/{pid}/net/{name}"))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_of_ipv6 => None,
            opened => Some(opened?),
        };
    }
    Ok(files)
}

fn shown(file: &Option<OwnedFd>) -> io::Result<String> {
    file.as_ref().map_or(Ok(String::new()), kernel_file::read_again)
}

/// What can be observed of a network namespace from outside, except what it shares with others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Traces(Vec<String>);

/// The content of the files about sockets.
struct Sockets {
    counts: [String; 2],
    unix: String,
}

impl Sockets {
    /// Whether there are only the two sockets of a guest, which have no name, and no connections in
    /// TIME_WAIT. A socket of a dead process that is in transit to another process shows up through the local
    /// sockets that hold it.
    fn are_those_of_a_guest(&self) -> bool {
        const OF_A_GUEST: usize = 2;
        const FIELDS_WITHOUT_NAME: usize = 7;
        let counts = self.counts.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once(':'));
        // The other figures cover the whole machine.
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

/// The free network namespaces of one zygote's sandboxes. Those of another zygote cannot be entered, because
/// they belong to another user namespace.
#[derive(Default)]
pub(super) struct Networks {
    free: Arc<Free<Network>>,
    new: OnceLock<Traces>,
    not_before: Mutex<Option<Instant>>,
}

impl Networks {
    /// A namespace without processes.
    pub(super) fn take(&self) -> Option<Network> {
        self.free.take(|_| true)
    }

    /// Takes back a namespace whose processes are all dead. Returns it if it is not kept.
    pub(super) fn put(&self, network: Network) -> Option<Network> {
        let is_pause = self.not_before().is_some_and(|begin| Instant::now() < begin);
        if self.new.get().is_none() || is_pause { Some(network) } else { self.free.put(network) }
    }

    fn not_before(&self) -> MutexGuard<'_, Option<Instant>> {
        self.not_before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the free namespaces after one failed the comparison, and keeps none for a while, because each
    /// failure costs a sandbox.
    pub(super) fn forget(&self) {
        self.free.clear();
        *self.not_before() = Some(Instant::now() + PAUSE);
    }

    /// Records what a new namespace looks like.
    pub(super) fn learn(&self, new: &Network) -> io::Result<()> {
        if self.new.get().is_none() {
            let traces = new.traces()?;
            self.new.get_or_init(|| traces);
        }
        Ok(())
    }

    /// Whether it looks like a new namespace with a guest inside.
    pub(super) fn is_as_new(&self, network: &Network) -> io::Result<bool> {
        let is_free = network.sockets()?.are_those_of_a_guest();
        let traces = network.traces()?;
        Ok(is_free && self.new.get().is_some_and(|new| *new == traces))
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;

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
        let pid = i32::try_from(std::process::id()).unwrap();
        let any = || Network::of(pid).unwrap();
        assert!(networks.put(any()).is_some());
        assert!(!networks.is_as_new(&any()).unwrap());
        networks.learn(&any()).unwrap();
        assert!(networks.put(any()).is_none());
        assert!(networks.take().is_some() && networks.take().is_none());
        assert!(networks.put(any()).is_none());
        networks.forget();
        assert!(networks.take().is_none());
        assert!(networks.put(any()).is_some(), "one is kept at once");
    }

    #[test]
    fn files_that_are_open_show_what_is_there_now() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let network = Network::of(pid).unwrap();
        assert!(network.is_of(pid).unwrap());
        let name = format!("palisade-{pid}");
        assert!(!network.sockets().unwrap().unix.contains(&name));
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
        assert!(network.sockets().unwrap().unix.contains(&name));
        assert!(network.traces().unwrap().0[0].contains("lo:"));
    }
}
