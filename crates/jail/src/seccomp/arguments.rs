//! Which options, requests and commands the multiplexed system calls accept, as data with the reason beside
//! each group.
//!
//! `setsockopt`, `getsockopt`, `prctl`, `ioctl` and `fcntl` are many system calls in one. Each has an
//! allow-list: what ordinary programs were observed to need, and nothing that the kernel shares between
//! sandboxes without accounting. Anything else returns the error that the kernel gives for an unknown option,
//! so that libraries fall back.

use std::collections::BTreeMap;

use libc::*;

use super::profile::{equal, masked, one_of};
use super::program::{Answer, Condition, Rule};

/// Answers by call.
pub(super) type Conditional = BTreeMap<c_long, Answer>;

/// Adds the calls of this file.
pub(super) fn add(rules: &mut Conditional) {
    let (settable, readable) = (options(&SETTABLE), options(&READABLE));
    let readable = [settable.clone(), readable].concat();
    let pretended = vec![vec![equal(1, SOL_SOCKET as u32), one_of(2, PRETENDED)]];
    rules.insert(SYS_getsockopt, Answer::When(readable, Vec::new(), ENOPROTOOPT as u16));
    rules.insert(SYS_setsockopt, Answer::When(settable, pretended, ENOPROTOOPT as u16));
    let mut allow = |call, allowed, errno: c_int| {
        rules.insert(call, Answer::When(allowed, Vec::new(), errno as u16));
    };
    allow(SYS_ioctl, vec![vec![one_of(1, REQUESTS)]], ENOTTY);
    allow(SYS_prctl, vec![vec![one_of(0, PROCESS_OPTIONS)]], EINVAL);
    allow(SYS_fcntl, commands(), EINVAL);
    // A thread must not get its own table of descriptors (CLOSE_RANGE_UNSHARE).
    allow(SYS_close_range, vec![vec![one_of(2, &[0, CLOSE_RANGE_CLOEXEC])]], EINVAL);
    // RWF_NOWAIT reveals whether any process on the host has recently read a file of /usr.
    allow(SYS_preadv2, vec![vec![masked(5, RWF_NOWAIT as u32, 0)]], EOPNOTSUPP);
    // Advice that a file is not needed evicts it from the page cache, which all sandboxes share. Advice may
    // be ignored.
    let kept = vec![vec![one_of(3, ADVICE)]];
    let ignored = vec![vec![equal(3, POSIX_FADV_DONTNEED as u32)]];
    rules.insert(SYS_fadvise64, Answer::When(kept, ignored, EINVAL as u16));
}

