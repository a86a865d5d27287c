//! The processes of a spare, determined while no caller waits for it.
//!
//! This is used only for sandboxes whose processes have one thread each. While no process starts or ends
//! there, the group counts as many threads as are known here, and checking that takes one small read.

use std::fs::File;

use super::cgroup::CgroupSet;
use super::status;

/// The processes of a sandbox, if they are known.
#[derive(Default)]
pub(super) struct Inhabitants(Vec<Inhabitant>);

struct Inhabitant {
    pid: i32,
    /// Refers to this process even if its number is reused later.
    stat: File,
}

impl Inhabitants {
    /// Empty if the processes cannot be determined or have several threads.
    pub(super) fn find(cgroups: &CgroupSet) -> Self {
        let Some(Ok(pids)) = cgroups.processes() else { return Self::default() };
        let open = |pid: i32| Some(Inhabitant { pid, stat: File::open(format!("/proc/{pid}/stat")).ok()? });
        let found = Self(pids.into_iter().filter_map(open).collect());
        if found.are_all(cgroups) { found } else { Self::default() }
    }

    /// Whether there are no other processes.
    pub(super) fn are_all(&self, cgroups: &CgroupSet) -> bool {
        !self.0.is_empty() && cgroups.threads_count() == Some(self.0.len() as u64)
    }

    pub(super) fn pids(&self) -> Vec<i32> {
        self.0.iter().map(|inhabitant| inhabitant.pid).collect()
    }

    /// Whether a thread could execute another instruction of its program.
    pub(super) fn may_run(&self, thread: i32) -> bool {
        match self.0.iter().find(|inhabitant| inhabitant.pid == thread) {
            Some(inhabitant) => status::may_run_in(&inhabitant.stat),
            None => status::may_run(thread),
        }
    }
}
