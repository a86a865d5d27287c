//! What a sandbox guarantees, and which mechanism enforces each guarantee.
//!
//! A [`Guarantee`] is stated by its effect. A backend fills in [`Enforced`] from the host's view of the
//! actual process it made, never from its plan. The engine refuses a run whose required guarantees are not
//! all enforced.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A guarantee, stated by its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// Files of the host that the runtime does not need are absent.
    FilesHidden,
    /// The host's files that are visible cannot be changed.
    FilesReadonly,
    /// The bytes and files that a program writes are bounded.
    DiskLimited,
    /// No address outside the sandbox can be reached over a network.
    NetworkNone,
    /// Processes of the host and of other sandboxes cannot be seen or signalled.
    ProcessesHidden,
    /// The number of processes and threads is bounded.
    ProcessesLimited,
    /// Memory is bounded.
    MemoryLimited,
    /// Processor time is bounded.
    CpuLimited,
    /// Wall-clock time is bounded.
    TimeLimited,
    /// Output is bounded.
    OutputLimited,
    /// The program has no capability and no way to gain one.
    PrivilegesNone,
    /// Only listed system calls are allowed.
    SyscallsFiltered,
    /// No process survives the sandbox.
    TreeKilled,
    /// User, host name and environment of the host are not visible.
    IdentityHidden,
}

impl Guarantee {
    /// Every guarantee, in the order in which they are reported.
    pub const ALL: [Self; 14] = [
        Self::FilesHidden,
        Self::FilesReadonly,
        Self::DiskLimited,
        Self::NetworkNone,
        Self::ProcessesHidden,
        Self::ProcessesLimited,
        Self::MemoryLimited,
        Self::CpuLimited,
        Self::TimeLimited,
        Self::OutputLimited,
        Self::PrivilegesNone,
        Self::SyscallsFiltered,
        Self::TreeKilled,
        Self::IdentityHidden,
    ];

    /// The name used in configuration and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::FilesHidden => "files_hidden",
            Self::FilesReadonly => "files_readonly",
            Self::DiskLimited => "disk_limited",
            Self::NetworkNone => "network_none",
            Self::ProcessesHidden => "processes_hidden",
            Self::ProcessesLimited => "processes_limited",
            Self::MemoryLimited => "memory_limited",
            Self::CpuLimited => "cpu_limited",
            Self::TimeLimited => "time_limited",
            Self::OutputLimited => "output_limited",
            Self::PrivilegesNone => "privileges_none",
            Self::SyscallsFiltered => "syscalls_filtered",
            Self::TreeKilled => "tree_killed",
            Self::IdentityHidden => "identity_hidden",
        }
    }

    /// The guarantee with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|guarantee| guarantee.name() == name)
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What enforces a guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// A kernel namespace.
    Namespace,
    /// A root file system built from an empty one.
    Root,
    /// A control group.
    Cgroup,
    /// A system-call filter.
    Seccomp,
    /// The Landlock security module.
    Landlock,
    /// A resource limit of the process.
    Rlimit,
    /// Empty capability sets with no_new_privs.
    Capabilities,
    /// A size limit of a memory file system.
    Tmpfs,
    /// The server measures and kills.
    Watchdog,
    /// Another kernel between the program and the host's.
    Kernel,
}

impl Mechanism {
    /// The name used in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Root => "root",
            Self::Cgroup => "cgroup",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::Rlimit => "rlimit",
            Self::Capabilities => "capabilities",
            Self::Tmpfs => "tmpfs",
            Self::Watchdog => "watchdog",
            Self::Kernel => "kernel",
        }
    }
}

/// Whether and how one guarantee is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// Enforced by these mechanisms, strongest first.
    By {
        /// What enforces it.
        mechanisms: Vec<Mechanism>,
        /// A limitation that the caller should know about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Not enforced.
    Absent {
        /// Why, in words for the operator.
        reason: String,
    },
}

/// All guarantees with the mechanisms that enforce them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Enforced(BTreeMap<Guarantee, Enforcement>);

impl Enforced {
    /// Records that these mechanisms enforce a guarantee.
    pub fn keep(&mut self, guarantee: Guarantee, mechanisms: &[Mechanism]) {
        self.0.insert(guarantee, Enforcement::By { mechanisms: mechanisms.to_vec(), note: None });
    }

    /// Records that a guarantee is enforced, with a limitation.
    pub fn keep_with_note(&mut self, guarantee: Guarantee, mechanisms: &[Mechanism], note: &str) {
        let note = Some(note.to_owned());
        self.0.insert(guarantee, Enforcement::By { mechanisms: mechanisms.to_vec(), note });
    }

    /// Records that a guarantee is not enforced.
    pub fn lack(&mut self, guarantee: Guarantee, reason: &str) {
        self.0.insert(guarantee, Enforcement::Absent { reason: reason.to_owned() });
    }

    /// How one guarantee is enforced. A guarantee without a record is absent.
    pub fn get(&self, guarantee: Guarantee) -> Enforcement {
        self.0
            .get(&guarantee)
            .cloned()
            .unwrap_or_else(|| Enforcement::Absent { reason: "not examined".to_owned() })
    }

    /// Whether a guarantee is enforced.
    pub fn keeps(&self, guarantee: Guarantee) -> bool {
        matches!(self.0.get(&guarantee), Some(Enforcement::By { .. }))
    }

    /// The guarantees that are not enforced, except those whose absence was allowed.
    pub fn missing(&self, absence_allowed: &[Guarantee]) -> Vec<Guarantee> {
        let absent = Guarantee::ALL.into_iter().filter(|guarantee| !self.keeps(*guarantee));
        absent.filter(|guarantee| !absence_allowed.contains(guarantee)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_guarantee() {
        for guarantee in Guarantee::ALL {
            assert_eq!(Guarantee::from_name(guarantee.name()), Some(guarantee));
        }
    }

    #[test]
    fn a_guarantee_nobody_spoke_of_is_missing() {
        let mut enforced = Enforced::default();
        for guarantee in Guarantee::ALL {
            enforced.keep(guarantee, &[Mechanism::Namespace]);
        }
        assert!(enforced.missing(&[]).is_empty());
        enforced.lack(Guarantee::MemoryLimited, "no cgroup");
        assert_eq!(enforced.missing(&[]), [Guarantee::MemoryLimited]);
        assert!(enforced.missing(&[Guarantee::MemoryLimited]).is_empty());
        assert_eq!(Enforced::default().missing(&[]).len(), Guarantee::ALL.len());
    }
}
