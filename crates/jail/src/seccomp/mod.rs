//! The system-call filter: compiled once per spawner, installed last in every jail.
//!
//! Two programs, because a seccompiler program has one answer for what matches: the allow-list (anything
//! else: EPERM), then the calls whose absence libraries probe for (ENOSYS). The kernel takes the strictest
//! answer, and of two errors the one installed last; see seccomp(2). A foreign architecture is killed by
//! each of them. The lists themselves are data in [`profile`].

mod profile;

use std::collections::BTreeMap;
use std::io;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};

use crate::breach::Wall;

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

/// Compiled filters in the order of installation.
pub(crate) struct Filters {
    programs: Vec<BpfProgram>,
}

impl Filters {
    /// Compiles the lists.
    pub(crate) fn compile() -> io::Result<Self> {
        let mut allowed: BTreeMap<i64, Vec<SeccompRule>> =
            profile::ALLOWED.iter().chain(profile::ALLOWED_LEGACY).map(|number| (*number, Vec::new())).collect();
        for (number, rules) in profile::conditional().map_err(io::Error::other)? {
            allowed.insert(number, rules);
        }
        // Needed to install the second program, which then answers for it.
        allowed.insert(libc::SYS_seccomp, Vec::new());
        let probed = profile::ABSENT.iter().copied().chain(profile::FUTURE);
        let absent = probed.map(|number| (number, Vec::new())).collect();
        let programs = [
            (allowed, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow),
            (absent, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32)),
        ];
        let programs = programs.into_iter().map(|(rules, otherwise, matched)| {
            let filter = SeccompFilter::new(rules, otherwise, matched, ARCH).map_err(io::Error::other)?;
            BpfProgram::try_from(filter).map_err(io::Error::other)
        });
        Ok(Self { programs: programs.collect::<io::Result<_>>()? })
    }

    /// Puts this process and all its children behind the filters, for good.
    pub(crate) fn install(&self) -> io::Result<()> {
        if Wall::Seccomp.off() {
            return Ok(());
        }
        for program in &self.programs {
            seccompiler::apply_filter(program).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_compile_and_fit_the_kernel() {
        const BPF_MAXINSNS: usize = 4096;
        for program in Filters::compile().unwrap().programs {
            assert!(program.len() <= BPF_MAXINSNS, "{} instructions", program.len());
        }
    }

    #[test]
    fn no_call_is_both_allowed_and_absent() {
        let conditional = profile::conditional().unwrap();
        for number in profile::ABSENT {
            assert!(!profile::ALLOWED.contains(number), "call {number}");
            assert!(!conditional.contains_key(number), "call {number}");
        }
        for number in conditional.keys() {
            assert!(!profile::ALLOWED.contains(number), "call {number} has a rule that nothing asks for");
        }
    }

    #[test]
    fn calls_that_reach_the_kernel_of_the_host_are_not_listed() {
        let never = [
            libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_unshare,
            libc::SYS_setns, libc::SYS_ptrace, libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_keyctl,
            libc::SYS_add_key, libc::SYS_request_key, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register, libc::SYS_userfaultfd, libc::SYS_kexec_load, libc::SYS_init_module,
            libc::SYS_finit_module, libc::SYS_delete_module, libc::SYS_reboot, libc::SYS_swapon, libc::SYS_swapoff,
            libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_open_by_handle_at,
            libc::SYS_fsopen, libc::SYS_move_mount, libc::SYS_open_tree, libc::SYS_mount_setattr,
            libc::SYS_clock_settime, libc::SYS_settimeofday, libc::SYS_sethostname, libc::SYS_syslog,
            libc::SYS_quotactl, libc::SYS_acct, libc::SYS_fanotify_init, libc::SYS_pidfd_getfd, libc::SYS_kcmp,
            libc::SYS_clone3,
        ];
        let conditional = profile::conditional().unwrap();
        for number in never {
            assert!(!profile::ALLOWED.contains(&number) && !conditional.contains_key(&number), "call {number}");
        }
    }
}
