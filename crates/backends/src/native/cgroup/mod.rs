//! Control groups of version 1, 2 and both at once, beneath the group that this server is in.
//!
//! [`Cgroups`] belongs to the server. It owns one directory per hierarchy, locked as long as the server
//! lives, and sweeps the directories of servers that are gone. [`CgroupSet`] belongs to one sandbox. It sets
//! the limits, measures, and removes itself. A missing controller is reported as absent; the backend then
//! uses a watchdog instead.

mod group;
mod layout;
mod limits;
mod memory;
mod set;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::sandbox::{FailureKind, Failures, Limits};
use jail::Spawner;
use rustix::fs::FlockOperation;

pub(super) use self::layout::Hierarchy;
pub(crate) use self::layout::Layout;
pub(crate) use self::limits::GroupLimits;
pub(crate) use self::set::{CgroupSet, Resting};
use super::free::Free;

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
    /// Why a controller is missing.
    pub reason: Option<String>,
}

/// The server's control groups. Version 1 directories are created at their first use, so that they do not
/// delay the start.
pub(crate) struct Cgroups {
    spawner: Arc<Spawner>,
    name: String,
    unified: Owned,
    old_layout: Vec<Hierarchy>,
    old: OnceLock<Owned>,
    /// The version 1 hierarchies in which groups can be created, determined once.
    joinable: OnceLock<Vec<Hierarchy>>,
    /// Groups of ended sandboxes.
    free: Arc<Free<Resting>>,
    failures: Arc<Failures>,
}

/// Directories of this server, one per hierarchy. Their locks show that the server lives.
#[derive(Default)]
struct Owned {
    directories: Vec<(Hierarchy, PathBuf, File)>,
    problem: Option<String>,
}

impl Cgroups {
    pub(super) fn detect(spawner: &Arc<Spawner>, failures: &Arc<Failures>) -> Self {
        let layout =
            if jail::Wall::Cgroup.off() { Layout::default() } else { Layout::read(Path::new("/proc/self")) };
        let (unified, old_layout) =
            layout.hierarchies(spawner.pid()).into_iter().partition(|found| found.unified);
        let name = format!("{PREFIX}{}", unique());
        let unified = Owned::make(unified, &name, spawner, failures);
        Self {
            spawner: Arc::clone(spawner),
            name,
            unified,
            old_layout,
            old: OnceLock::new(),
            joinable: OnceLock::new(),
            free: Arc::default(),
            failures: Arc::clone(failures),
        }
    }

    fn old(&self) -> &Owned {
        self.old
            .get_or_init(|| Owned::make(self.old_layout.clone(), &self.name, &self.spawner, &self.failures))
    }

    pub(super) fn state(&self) -> CgroupState {
        let owned = [&self.unified, self.old()];
        let has = |controller: fn(&Hierarchy) -> bool| {
            owned.iter().flat_map(|owned| &owned.directories).any(|(hierarchy, ..)| controller(hierarchy))
        };
        let (memory, processes, cpu) = (has(|kind| kind.memory), has(|kind| kind.pids), has(|kind| kind.cpu));
        let problem = owned.iter().find_map(|owned| owned.problem.clone());
        let undelegated = || "no hierarchy with the memory controller is delegated".to_owned();
        let reason = (!(memory && processes && cpu)).then(|| problem.unwrap_or_else(undelegated));
        CgroupState { memory, processes, cpu, reason }
    }

    /// Creates the group that a sandbox is cloned into, if there is such a hierarchy, or returns all groups
    /// of an ended sandbox.
    pub(super) fn create(&self, number: u64, limits: &Limits) -> io::Result<CgroupSet> {
        if let Some(Ok(set)) =
            self.free.take(|resting| resting.is_quiet()).map(|resting| resting.wake(limits))
        {
            return Ok(set);
        }
        let mut set = CgroupSet::new(&self.spawner, &self.free);
        self.unified.add_to(&mut set, number, limits)?;
        Ok(set)
    }

    /// Whether there are groups to join after the clone.
    pub(super) fn has_old(&self) -> bool {
        !self.old_layout.is_empty()
    }

    /// Whether a group will count processes.
    pub(crate) fn may_limit_processes(&self) -> bool {
        self.may(|hierarchy| hierarchy.pids)
    }

    /// Whether a group will count memory.
    pub(crate) fn may_limit_memory(&self) -> bool {
        self.may(|hierarchy| hierarchy.memory)
    }

    fn may(&self, controller: impl Fn(&Hierarchy) -> bool) -> bool {
        let born = self.unified.directories.iter().map(|(hierarchy, ..)| hierarchy);
        let joined = self.joinable.get_or_init(|| {
            let writable = self.old_layout.iter().filter(|hierarchy| is_writable(&hierarchy.parent));
            writable.cloned().collect()
        });
        born.chain(joined).any(controller)
    }

    /// New groups in every hierarchy, for a sandbox whose process a container runtime puts there. They are not used
    /// again afterwards.
    pub(crate) fn fresh(&self, number: u64, limits: &Limits) -> io::Result<CgroupSet> {
        let mut set = CgroupSet::new(&self.spawner, &Arc::default());
        self.unified.add_to(&mut set, number, limits)?;
        self.old().add_to(&mut set, number, limits)?;
        Ok(set)
    }

