//! Control groups of version 1, 2 and both at once, beneath the group this server is in.
//!
//! [`Cgroups`] belongs to the server: it owns one directory per hierarchy, locked for as long as it lives,
//! and sweeps those of servers that are gone. [`CgroupSet`] belongs to one sandbox: it sets the limits,
//! measures, and removes itself. What cannot be had here is simply absent and said so; the backend then
//! puts a watchdog in its place.

mod layout;
mod set;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;
use jail::Spawner;
use ::sandbox::Limits;

pub(super) use self::layout::{Hierarchy, Layout};
pub(super) use self::set::CgroupSet;

const PREFIX: &str = "palisade-";

/// Which controllers this server can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupState {
    /// Memory is limited by a cgroup.
    pub memory: bool,
    /// Processes are limited by a cgroup.
    pub processes: bool,
    /// Processor share is limited by a cgroup.
    pub cpu: bool,
    /// Why something is missing.
    pub reason: Option<String>,
}

/// The server's own groups.
pub(super) struct Cgroups {
    hierarchies: Vec<Owned>,
    reason: Option<String>,
    spawner: Arc<Spawner>,
}

/// A directory of this server in one hierarchy; the lock says that the server lives.
struct Owned {
    hierarchy: Hierarchy,
    directory: PathBuf,
    _lock: File,
}

impl Cgroups {
    pub(super) fn detect(spawner: &Arc<Spawner>) -> Self {
        if jail::Wall::Cgroup.off() {
            let reason = Some("switched off".to_owned());
            return Self { hierarchies: Vec::new(), reason, spawner: Arc::clone(spawner) };
        }
        let layout = Layout::read(Path::new("/proc/self"));
        let name = format!("{PREFIX}{}", unique());
        let mut hierarchies = Vec::new();
        let mut reason = None;
        for hierarchy in layout.hierarchies(spawner.pid()) {
            sweep(&hierarchy.parent);
            match own(&hierarchy, &name) {
                Ok(owned) => hierarchies.push(owned),
                Err(error) => {
                    reason = Some(format!("{}: {error}", hierarchy.parent.display()));
                }
            }
        }
        let directories = hierarchies.iter().map(|owned: &Owned| owned.directory.clone()).collect();
        // Should this fail, the next server's sweep removes them.
        spawner.remove_at_end(directories).ok();
        let undelegated = "no hierarchy with the memory controller is delegated";
        let reason = reason.or_else(|| Some(undelegated.to_owned()));
        Self { hierarchies, reason, spawner: Arc::clone(spawner) }
    }

    pub(super) fn state(&self) -> CgroupState {
        let state = CgroupState {
            memory: self.has(|kind| kind.memory),
            processes: self.has(|kind| kind.pids),
            cpu: self.has(|kind| kind.cpu),
            reason: None,
        };
        let complete = state.memory && state.processes && state.cpu;
        CgroupState { reason: self.reason.clone().filter(|_| !complete), ..state }
    }

    fn has(&self, controller: impl Fn(&Hierarchy) -> bool) -> bool {
        self.hierarchies.iter().any(|owned| controller(&owned.hierarchy))
    }

    /// Makes the groups of one sandbox with its limits.
    pub(super) fn create(&self, number: u64, limits: &Limits) -> io::Result<CgroupSet> {
        let mut set = CgroupSet::new(&self.spawner);
        for owned in &self.hierarchies {
            set.add(&owned.hierarchy, owned.directory.join(format!("s{number}")), limits)?;
        }
        Ok(set)
    }
}

fn unique() -> String {
    let mut bytes = [0_u8; 8];
    // The name need not be secret: a collision makes mkdir fail, and the group is then absent.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn own(hierarchy: &Hierarchy, name: &str) -> io::Result<Owned> {
    let directory = hierarchy.parent.join(name);
    fs::create_dir(&directory)?;
    let made = File::open(&directory).and_then(|lock| {
        rustix::fs::flock(lock.as_fd(), FlockOperation::LockExclusive)?;
        hierarchy.pass_on(&directory)?;
        Ok(lock)
    });
    match made {
        Ok(lock) => Ok(Owned { hierarchy: hierarchy.clone(), directory, _lock: lock }),
        Err(error) => {
            remove_tree(&directory);
            Err(error)
        }
    }
}

/// Removes what servers left that are gone: a live one holds the lock of its directory.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if !is_ours {
            continue;
        }
        let Ok(lock) = File::open(entry.path()) else { continue };
        if rustix::fs::flock(lock.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_tree(&entry.path());
        }
    }
}

/// Removes a group and all groups beneath it. Processes are gone by then; if not, it stays for the next sweep.
fn remove_tree(directory: &Path) {
    if let Ok(entries) = fs::read_dir(directory) {
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            remove_tree(&entry.path());
        }
    }
    fs::remove_dir(directory).ok();
}
