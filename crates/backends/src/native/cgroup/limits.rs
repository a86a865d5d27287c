//! The values that control groups get for the limits of a sandbox.

use ::sandbox::Limits;

/// The kernel's default accounting period.
pub(super) const CPU_PERIOD_US: u64 = 100_000;
/// Process 1 of the sandbox counts too.
const GUEST_PROCESSES: u64 = 1;

/// What the groups of a sandbox limit. A container engine is asked for the same values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupLimits {
    /// The sandbox's files are memory too. Adding them distinguishes a full disk from exhausted memory. This is the
    /// outermost bound; the watch limits what is held besides files ([`super::group::Group::memory_held`]).
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u64,
    pub(crate) cpu_quota_us: u64,
    pub(crate) cpu_period_us: u64,
}

impl GroupLimits {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self {
            memory_bytes: limits.memory_bytes.saturating_add(limits.disk_bytes),
            processes: u64::from(limits.processes) + GUEST_PROCESSES,
            cpu_quota_us: u64::from(limits.cpus_milli) * CPU_PERIOD_US / 1000,
            cpu_period_us: CPU_PERIOD_US,
        }
    }
}