    /// The groups that a container engine created for this process alone. Groups that other processes use too are an
    /// error, because limits written there would be theirs.
    pub(crate) fn adopt(&self, pid: i32) -> io::Result<CgroupSet> {
        let mut set = CgroupSet::new(&self.spawner, &Arc::default());
        for hierarchy in Layout::of_process(pid)? {
            set.adopt(hierarchy, pid)?;
        }
        Ok(set)
    }

    /// Whether a directory is one of this server's own, which stay as long as the server.
    pub(crate) fn owns(&self, directory: &Path) -> bool {
        let owned = [&self.unified, self.old()].into_iter().flat_map(|owned| &owned.directories);
        owned.into_iter().any(|(_, own, _)| own == directory)
    }

    /// The name of this server's directory in each hierarchy.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Adds the groups that the sandbox joins after the clone.
    pub(super) fn complete(&self, set: &mut CgroupSet, number: u64, limits: &Limits) -> io::Result<()> {
        if set.has_old() { Ok(()) } else { self.old().add_to(set, number, limits) }
    }
}

impl Owned {
    fn make(hierarchies: Vec<Hierarchy>, name: &str, spawner: &Spawner, failures: &Failures) -> Self {
        let mut owned = Self::default();
        for hierarchy in hierarchies {
            if let Err(error) = sweep(&hierarchy.parent) {
                failures.report(FailureKind::Sweep, "cgroups", &error);
            }
            match own(&hierarchy, name) {
                Ok((directory, lock)) => owned.directories.push((hierarchy, directory, lock)),
                Err(error) => owned.problem = Some(format!("{}: {error}", hierarchy.parent.display())),
            }
        }
        let directories: Vec<PathBuf> =
            owned.directories.iter().map(|(_, directory, _)| directory.clone()).collect();
        if !directories.is_empty() {
            // If this fails, the next server's sweep removes them.
            if let Err(error) = spawner.remove_at_end(directories) {
                failures.report(FailureKind::Sweep, "own cgroups", &error);
            }
        }
        owned
    }

    fn add_to(&self, set: &mut CgroupSet, number: u64, limits: &Limits) -> io::Result<()> {
        self.directories.iter().try_for_each(|(hierarchy, directory, _)| {
            set.add(hierarchy, directory.join(format!("s{number}")), limits)
        })
    }
}

fn unique() -> String {
    let mut bytes = [0_u8; 8];
    // The name need not be secret: a collision makes mkdir fail, and the group is then absent.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_writable(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

fn own(hierarchy: &Hierarchy, name: &str) -> io::Result<(PathBuf, File)> {
    let directory = hierarchy.parent.join(name);
    fs::create_dir(&directory)?;
    let made = File::open(&directory).and_then(|lock| {
        rustix::fs::flock(lock.as_fd(), FlockOperation::LockExclusive)?;
        // Another server's sweep may have removed it before it was locked.
        fs::create_dir(&directory).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        })?;
        hierarchy.pass_on(&directory)?;
        Ok(lock)
    });
    match made {
        Ok(lock) => Ok((directory, lock)),
        Err(error) => {
            // The error that led here is reported; the next server sweeps the rest.
            remove_tree(&directory).ok();
            Err(error)
        }
    }
}

/// Removes the directories of servers that are gone; a live server holds the lock of its directory. It tries
/// all of them and returns the last error.
fn sweep(parent: &Path) -> io::Result<()> {
    let mut swept = Ok(());
    // A directory that cannot be read was not created by this user's servers.
    let Ok(entries) = fs::read_dir(parent) else { return swept };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX) && belongs_to_this_user(&entry);
        if !is_ours || is_new(&entry) {
            continue;
        }
        let Ok(lock) = File::open(entry.path()) else { continue };
        if rustix::fs::flock(lock.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok() {
            swept = remove_tree(&entry.path()).and(swept);
        }
    }
    swept
}

/// A server of another user sweeps its own directories. This one may not remove them.
fn belongs_to_this_user(entry: &fs::DirEntry) -> bool {
    entry.metadata().is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

/// A server that is just starting has created its directory but not locked it yet.
fn is_new(entry: &fs::DirEntry) -> bool {
    const NEW: Duration = Duration::from_secs(2);
    let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|made| made.elapsed().ok());
    age.is_none_or(|age| age < NEW)
}

/// Removes a group and all groups beneath it. Its processes should be gone; otherwise the group stays for the
/// next sweep.
fn remove_tree(directory: &Path) -> io::Result<()> {
    if let Ok(entries) = fs::read_dir(directory) {
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            // A group that stays also keeps its parent, and the parent's error is returned.
            remove_tree(&entry.path()).ok();
        }
    }
    match fs::remove_dir(directory) {
        // Another server's sweep was faster, or the processes are about to end and the next sweep finds the
        // group.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ResourceBusy) => {
            tracing::debug!(reason = %error, "cgroup_not_swept");
            Ok(())
        }
        removed => removed,
    }
}
