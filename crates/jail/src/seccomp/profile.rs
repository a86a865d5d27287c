//! Which system calls a program may make, as data with the reason beside each group.
//!
//! The rule for a new entry: a popular package needs it, it cannot reach beyond the namespaces, and it does
//! not expose a large part of the kernel to an attacker. A call that is not listed fails with EPERM.

use libc::*;

use super::arguments::{self, Conditional};
use super::program::{Answer, Condition, Rule};

/// Allowed with any arguments.
pub(super) const ALLOWED: &[c_long] = &[
    // Reading, writing and moving data between file descriptors the program already has.
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_preadv,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_lseek,
    SYS_sendfile,
    SYS_copy_file_range,
    SYS_splice,
    SYS_tee,
    // Files: the mount tree, Landlock and permissions decide what can be reached.
    SYS_openat,
    SYS_openat2,
    SYS_close,
    SYS_dup,
    SYS_dup3,
    SYS_flock,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_statfs,
    SYS_fstatfs,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_getcwd,
    SYS_chdir,
    SYS_fchdir,
    SYS_mkdirat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_linkat,
    SYS_symlinkat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchmodat2,
    SYS_fchown,
    SYS_fchownat,
    SYS_truncate,
    SYS_ftruncate,
    SYS_utimensat,
    SYS_umask,
    SYS_sync_file_range,
    SYS_readahead,
    // Attributes of files: package tools copy them. The file systems here hold only harmless ones.
    SYS_getxattr,
    SYS_lgetxattr,
    SYS_fgetxattr,
    SYS_listxattr,
    SYS_llistxattr,
    SYS_flistxattr,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    // Waiting, timers.
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_ppoll,
    SYS_pselect6,
    SYS_eventfd2,
    SYS_signalfd4,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    SYS_pipe2,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_times,
    SYS_getitimer,
    SYS_setitimer,
    SYS_timer_create,
    SYS_timer_settime,
    SYS_timer_gettime,
    SYS_timer_getoverrun,
    SYS_timer_delete,
    // Memory of the calling process.
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_brk,
    SYS_mincore,
    SYS_mlock,
    SYS_mlock2,
    SYS_munlock,
    SYS_mlockall,
    SYS_munlockall,
    SYS_membarrier,
    SYS_pkey_alloc,
    SYS_pkey_free,
    SYS_pkey_mprotect,
    SYS_get_mempolicy,
    // Processes and threads: their number is limited elsewhere; new namespaces are refused below.
    SYS_execve,
    SYS_execveat,
    SYS_exit,
    SYS_exit_group,
    SYS_wait4,
    SYS_waitid,
    SYS_futex,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_set_tid_address,
    SYS_rseq,
    SYS_gettid,
    SYS_getpid,
    SYS_getppid,
    SYS_getpgid,
    SYS_setpgid,
    SYS_getsid,
    SYS_setsid,
    SYS_restart_syscall,
    SYS_futex_waitv,
    // Signals: the process namespace bounds which processes they reach.
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_sigaltstack,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    // Identity: only one id is mapped, so these calls can change nothing. Shells and interpreters make them.
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getresuid,
    SYS_getresgid,
    SYS_getgroups,
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_setgroups,
    SYS_capget,
    SYS_capset,
    // Scheduling of the sandbox's own processes within its share.
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_sched_getparam,
    SYS_sched_setparam,
    SYS_sched_getscheduler,
    SYS_sched_setscheduler,
    SYS_sched_getattr,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_sched_rr_get_interval,
    SYS_getpriority,
    SYS_setpriority,
    SYS_ioprio_get,
    SYS_ioprio_set,
    SYS_getcpu,
    SYS_getrusage,
    SYS_getrlimit,
    // Operations on existing sockets: the network namespace holds only loopback. Creating sockets is
    // restricted below.
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_connect,
    SYS_getsockname,
    SYS_getpeername,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_shutdown,
    // Information about the machine: dangerous parts of the answers are masked or belong to a namespace.
    SYS_uname,
    SYS_sysinfo,
    SYS_getrandom,
];

