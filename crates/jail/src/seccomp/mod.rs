//! The system-call filter: compiled once per spawner, installed last in every jail.
//!
//! A call that is not listed fails with EPERM. Calls whose absence libraries probe for fail with ENOSYS. A
//! call of a foreign architecture kills the process. The lists are data in [`profile`]; [`program`] assembles
//! the BPF program.

mod arguments;
mod profile;
mod program;

use std::collections::BTreeMap;
use std::io;

use seccompiler::BpfProgram;

use self::program::{Answer, PRETEND};
use crate::breach::Wall;

/// AUDIT_ARCH_* of linux/audit.h.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// Allowed calls that may hold a file while they wait, though its descriptor is closed meanwhile. Without flock(2) and
/// fcntl(2): many ordinary programs wait for a lock.
pub const HOLDING_CALLS: [libc::c_long; 5] =
    [libc::SYS_sendfile, libc::SYS_splice, libc::SYS_tee, libc::SYS_sendmsg, libc::SYS_sendmmsg];

/// How much of a sandbox's memory the host can account for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// A control group counts all of it.
    Counted,
    /// Only what the figures of its processes show.
    Shown,
}

/// What limits the disk of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    /// Its file system.
    Limited,
    /// The host, which measures it periodically.
    Watched,
}

/// Every kind of sandbox.
const KINDS: [(Memory, Disk); 4] = [
    (Memory::Counted, Disk::Limited),
    (Memory::Counted, Disk::Watched),
    (Memory::Shown, Disk::Limited),
    (Memory::Shown, Disk::Watched),
];

/// The compiled filters, one for each kind of sandbox. A sandbox installs exactly one. The kernel frees it
/// when the sandbox ends, and freeing the filters of many sandboxes at once is work that the whole kernel
/// shares.
pub(crate) struct Filter {
    programs: [BpfProgram; KINDS.len()],
}

impl Filter {
    /// Compiles the lists.
    pub(crate) fn compile() -> Self {
        Self { programs: KINDS.map(|(memory, disk)| program::assemble(ARCH, &answers(memory, disk))) }
    }

    fn program(&self, memory: Memory, disk: Disk) -> &BpfProgram {
        let index = KINDS.iter().position(|kind| *kind == (memory, disk)).unwrap_or(KINDS.len() - 1);
        &self.programs[index]
    }

    /// Puts this process and all its children behind the filter, irrevocably.
    pub(crate) fn install(&self, memory: Memory, disk: Disk) -> io::Result<()> {
        if Wall::Seccomp.off() {
            return Ok(());
        }
        seccompiler::apply_filter(self.program(memory, disk)).map_err(io::Error::other)
    }
}

fn answers(memory: Memory, disk: Disk) -> BTreeMap<u32, Answer> {
    let number = |call: libc::c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let allowed =
        profile::ALLOWED.iter().chain(profile::ALLOWED_LEGACY).map(|call| (number(*call), Answer::Allow));
    let conditional = profile::conditional();
    let absent = profile::ABSENT.iter().copied().chain(profile::FUTURE);
    let absent = absent.map(|call| (call, Answer::Refuse(libc::ENOSYS as u16)));
    let unwatchable = match disk {
        Disk::Limited => Answer::Allow,
        Disk::Watched => Answer::Refuse(libc::EOPNOTSUPP as u16),
    };
    let unwatchable = profile::UNWATCHABLE_DISK.iter().map(|call| (*call, unwatchable.clone()));
    let unseen = match memory {
        Memory::Counted => Answer::Allow,
        Memory::Shown => Answer::Refuse(libc::ENOSYS as u16),
    };
    let unseen = profile::UNSEEN_MEMORY.iter().map(|call| (*call, unseen.clone()));
    let flushes = match disk {
        Disk::Limited => Answer::Refuse(PRETEND),
        Disk::Watched => Answer::Allow,
    };
    let flushes = profile::FLUSHES.iter().map(|call| (*call, flushes.clone()));
    let others = conditional.into_iter().chain(absent).chain(flushes).chain(unwatchable).chain(unseen);
    allowed.chain(others.map(|(call, answer)| (number(call), answer))).collect()
}

#[cfg(test)]
mod tests {
    use seccompiler::{
        SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        TargetArch,
    };

