//! How much one sandbox may use. Policy fills it in, backends enforce it, and the engine measures against it.

use serde::{Deserialize, Serialize};

/// Limits of one sandbox. Units are in the names; every field is a hard maximum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Wall-clock time of one run.
    pub wall_ms: u64,
    /// Memory of all processes together, excluding the files of the sandbox.
    pub memory_bytes: u64,
    /// Processor share in thousandths of a core.
    pub cpus_milli: u32,
    /// Processes and threads together.
    pub processes: u32,
    /// Bytes in all writable directories together.
    pub disk_bytes: u64,
    /// Files and directories in all writable directories together.
    pub disk_inodes: u64,
    /// Open files of one process.
    pub open_files: u32,
    /// Output kept of one run; a program that writes more is ended.
    pub output_bytes: u64,
}

impl Limits {
    /// Processor time that a run may use: its wall-clock time on every core it may use.
    pub fn cpu_ms(&self) -> u64 {
        let cores_milli = u64::from(self.cpus_milli).max(1000);
        self.wall_ms.saturating_mul(cores_milli) / 1000
    }

    /// The larger value of each limit.
    #[must_use]
    pub fn or_more(&self, other: &Self) -> Self {
        Self {
            wall_ms: self.wall_ms.max(other.wall_ms),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            cpus_milli: self.cpus_milli.max(other.cpus_milli),
            processes: self.processes.max(other.processes),
            disk_bytes: self.disk_bytes.max(other.disk_bytes),
            disk_inodes: self.disk_inodes.max(other.disk_inodes),
            open_files: self.open_files.max(other.open_files),
            output_bytes: self.output_bytes.max(other.output_bytes),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall_ms: 30_000,
            memory_bytes: 512 << 20,
            cpus_milli: 1000,
            processes: 64,
            disk_bytes: 256 << 20,
            disk_inodes: 32_768,
            open_files: 256,
            output_bytes: 1 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits() -> impl Strategy<Value = Limits> {
        (any::<[u64; 5]>(), any::<[u32; 3]>()).prop_map(|(large, small)| Limits {
            wall_ms: large[0],
            memory_bytes: large[1],
            cpus_milli: small[0],
            processes: small[1],
            disk_bytes: large[2],
            disk_inodes: large[3],
            open_files: small[2],
            output_bytes: large[4],
        })
    }

    proptest! {
        #![proptest_config(harness::properties())]

        #[test]
        fn the_larger_of_two_limits_covers_both(one in limits(), other in limits()) {
            let both = one.or_more(&other);
            prop_assert_eq!(&both, &other.or_more(&one));
            prop_assert_eq!(&both, &both.or_more(&one));
            prop_assert_eq!(&both, &both.or_more(&other));
        }

        #[test]
        fn processor_time_is_at_least_the_wall_time_and_never_overflows(one in limits(), more in limits()) {
            let both = one.or_more(&more);
            prop_assert!(both.cpu_ms() >= one.cpu_ms());
            prop_assert!(one.cpu_ms() >= one.wall_ms.min(u64::MAX / 1000));
        }
    }
}
