//! The system-call filter: compiled once per spawner, installed last in every jail.
//!
//! Anything that is not listed answers EPERM; calls whose absence libraries probe for answer ENOSYS; a
//! foreign architecture is killed. The lists are data in [`profile`], the program is made in [`program`].

mod profile;
mod program;

use std::collections::BTreeMap;
use std::io;

use seccompiler::BpfProgram;

use self::program::Answer;
use crate::breach::Wall;

/// AUDIT_ARCH_* of linux/audit.h.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// What the host can see of a sandbox's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// A cgroup counts all of it.
    Counted,
    /// Only what processes show.
    Shown,
}

/// The compiled filters.
pub(crate) struct Filter {
    counted: BpfProgram,
    shown: BpfProgram,
    unwatchable: BpfProgram,
}

impl Filter {
    /// Compiles the lists.
    pub(crate) fn compile() -> Self {
        let program = |memory| program::assemble(ARCH, &answers(memory));
        let unwatchable = program::refuse(ARCH, profile::UNWATCHABLE_DISK, libc::EOPNOTSUPP as u16);
        Self { counted: program(Memory::Counted), shown: program(Memory::Shown), unwatchable }
    }

    /// For a sandbox whose disk is watched and not limited by its file system: takes away what is quicker than any
    /// watch. Comes before [`Filter::install`], which lets no other filter follow.
    pub(crate) fn install_for_watched_disk(&self) -> io::Result<()> {
        if Wall::Seccomp.off() {
            return Ok(());
        }
        seccompiler::apply_filter(&self.unwatchable).map_err(io::Error::other)
    }

    /// Puts this process and all its children behind the filter, for good.
    pub(crate) fn install(&self, memory: Memory) -> io::Result<()> {
        if Wall::Seccomp.off() {
            return Ok(());
        }
        let program = match memory {
            Memory::Counted => &self.counted,
            Memory::Shown => &self.shown,
        };
        seccompiler::apply_filter(program).map_err(io::Error::other)
    }
}