    use super::program::{Condition, emulator};
    use super::*;

    #[cfg(target_arch = "x86_64")]
    const TARGET: TargetArch = TargetArch::x86_64;
    #[cfg(target_arch = "aarch64")]
    const TARGET: TargetArch = TargetArch::aarch64;
    const EPERM: u32 = 0x0005_0000 | libc::EPERM as u32;
    const ENOSYS: u32 = 0x0005_0000 | libc::ENOSYS as u32;
    const ALLOW: u32 = 0x7fff_0000;
    /// The call succeeds without effect.
    const DONE: u32 = 0x0005_0000 | PRETEND as u32;

    fn answer(call: libc::c_long, arguments: [u64; 6]) -> u32 {
        answer_of(Memory::Counted, Disk::Limited, call, arguments)
    }

    fn answer_of(memory: Memory, disk: Disk, call: libc::c_long, arguments: [u64; 6]) -> u32 {
        emulator::run(Filter::compile().program(memory, disk), ARCH, call as u32, arguments)
    }

    fn refused(errno: i32) -> u32 {
        0x0005_0000 | errno as u32
    }

    /// Converts one rule to rules of seccompiler, which has no lists of values.
    fn as_rules(rule: &[Condition]) -> Vec<SeccompRule> {
        let mut alternatives = vec![Vec::new()];
        for condition in rule {
            const HIGH: u64 = 0xffff_ffff_0000_0000;
            let mut length = SeccompCmpArgLen::Dword;
            let (argument, choices): (u8, Vec<(SeccompCmpOp, u32)>) = match *condition {
                Condition::MaskedEqual { argument, mask, value } => {
                    (argument, vec![(SeccompCmpOp::MaskedEq(u64::from(mask)), value)])
                }
                Condition::Differs { argument, value } => (argument, vec![(SeccompCmpOp::Ne, value)]),
                Condition::OneOf { argument, values } => {
                    (argument, values.iter().map(|value| (SeccompCmpOp::Eq, *value)).collect())
                }
                Condition::HighZero { argument } => {
                    length = SeccompCmpArgLen::Qword;
                    (argument, vec![(SeccompCmpOp::MaskedEq(HIGH), 0)])
                }
            };
            let with = |begun: &Vec<SeccompCondition>, (operator, value): &(SeccompCmpOp, u32)| {
                let last =
                    SeccompCondition::new(argument, length.clone(), operator.clone(), u64::from(*value));
                begun.iter().cloned().chain([last.unwrap()]).collect::<Vec<_>>()
            };
            alternatives = choices
                .iter()
                .flat_map(|choice| alternatives.iter().map(|begun| with(begun, choice)))
                .collect();
        }
        alternatives.into_iter().map(|conditions| SeccompRule::new(conditions).unwrap()).collect()
    }

    /// The same lists compiled by seccompiler, which has a single refusal for all calls.
    fn oracle(answers: &BTreeMap<u32, Answer>) -> BpfProgram {
        let mut allowed = BTreeMap::new();
        for (number, answer) in answers {
            match answer {
                Answer::Allow => drop(allowed.insert(i64::from(*number), Vec::new())),
                Answer::When(rules, ..) => {
                    allowed
                        .insert(i64::from(*number), rules.iter().flat_map(|rule| as_rules(rule)).collect());
                }
                Answer::Refuse(_) => {}
            }
        }
        let otherwise = SeccompAction::Errno(libc::EPERM as u32);
        let filter = SeccompFilter::new(allowed, otherwise, SeccompAction::Allow, TARGET).unwrap();
        BpfProgram::try_from(filter).unwrap()
    }

    #[test]
    fn only_what_no_watch_can_follow_is_refused_where_the_disk_is_watched() {
        for memory in [Memory::Counted, Memory::Shown] {
            for call in 0..1024 {
                let [limited, watched] =
                    [Disk::Limited, Disk::Watched].map(|disk| answer_of(memory, disk, call, [0; 6]));
                if call == libc::SYS_fallocate {
                    assert_eq!((limited, watched), (ALLOW, refused(libc::EOPNOTSUPP)));
                } else if profile::FLUSHES.contains(&call) {
                    assert_eq!((limited, watched), (DONE, ALLOW));
                } else {
                    assert_eq!(limited, watched, "call {call}");
                }
            }
        }
    }