/// Socket options by level.
type Options = [(c_int, &'static [u32]); 4];

fn options(table: &Options) -> Vec<Rule> {
    let rule = |(level, names): &(c_int, &'static [u32])| vec![equal(1, *level as u32), one_of(2, names)];
    table.iter().map(rule).collect()
}

/// setsockopt(2). Absent on purpose:
///
/// - `SO_ATTACH_FILTER` and its relatives: compiled filters live in memory that the whole kernel shares.
///   Freeing thousands of them at once can deadlock the kernel permanently (seen on 6.18).
/// - Options that switch code of the whole kernel when the first or last socket uses them (`SO_TIMESTAMP*`,
///   `IP_MINTTL`, `UDP_ENCAP`, `TCP_MD5SIG`), pin pages (`SO_ZEROCOPY`), or take from tables of the whole
///   host (IPv6 flow labels).
/// - `TCP_LINGER2`: keeps closed connections among the host's orphans. `TCP_ULP`, `SO_TXTIME`: rare kernel
///   code.
/// - Joining a multicast group: the kernel could send the report after the network namespace has been handed
///   to another sandbox (docs/decisions/0013).
const SETTABLE: Options = [
    (
        SOL_SOCKET,
        &[
            SO_REUSEADDR as u32,
            SO_REUSEPORT as u32,
            SO_SNDBUF as u32,
            SO_RCVBUF as u32,
            SO_KEEPALIVE as u32,
            SO_OOBINLINE as u32,
            SO_PASSCRED as u32,
            SO_RCVLOWAT as u32,
            SO_RCVTIMEO as u32,
            SO_SNDTIMEO as u32,
        ],
    ),
    (
        IPPROTO_TCP,
        &[
            TCP_NODELAY as u32,
            TCP_CORK as u32,
            TCP_KEEPIDLE as u32,
            TCP_KEEPINTVL as u32,
            TCP_KEEPCNT as u32,
            TCP_DEFER_ACCEPT as u32,
            TCP_QUICKACK as u32,
            TCP_USER_TIMEOUT as u32,
            TCP_NOTSENT_LOWAT as u32,
        ],
    ),
    (
        IPPROTO_IP,
        &[
            IP_TOS as u32,
            IP_TTL as u32,
            IP_PKTINFO as u32,
            IP_MTU_DISCOVER as u32,
            IP_RECVERR as u32,
            IP_RECVTTL as u32,
            IP_RECVTOS as u32,
            IP_BIND_ADDRESS_NO_PORT as u32,
            IP_MULTICAST_IF as u32,
            IP_MULTICAST_TTL as u32,
            IP_MULTICAST_LOOP as u32,
        ],
    ),
    (
        IPPROTO_IPV6,
        &[
            IPV6_V6ONLY as u32,
            IPV6_UNICAST_HOPS as u32,
            IPV6_RECVPKTINFO as u32,
            IPV6_MTU_DISCOVER as u32,
            IPV6_RECVERR as u32,
            IPV6_RECVHOPLIMIT as u32,
            IPV6_RECVTCLASS as u32,
            IPV6_TCLASS as u32,
            IPV6_MULTICAST_IF as u32,
            IPV6_MULTICAST_HOPS as u32,
            IPV6_MULTICAST_LOOP as u32,
        ],
    ),
];

/// Options that runtimes set on their own, and that succeed without effect. `SO_BROADCAST`: one broadcast
/// packet occupies the kernel for every socket that receives it. `SO_LINGER`: the kernel waits when it closes
/// a socket on behalf of no process.
const PRETENDED: &[u32] = &[SO_BROADCAST as u32, SO_LINGER as u32];

/// posix_fadvise(2), except `POSIX_FADV_DONTNEED`.
const ADVICE: &[u32] = &[
    POSIX_FADV_NORMAL as u32,
    POSIX_FADV_RANDOM as u32,
    POSIX_FADV_SEQUENTIAL as u32,
    POSIX_FADV_WILLNEED as u32,
    POSIX_FADV_NOREUSE as u32,
];

/// Options that getsockopt(2) reads in addition, about the socket itself. Absent: `SO_COOKIE` and
/// `SO_NETNS_COOKIE`, which number the sockets and namespaces of the whole machine; `TCP_ZEROCOPY_RECEIVE`,
/// which maps pages of the kernel.
const READABLE: Options = [
    (
        SOL_SOCKET,
        &[
            SO_TYPE as u32,
            SO_ERROR as u32,
            SO_ACCEPTCONN as u32,
            SO_DOMAIN as u32,
            SO_PROTOCOL as u32,
            SO_PEERCRED as u32,
            SO_BROADCAST as u32,
            SO_LINGER as u32,
        ],
    ),
    (IPPROTO_TCP, &[TCP_MAXSEG as u32, TCP_INFO as u32, TCP_CONGESTION as u32]),
    (IPPROTO_IP, &[IP_MTU as u32]),
    (IPPROTO_IPV6, &[IPV6_MTU as u32]),
];

// Requests that libc has no name for; see asm-generic/ioctls.h and linux/termios.h.
const TCGETS2_NUMBER: u32 = 0x802c_542a;
const TCSETS2_NUMBER: u32 = 0x402c_542b;
const TCSETSW2_NUMBER: u32 = 0x402c_542c;
const TCSETSF2_NUMBER: u32 = 0x402c_542d;
const TIOCGPTLCK_NUMBER: u32 = 0x8004_5439;

/// ioctl(2): the sandbox's terminals, the number of readable bytes, descriptor flags, network interfaces
/// (loopback). Absent: injecting input (`TIOCSTI`), requests that name or map the host's disk
/// (`FS_IOC_GETFSUUID`, `FS_IOC_GETFSLABEL`, `FS_IOC_GETFSMAP`, `FIEMAP`), copies that share blocks
/// (`FICLONE`), and every driver's own requests.
const REQUESTS: &[u32] = &[
    TCGETS as u32,
    TCSETS as u32,
    TCSETSW as u32,
    TCSETSF as u32,
    TCGETS2_NUMBER,
    TCSETS2_NUMBER,
    TCSETSW2_NUMBER,
    TCSETSF2_NUMBER,
    TCSBRK as u32,
    TCSBRKP as u32,
    TCXONC as u32,
    TCFLSH as u32,
    TIOCSCTTY as u32,
    TIOCNOTTY as u32,
    TIOCGPGRP as u32,
    TIOCSPGRP as u32,
    TIOCGSID as u32,
    TIOCOUTQ as u32,
    TIOCGWINSZ as u32,
    TIOCSWINSZ as u32,
    TIOCPKT as u32,
    TIOCGPTN as u32,
    TIOCSPTLCK as u32,
    TIOCGPTLCK_NUMBER,
    TIOCGPTPEER as u32,
    FIONREAD as u32,
    FIONBIO as u32,
    FIOCLEX as u32,
    FIONCLEX as u32,
    SIOCGIFNAME as u32,
    SIOCGIFCONF as u32,
    SIOCGIFFLAGS as u32,
    SIOCGIFADDR as u32,
    SIOCGIFBRDADDR as u32,
    SIOCGIFNETMASK as u32,
    SIOCGIFMTU as u32,
    SIOCGIFHWADDR as u32,
    SIOCGIFINDEX as u32,
];

/// prctl(2): names, death signals, queries. The guest itself still sets `PR_SET_DUMPABLE` behind the filter.
/// Absent: `PR_SET_SECCOMP` (memory of compiled filters, see `SO_ATTACH_FILTER`), `PR_SET_VMA` (names in
/// memory that is not accounted), `PR_SCHED_CORE`, `PR_SET_MEMORY_MERGE`, speculation and performance
/// counters.
const PROCESS_OPTIONS: &[u32] = &[
    PR_SET_PDEATHSIG as u32,
    PR_GET_PDEATHSIG as u32,
    PR_GET_DUMPABLE as u32,
    PR_SET_DUMPABLE as u32,
    PR_GET_KEEPCAPS as u32,
    PR_SET_NAME as u32,
    PR_GET_NAME as u32,
    PR_GET_SECCOMP as u32,
    PR_CAPBSET_READ as u32,
    PR_GET_SECUREBITS as u32,
    PR_SET_TIMERSLACK as u32,
    PR_GET_TIMERSLACK as u32,
    PR_SET_CHILD_SUBREAPER as u32,
    PR_GET_CHILD_SUBREAPER as u32,
    PR_SET_NO_NEW_PRIVS as u32,
    PR_GET_NO_NEW_PRIVS as u32,
    PR_SET_THP_DISABLE as u32,
    PR_GET_THP_DISABLE as u32,
    PR_GET_AUXV_NUMBER,
];
/// The auxiliary vector of the calling process; see prctl(2).
const PR_GET_AUXV_NUMBER: u32 = 0x4155_5856;

/// fcntl(2): copies and flags of file descriptors, locks, seals of memory files. Absent:
///
/// - `F_NOTIFY` and leases, which reveal who uses the files of `/usr` outside.
/// - `F_SETPIPE_SZ`, which takes from an allowance of the owner's id.
/// - Owners of signals.
/// - Locks of open file descriptions, which persist where no process shows them.
const COMMANDS: &[u32] = &[
    F_DUPFD as u32,
    F_DUPFD_CLOEXEC as u32,
    F_GETFD as u32,
    F_SETFD as u32,
    F_GETFL as u32,
    F_GETLK as u32,
    F_SETLK as u32,
    F_SETLKW as u32,
    F_GETOWN as u32,
    F_GETPIPE_SZ as u32,
    F_ADD_SEALS as u32,
    F_GET_SEALS as u32,
];

/// Status flags may be changed, but a file descriptor cannot request signals. Without owners signals have no
/// use, and each request takes kernel memory.
fn commands() -> Vec<Rule> {
    let plain: Condition = masked(2, O_ASYNC as u32, 0);
    vec![vec![one_of(1, COMMANDS)], vec![equal(1, F_SETFL as u32), plain]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_fit_the_jumps_of_a_filter_and_none_is_empty() {
        let options = SETTABLE.iter().chain(&READABLE).map(|(_, names)| *names);
        for list in options.chain([REQUESTS, PROCESS_OPTIONS, COMMANDS, PRETENDED, ADVICE]) {
            assert!(!list.is_empty() && list.len() < 200);
            let unique: std::collections::BTreeSet<_> = list.iter().collect();
            assert_eq!(unique.len(), list.len(), "a value is listed twice");
        }
    }
}