fn answers(memory: Memory) -> BTreeMap<u32, Answer> {
    let number = |call: libc::c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let allowed =
        profile::ALLOWED.iter().chain(profile::ALLOWED_LEGACY).map(|call| (number(*call), Answer::Allow));
    let conditional =
        profile::conditional().into_iter().map(|(call, rules)| (number(call), Answer::When(rules)));
    let absent = profile::ABSENT.iter().copied().chain(profile::FUTURE);
    let absent = absent.map(|call| (number(call), Answer::Refuse(libc::ENOSYS as u16)));
    let unseen = match memory {
        Memory::Counted => Answer::Allow,
        Memory::Shown => Answer::Refuse(libc::ENOSYS as u16),
    };
    let unseen = profile::UNSEEN_MEMORY.iter().map(|call| (number(*call), unseen.clone()));
    allowed.chain(conditional).chain(absent).chain(unseen).collect()
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

    fn answer(call: libc::c_long, arguments: [u64; 6]) -> u32 {
        emulator::run(&Filter::compile().counted, ARCH, call as u32, arguments)
    }

    /// The same lists through seccompiler: the allow-list, and the calls to answer ENOSYS.
    fn oracle(memory: Memory) -> [BpfProgram; 2] {
        let compile = |rules: BTreeMap<i64, Vec<SeccompRule>>, otherwise, matched| {
            BpfProgram::try_from(SeccompFilter::new(rules, otherwise, matched, TARGET).unwrap()).unwrap()
        };
        let condition = |condition: &Condition| {
            let (argument, operator, value) = match *condition {
                Condition::MaskedEqual { argument, mask, value } => {
                    (argument, SeccompCmpOp::MaskedEq(u64::from(mask)), value)
                }
                Condition::Differs { argument, value } => (argument, SeccompCmpOp::Ne, value),
            };
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(value)).unwrap()
        };
        let mut allowed = BTreeMap::new();
        let mut absent = BTreeMap::new();
        for (number, answer) in answers(memory) {
            match answer {
                Answer::Allow => drop(allowed.insert(i64::from(number), Vec::new())),
                Answer::When(rules) => {
                    let rules = rules
                        .iter()
                        .map(|rule| SeccompRule::new(rule.iter().map(condition).collect()).unwrap());
                    allowed.insert(i64::from(number), rules.collect());
                }
                Answer::Refuse(_) => drop(absent.insert(i64::from(number), Vec::new())),
            }
        }
        let errno = |number: i32| SeccompAction::Errno(number as u32);
        [
            compile(allowed, errno(libc::EPERM), SeccompAction::Allow),
            compile(absent, SeccompAction::Allow, errno(libc::ENOSYS)),
        ]
    }

    #[test]
    fn only_what_no_watch_can_follow_is_refused_where_the_disk_is_watched() {
        let program = Filter::compile().unwatchable;
        let answer = |call: libc::c_long| emulator::run(&program, ARCH, call as u32, [0; 6]);
        assert_eq!(answer(libc::SYS_fallocate), 0x0005_0000 | libc::EOPNOTSUPP as u32);
        for call in 0..1024 {
            assert_eq!(answer(call) == ALLOW, call != libc::SYS_fallocate, "call {call}");
        }
    }

    #[test]
    fn every_answer_is_the_one_seccompiler_gives() {
        let filter = Filter::compile();
        compare(&filter.counted, &oracle(Memory::Counted));
        compare(&filter.shown, &oracle(Memory::Shown));
    }

    fn compare(program: &BpfProgram, [allowed, absent]: &[BpfProgram; 2]) {
        let interesting = [
            0,
            1,
            2,
            3,
            5,
            10,
            16,
            17,
            0x5412,
            0x541c,
            0x541d,
            0x5423,
            0x1000,
            0x2000,
            0x6000,
            0xc000,
            0x1000_0000,
            0x4000_0000,
            0xffff_ffff,
            0x1_0000_0000,
            0x1_0000_5412,
            u64::MAX,
        ];
        for number in (0..1100).chain([0x4000_0000, 0x4000_0001, 0x7fff_ffff, 0x8000_0000, u32::MAX]) {
            for first in interesting {
                for second in interesting {
                    let arguments = [first, second, second, first, 0, 0];
                    let ours = emulator::run(program, ARCH, number, arguments);
                    let theirs = match emulator::run(absent, ARCH, number, arguments) {
                        ALLOW => emulator::run(allowed, ARCH, number, arguments),
                        stricter => stricter,
                    };
                    assert_eq!(ours, theirs, "call {number} with {first:#x}, {second:#x}");
                }
            }
        }
    }

    #[test]
    fn another_architecture_is_killed() {
        const I386: u32 = 0x4000_0003;
        let program = Filter::compile().counted;
        assert_eq!(emulator::run(&program, I386, 0, [0; 6]), 0x8000_0000);
    }

    #[test]
    fn it_fits_the_kernel() {
        const BPF_MAXINSNS: usize = 4096;
        assert!(Filter::compile().counted.len() <= BPF_MAXINSNS);
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
        assert_eq!(with(libc::SYS_clone, (libc::CLONE_VM | libc::CLONE_THREAD) as u64, 0), ALLOW);
        assert_eq!(with(libc::SYS_clone, (libc::CLONE_VM | libc::SIGCHLD) as u64, 0), EPERM);
        assert_eq!(with(libc::SYS_socket, libc::AF_NETLINK as u64, libc::SOCK_RAW as u64), EPERM);
        assert_eq!(with(libc::SYS_socket, libc::AF_INET as u64, libc::SOCK_RAW as u64), EPERM);
        assert_eq!(
            with(libc::SYS_socket, libc::AF_INET as u64, (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64),
            ALLOW
        );
        let option = |level: i32, name: i32| {
            answer(libc::SYS_setsockopt, [3, level as u64 | 1 << 40, name as u64 | 1 << 40, 0, 0, 0])
        };
        for join in [libc::MCAST_JOIN_GROUP, libc::MCAST_JOIN_SOURCE_GROUP] {
            assert_eq!((option(libc::IPPROTO_IPV6, join), option(libc::IPPROTO_IP, join)), (EPERM, EPERM));
            assert_eq!(option(libc::SOL_SOCKET, join), ALLOW);
        }
        assert_eq!(option(libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP), EPERM);
        assert_eq!(option(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP), EPERM);
        assert_eq!(option(libc::IPPROTO_IP, libc::IP_ADD_SOURCE_MEMBERSHIP), EPERM);
        assert_eq!(option(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), ALLOW);
        assert_eq!(option(libc::IPPROTO_IP, libc::IP_TTL), ALLOW);
        assert_eq!(option(libc::IPPROTO_TCP, libc::TCP_NODELAY), ALLOW);
        assert_eq!(with(libc::SYS_ioctl, 0, libc::TIOCSTI), EPERM);
        // The kernel looks at 32 bits of the request, and so do we.
        assert_eq!(with(libc::SYS_ioctl, 0, libc::TIOCSTI | 1 << 40), EPERM);
        assert_eq!(with(libc::SYS_ioctl, 0, libc::TCGETS), ALLOW);
        assert_eq!(with(libc::SYS_prlimit64, 1, 7), EPERM);
        assert_eq!(with(libc::SYS_clone3, 0, 0), ENOSYS);
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