    #[test]
    fn every_answer_is_the_one_seccompiler_gives() {
        let filter = Filter::compile();
        for (memory, disk) in KINDS {
            let answers = answers(memory, disk);
            compare(filter.program(memory, disk), &oracle(&answers), &answers);
        }
    }

    fn compare(program: &BpfProgram, oracle: &BpfProgram, answers: &BTreeMap<u32, Answer>) {
        let mut interesting = vec![0, 1, 16, 0x1000, 0x6000, 0xc000, 0x1000_0000, 1 << 32, u64::MAX];
        for number in (0..1100).chain([0x4000_0000, 0x4000_0001, 0x7fff_ffff, 0x8000_0000, u32::MAX]) {
            let values = match answers.get(&number) {
                Some(Answer::When(rules, pretended, _)) => {
                    values_near(&[&rules[..], &pretended[..]].concat())
                }
                _ => Vec::new(),
            };
            let kept = interesting.len();
            interesting.extend(values);
            for first in &interesting {
                for second in &interesting {
                    let arguments = [*first, *second, *second, *first, 0, *second];
                    let ours = emulator::run(program, ARCH, number, arguments);
                    let theirs = match emulator::run(oracle, ARCH, number, arguments) {
                        ALLOW => ALLOW,
                        _ => match answers.get(&number) {
                            // Other tests tell these from refusals.
                            Some(Answer::When(_, pretended, _)) if ours == DONE && !pretended.is_empty() => {
                                DONE
                            }
                            Some(Answer::Refuse(errno) | Answer::When(_, _, errno)) => {
                                refused(i32::from(*errno))
                            }
                            _ => EPERM,
                        },
                    };
                    assert_eq!(ours, theirs, "call {number} with {first:#x}, {second:#x}");
                    // Levels and options of sockets are the second and third argument.
                    let arguments = [0, *first, *second, 0, 0, 0];
                    let of = |program| emulator::run(program, ARCH, number, arguments) == ALLOW;
                    assert_eq!(of(program), of(oracle), "call {number} with 0, {first:#x}, {second:#x}");
                }
            }
            interesting.truncate(kept);
        }
    }

    /// The values that rules compare with, their neighbours, and the same values with higher bits that the
    /// kernel ignores.
    fn values_near(rules: &[Vec<Condition>]) -> Vec<u64> {
        let values = rules.iter().flatten().flat_map(|condition| match condition {
            Condition::MaskedEqual { value, .. } | Condition::Differs { value, .. } => vec![*value],
            Condition::OneOf { values, .. } => values.to_vec(),
            Condition::HighZero { .. } => vec![0],
        });
        let near = |value: u64| [value.wrapping_sub(1), value, value + 1, value | 1 << 40];
        values.flat_map(|value| near(u64::from(value))).collect()
    }

    #[test]
    fn another_architecture_is_killed() {
        const I386: u32 = 0x4000_0003;
        for program in Filter::compile().programs {
            assert_eq!(emulator::run(&program, I386, 0, [0; 6]), 0x8000_0000);
        }
    }

    #[test]
    fn it_fits_the_kernel() {
        const BPF_MAXINSNS: usize = 4096;
        for program in Filter::compile().programs {
            assert!(program.len() <= BPF_MAXINSNS);
        }
    }

    #[test]
    fn no_call_is_listed_twice() {
        let conditional = profile::conditional();
        let mut seen = std::collections::BTreeSet::new();
        let lists = profile::ALLOWED
            .iter()
            .chain(profile::ALLOWED_LEGACY)
            .chain(profile::ABSENT)
            .chain(profile::UNSEEN_MEMORY)
            .chain(profile::UNWATCHABLE_DISK)
            .chain(profile::FLUSHES)
            .chain(conditional.keys());
        for number in lists {
            assert!(seen.insert(*number), "call {number} is listed twice");
        }
    }