/// Allocates gigabytes of disk in an instant, before any watch can look. Where only a watch limits the disk,
/// programs write instead. Libraries do so by themselves when a file system lacks the call
/// (posix_fallocate(3)).
pub(super) const UNWATCHABLE_DISK: &[c_long] = &[SYS_fallocate];

/// Flushing files to the disk. Where all files of a sandbox are in memory, these calls succeed without
/// effect. For a file of /usr, which a program can only read, they would make the host's disk flush its
/// cache.
pub(super) const FLUSHES: &[c_long] = &[SYS_fsync, SYS_fdatasync, SYS_msync];

/// Memory that no process's figures show: allowed only where a control group counts it. The System V calls
/// act in their own namespace (databases and numeric libraries use them).
pub(super) const UNSEEN_MEMORY: &[c_long] = &[
    SYS_memfd_create,
    // One page of a pipe can keep two megabytes that no process maps any more.
    SYS_vmsplice,
    SYS_shmget,
    SYS_shmat,
    SYS_shmdt,
    SYS_shmctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_semctl,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
];

/// Allowed calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
pub(super) const ALLOWED_LEGACY: &[c_long] = &[
    SYS_open,
    SYS_creat,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_getdents,
    SYS_mkdir,
    SYS_rmdir,
    SYS_unlink,
    SYS_rename,
    SYS_link,
    SYS_symlink,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
    SYS_dup2,
    SYS_pipe,
    SYS_poll,
    SYS_select,
    SYS_epoll_create,
    SYS_epoll_wait,
    SYS_eventfd,
    SYS_signalfd,
    SYS_fork,
    SYS_vfork,
    SYS_getpgrp,
    SYS_pause,
    SYS_alarm,
    SYS_time,
    // Thread-local storage of the calling thread.
    SYS_arch_prctl,
];
#[cfg(target_arch = "aarch64")]
pub(super) const ALLOWED_LEGACY: &[c_long] = &[];

/// Libraries try these first and fall back when the kernel lacks them.
pub(super) const ABSENT: &[c_long] = &[
    // Its flags are behind a pointer, where no filter can look; libc falls back to clone.
    SYS_clone3,
    // A large interface with many vulnerabilities; libuv and others fall back to plain calls.
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    // Helps attacks on the kernel to win races; garbage collectors fall back.
    SYS_userfaultfd,
    // The system's files belong to the host: watching them shows what the host runs. Tools fall back to
    // polling.
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_inotify_rm_watch,
    // Probed by runtimes and allocators.
    SYS_landlock_create_ruleset,
    SYS_memfd_secret,
    SYS_process_madvise,
    SYS_process_mrelease,
    SYS_seccomp,
    SYS_name_to_handle_at,
    SYS_set_mempolicy,
    SYS_mbind,
    SYS_migrate_pages,
    SYS_move_pages,
    SYS_quotactl_fd,
    SYS_modify_ldt_or_absent,
];

/// Numbers that newer kernels gave or will give to calls that this list has not judged.
pub(super) const FUTURE: std::ops::Range<c_long> = 453..480;

#[cfg(target_arch = "x86_64")]
#[allow(non_upper_case_globals, reason = "named as libc names system calls")]
const SYS_modify_ldt_or_absent: c_long = SYS_modify_ldt;
#[cfg(target_arch = "aarch64")]
#[allow(non_upper_case_globals, reason = "named as libc names system calls")]
const SYS_modify_ldt_or_absent: c_long = 452;

/// Every flag of clone(2) that makes a namespace.
const CLONE_NAMESPACES: u32 = (CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET) as u32;
/// A limit that programs may not change: see `privileges::CORE_BYTES`.
const CORE_LIMIT: u32 = RLIMIT_CORE;
/// The kind of a socket without its close-on-exec and non-blocking flags.
const SOCKET_KIND: u32 = 0xf;
/// personality(2): the query, and the default personality.
const PERSONALITY_QUERY: u32 = 0xffff_ffff;