    #[test]
    fn arguments_decide_where_they_must() {
        let with = |call, first, second| answer(call, [first, second, 0, 0, 0, 0]);
        assert_eq!(with(libc::SYS_clone, libc::CLONE_NEWUSER as u64, 0), EPERM);
        assert_eq!(with(libc::SYS_clone, libc::SIGCHLD as u64, 0), ALLOW);
        assert_eq!(
            with(libc::SYS_clone, (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64, 0),
            ALLOW
        );
        let thread = libc::CLONE_VM | libc::CLONE_THREAD;
        assert_eq!(with(libc::SYS_clone, (thread | libc::CLONE_FILES) as u64, 0), ALLOW);
        for apart in [
            thread,
            thread | libc::CLONE_VFORK,
            libc::CLONE_FILES | libc::SIGCHLD,
            libc::CLONE_FILES | libc::CLONE_VM | libc::CLONE_VFORK,
        ] {
            assert_eq!(with(libc::SYS_clone, apart as u64, 0), EPERM, "{apart:#x}");
        }
        let closes = |flags| answer(libc::SYS_close_range, [3, u64::from(u32::MAX), flags, 0, 0, 0]);
        assert_eq!((closes(0), closes(4)), (ALLOW, ALLOW));
        const EINVAL: u32 = 0x0005_0000 | libc::EINVAL as u32;
        assert_eq!((closes(2), closes(6)), (EINVAL, EINVAL));
        assert_eq!(with(libc::SYS_clone, (libc::CLONE_VM | libc::SIGCHLD) as u64, 0), EPERM);
        assert_eq!(with(libc::SYS_socket, libc::AF_NETLINK as u64, libc::SOCK_RAW as u64), EPERM);
        assert_eq!(with(libc::SYS_socket, libc::AF_INET as u64, libc::SOCK_RAW as u64), EPERM);
        assert_eq!(
            with(libc::SYS_socket, libc::AF_INET as u64, (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64),
            ALLOW
        );
        assert_eq!(with(libc::SYS_prlimit64, 1, 7), EPERM);
        let core = |new: u64| answer(libc::SYS_prlimit64, [0, u64::from(libc::RLIMIT_CORE), new, 0, 0, 0]);
        assert_eq!(core(0), ALLOW, "the limit can be read");
        assert_eq!((core(0x1000), core(1 << 32), core(1 << 63)), (EPERM, EPERM, EPERM), "but not set");
        assert_eq!(with(libc::SYS_clone3, 0, 0), ENOSYS);
    }

    #[test]
    fn socket_options_are_an_allow_list() {
        let option = |call, level: i32, name: i32| {
            answer(call, [3, level as u64 | 1 << 40, name as u64 | 1 << 40, 0, 0, 0])
        };
        let set = |level, name| option(libc::SYS_setsockopt, level, name);
        let unknown = refused(libc::ENOPROTOOPT);
        for name in [
            libc::SO_ATTACH_FILTER,
            libc::SO_ATTACH_BPF,
            libc::SO_LOCK_FILTER,
            libc::SO_ATTACH_REUSEPORT_CBPF,
        ] {
            assert_eq!(set(libc::SOL_SOCKET, name), unknown);
        }
        for join in [libc::MCAST_JOIN_GROUP, libc::MCAST_JOIN_SOURCE_GROUP] {
            assert_eq!((set(libc::IPPROTO_IPV6, join), set(libc::IPPROTO_IP, join)), (unknown, unknown));
        }
        assert_eq!(set(libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP), unknown);
        assert_eq!(set(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP), unknown);
        assert_eq!(set(libc::IPPROTO_IP, libc::IP_ADD_SOURCE_MEMBERSHIP), unknown);
        assert_eq!(set(libc::IPPROTO_TCP, libc::TCP_LINGER2), unknown);
        assert_eq!(set(libc::IPPROTO_TCP, libc::TCP_ULP), unknown);
        assert_eq!(set(libc::SOL_UDP, 100), unknown);
        assert_eq!(set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), ALLOW);
        assert_eq!(set(libc::IPPROTO_IP, libc::IP_TTL), ALLOW);
        assert_eq!(set(libc::IPPROTO_TCP, libc::TCP_NODELAY), ALLOW);
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_ERROR), unknown);
        assert_eq!(option(libc::SYS_getsockopt, libc::SOL_SOCKET, libc::SO_ERROR), ALLOW);
        assert_eq!(option(libc::SYS_getsockopt, libc::SOL_SOCKET, SO_NETNS_COOKIE), unknown);
    }

    const SO_NETNS_COOKIE: i32 = 71;

    #[test]
    fn what_would_disturb_others_succeeds_without_effect_where_programs_count_on_it() {
        let set =
            |name: i32| answer(libc::SYS_setsockopt, [3, libc::SOL_SOCKET as u64, name as u64, 0, 0, 0]);
        assert_eq!((set(libc::SO_BROADCAST), set(libc::SO_LINGER)), (DONE, DONE));
        let advice = |number: i32| answer(libc::SYS_fadvise64, [3, 0, 0, number as u64, 0, 0]);
        assert_eq!(advice(libc::POSIX_FADV_DONTNEED), DONE);
        assert_eq!(advice(libc::POSIX_FADV_SEQUENTIAL), ALLOW);
        let read = |flags: i32| answer(libc::SYS_preadv2, [3, 0, 1, 0, 0, flags as u64]);
        assert_eq!((read(0), read(libc::RWF_NOWAIT)), (ALLOW, refused(libc::EOPNOTSUPP)));
        for call in profile::FLUSHES {
            assert_eq!(
                answer_of(Memory::Counted, Disk::Limited, *call, [0; 6]),
                DONE,
                "all files are memory"
            );
            assert_eq!(answer_of(Memory::Counted, Disk::Watched, *call, [0; 6]), ALLOW);
        }
    }

    #[test]
    fn requests_commands_and_process_options_are_allow_lists() {
        let with = |call, first, second, third| answer(call, [first, second, third, 0, 0, 0]);
        assert_eq!(with(libc::SYS_ioctl, 0, libc::TIOCSTI, 0), refused(libc::ENOTTY));
        // The kernel looks at 32 bits of the request, and so does the filter.
        assert_eq!(with(libc::SYS_ioctl, 0, libc::TIOCSTI | 1 << 40, 0), refused(libc::ENOTTY));
        assert_eq!(with(libc::SYS_ioctl, 0, libc::TCGETS, 0), ALLOW);
        let command = |number: i32, argument: i32| with(libc::SYS_fcntl, 0, number as u64, argument as u64);
        for number in [libc::F_NOTIFY, libc::F_SETLEASE, libc::F_GETLEASE, libc::F_SETPIPE_SZ, libc::F_SETOWN]
        {
            assert_eq!(command(number, 0), refused(libc::EINVAL));
        }
        assert_eq!(command(libc::F_SETFL, libc::O_NONBLOCK), ALLOW);
        assert_eq!(command(libc::F_SETFL, libc::O_NONBLOCK | libc::O_ASYNC), refused(libc::EINVAL));
        assert_eq!(command(libc::F_GETFL, libc::O_ASYNC), ALLOW);
        let process = |option: i32| with(libc::SYS_prctl, option as u64, 0, 0);
        assert_eq!(process(libc::PR_SET_SECCOMP), refused(libc::EINVAL));
        assert_eq!(process(libc::PR_SET_NAME), ALLOW);
        assert_eq!(process(libc::PR_SET_DUMPABLE), ALLOW);
    }

    #[test]
    fn memory_that_no_process_shows_is_refused_where_no_group_counts_it() {
        assert_eq!(answer_of(Memory::Shown, Disk::Limited, libc::SYS_vmsplice, [0; 6]), ENOSYS);
    }

    #[test]
    fn calls_that_reach_the_kernel_of_the_host_are_not_listed() {
        let never = [
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_chroot,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_ptrace,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_userfaultfd,
            libc::SYS_kexec_load,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_swapoff,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_open_by_handle_at,
            libc::SYS_fsopen,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_mount_setattr,
            libc::SYS_clock_settime,
            libc::SYS_settimeofday,
            libc::SYS_sethostname,
            libc::SYS_syslog,
            libc::SYS_quotactl,
            libc::SYS_acct,
            libc::SYS_fanotify_init,
            libc::SYS_pidfd_getfd,
            libc::SYS_kcmp,
            libc::SYS_clone3,
            libc::SYS_seccomp,
        ];
        for call in never {
            let given = answer(call, [0; 6]);
            assert!(given == EPERM || given == ENOSYS, "call {call} answers {given:#x}");
        }
    }
}