/// Calls that are allowed for some arguments only: one of the rules must hold, else the call fails with the
/// error number beside them. Every argument tested here is an `int` or `unsigned int` to the kernel (clone(2)
/// uses the low half of its flags), so testing the low 32 bits is complete. A pointer needs both halves.
pub(super) fn conditional() -> Conditional {
    let mut rules = Conditional::new();
    arguments::add(&mut rules);
    let mut when = |call, allowed: Vec<Rule>| {
        rules.insert(call, Answer::When(allowed, Vec::new(), EPERM as u16));
    };
    // Threads and processes, but no namespace: nested user namespaces open most of the kernel. Memory may be
    // shared with a thread, or with a child that the parent waits for. An address space passed from one
    // short-lived process to the next would escape accounting. So would a table of file descriptors: threads of one
    // process share theirs, and processes do not.
    let (vm, thread, vfork) = (CLONE_VM as u32, CLONE_THREAD as u32, CLONE_VFORK as u32);
    let files = CLONE_FILES as u32;
    let clones = [(vm | files, 0), (thread | files, thread | files), (vfork | thread | files, vfork)];
    when(SYS_clone, clones.map(|(mask, value)| vec![masked(0, CLONE_NAMESPACES | mask, value)]).to_vec());
    // Local sockets, TCP and UDP; no raw, packet, netlink, vsock or alg family, and no rarer protocol.
    let kind = |kind: c_int| masked(1, SOCKET_KIND, kind as u32);
    let protocol = |number: c_int| equal(2, number as u32);
    let mut sockets: Vec<Rule> = [SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET]
        .map(|wanted| vec![equal(0, AF_UNIX as u32), kind(wanted)])
        .to_vec();
    for family in [AF_INET, AF_INET6] {
        for (wanted, own_protocol) in [(SOCK_STREAM, IPPROTO_TCP), (SOCK_DGRAM, IPPROTO_UDP)] {
            for number in [0, own_protocol] {
                sockets.push(vec![equal(0, family as u32), kind(wanted), protocol(number)]);
            }
        }
    }
    when(SYS_socket, sockets);
    when(SYS_socketpair, vec![vec![equal(0, AF_UNIX as u32)]]);
    when(SYS_personality, vec![vec![equal(0, PERSONALITY_QUERY)], vec![equal(0, 0)]]);
    // Own limits only: the guest has the same user, and a program must not starve it by lowering its limits.
    // The core limit can be read, as `ulimit -a` does: the pointer to a new value is null.
    let read_core = vec![equal(0, 0), equal(1, CORE_LIMIT), equal(2, 0), Condition::HighZero { argument: 2 }];
    when(SYS_prlimit64, vec![vec![equal(0, 0), differs(1, CORE_LIMIT)], read_core]);
    when(SYS_setrlimit, vec![vec![differs(0, CORE_LIMIT)]]);
    // Pipes, sockets and plain files. The kernel also refuses devices, because the process lacks the
    // capability.
    let nodes =
        |argument| [0, S_IFREG, S_IFIFO, S_IFSOCK].map(|kind| vec![masked(argument, S_IFMT, kind)]).to_vec();
    when(SYS_mknodat, nodes(2));
    #[cfg(target_arch = "x86_64")]
    when(SYS_mknod, nodes(1));
    rules
}

pub(super) fn equal(argument: u8, value: u32) -> Condition {
    Condition::MaskedEqual { argument, mask: u32::MAX, value }
}

fn differs(argument: u8, value: u32) -> Condition {
    Condition::Differs { argument, value }
}

pub(super) fn masked(argument: u8, mask: u32, value: u32) -> Condition {
    Condition::MaskedEqual { argument, mask, value }
}

pub(super) fn one_of(argument: u8, values: &'static [u32]) -> Condition {
    Condition::OneOf { argument, values }
}
