//! The control groups of one sandbox: limits, measurements, and removal at the end.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use ::sandbox::{BackendError, Limits, Usage};
use jail::{Spawner, Wall};

use super::Hierarchy;
use super::group::{Group, keyed_in};
use super::memory::MemoryHeld;
use crate::native::free::Free;
use crate::native::{at, kernel_file};

/// The guest and an interpreter: every sandbox has these two.
const PROCESSES_OF_ALL: u64 = 2;

/// The groups of one sandbox. Dropping the set removes them.
#[derive(Debug, Default)]
pub(crate) struct CgroupSet {
    groups: Vec<Group>,
    /// Removes the groups, without delaying the answer.
    spawner: Option<Arc<Spawner>>,
    /// The open file of processor time, which is read often.
    cpu_file: OnceLock<fs::File>,
    /// The pool in which they may be reused.
    home: Weak<Free<Resting>>,
}

/// Groups of an ended sandbox, and the limits written there.
pub(crate) struct Resting {
    set: CgroupSet,
    limits: Limits,
}

impl Resting {
    /// Prepares the groups for another sandbox. Fails if their limits and counters cannot be reset to those
    /// of new groups.
    pub(super) fn wake(self, limits: &Limits) -> io::Result<CgroupSet> {
        let Self { set, limits: written } = self;
        if !is_clean(&set.usage()) {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        for group in &set.groups {
            group.count_anew()?;
            group.change(&written, limits)?;
        }
        Ok(set)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.set.groups.iter().all(Group::is_quiet)
    }
}

/// Whether no process was killed or refused, and no more processes existed than every sandbox has. These
/// counters cannot be reset.
fn is_clean(usage: &Usage) -> bool {
    (usage.oom_kills, usage.process_refusals) == (0, 0) && usage.processes_peak <= PROCESSES_OF_ALL
}

impl CgroupSet {
    pub(super) fn new(spawner: &Arc<Spawner>, home: &Arc<Free<Resting>>) -> Self {
        let (spawner, home) = (Some(Arc::clone(spawner)), Arc::downgrade(home));
        Self { groups: Vec::new(), spawner, cpu_file: OnceLock::new(), home }
    }

    pub(super) fn has_old(&self) -> bool {
        self.groups.iter().any(|group| !group.hierarchy.unified)
    }

    /// Opens the files needed at the end of a run, and by the next sandbox that uses the groups.
    pub(crate) fn open_files(&mut self) {
        self.groups.iter_mut().for_each(Group::open_files);
    }

    /// Called when the processes are dead. Makes the groups available to another sandbox if they are as good
    /// as new, else has them removed. The given namespaces are closed.
    pub(in crate::native) fn retire(mut self, usage: &Usage, limits: &Limits, namespaces: Vec<OwnedFd>) {
        // On version 2 not every counter can be reset.
        let is_as_new = is_clean(usage) && self.unified_directory().is_none() && self.has_old();
        let Some(home) = self.home.upgrade().filter(|_| is_as_new) else { return self.remove(namespaces) };
        let spawner = self.spawner.clone();
        match home.put(Resting { set: self, limits: limits.clone() }) {
            None => drop(spawner.map(|spawner| spawner.remove(Vec::new(), &namespaces))),
            Some(mut full) => full.set.remove(namespaces),
        }
    }

    /// Creates the group in one hierarchy and writes its limits.
    pub(super) fn add(
        &mut self,
        hierarchy: &Hierarchy,
        directory: PathBuf,
        limits: &Limits,
    ) -> io::Result<()> {
        let group = Group::make(hierarchy.clone(), directory)?;
        let written = group.limit(limits);
        self.groups.push(group);
        written
    }

    /// Takes over a group whose only process is the given one.
    pub(super) fn adopt(&mut self, (hierarchy, directory): (Hierarchy, PathBuf), pid: i32) -> io::Result<()> {
        let group = Group::adopt(hierarchy, directory);
        if group.processes()? != [pid] {
            let words = format!("{} is not of its process alone", group.directory.display());
            return Err(io::Error::other(words));
        }
        self.groups.push(group);
        Ok(())
    }

    /// Checks the limits that a container engine was asked for, before the server writes its own.
    pub(crate) fn check_asked(&self, limits: &Limits) -> Result<(), String> {
        self.groups.iter().try_for_each(|group| group.check_asked(limits))
    }

    /// Writes the limits once more, where a container runtime may have replaced them.
    pub(crate) fn limit_again(&self, limits: &Limits) -> io::Result<()> {
        self.groups.iter().try_for_each(|group| group.limit(limits))
    }

    /// The group into which the process is cloned.
    pub(crate) fn unified_directory(&self) -> Option<PathBuf> {
        self.groups.iter().find(|group| group.hierarchy.unified).map(|group| group.directory.clone())
    }

    /// Moves a process that was cloned elsewhere into the unified group.
    pub(in crate::native) fn move_in(&self, pid: i32) -> io::Result<()> {
        let unified = self.groups.iter().filter(|group| group.hierarchy.unified);
        for group in unified {
            fs::write(group.directory.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// The files into which the process writes itself, opened by the server, which has the right to do so.
    pub(in crate::native) fn open_tasks(&self) -> io::Result<Vec<OwnedFd>> {
        let old = self.groups.iter().filter(|group| !group.hierarchy.unified);
        old.map(Group::entrance).collect()
    }

    pub(in crate::native) fn limits_memory(&self) -> bool {
        self.groups.iter().any(|group| group.hierarchy.memory)
    }

    /// Whether the memory of sockets is limited together with memory.
    pub(in crate::native) fn counts_sockets(&self) -> bool {
        self.of_memory().is_some_and(Group::counts_sockets)
    }

    /// The memory of sockets, where only the limit of all memory limits it.
    pub(in crate::native) fn socket_bytes(&self) -> u64 {
        self.of_memory().map_or(0, Group::socket_bytes_of_all)
    }

    /// The memory held besides files; see [`Group::memory_held`].
    pub(in crate::native) fn memory_held(&self, scratch_bytes: u64, limit: u64) -> MemoryHeld {
        self.of_memory().map(|group| group.memory_held(scratch_bytes, limit)).unwrap_or_default()
    }

    /// The kernel's own memory; see [`Group::kernel_held`].
    pub(in crate::native) fn kernel_held(&self, scratch_inodes: u64) -> Option<MemoryHeld> {
        self.of_memory().and_then(|group| group.kernel_held(scratch_inodes))
    }

    /// The file that makes the kernel release what it can.
    pub(in crate::native) fn reclaim_file(&self) -> Option<PathBuf> {
        self.of_memory().map(Group::reclaim_file)
    }

    fn of_memory(&self) -> Option<&Group> {
        self.groups.iter().find(|group| group.hierarchy.memory)
    }

    pub(in crate::native) fn limits_processes(&self) -> bool {
        self.of_processes().is_some()
    }

    pub(in crate::native) fn limits_cpu(&self) -> bool {
        self.groups.iter().any(|group| group.hierarchy.cpu)
    }

    /// Whether processor time is counted.
    pub(in crate::native) fn counts_cpu(&self) -> bool {
        self.groups.iter().any(|group| group.hierarchy.unified || group.hierarchy.cpuacct)
    }

    /// Whether the groups count everything, so that no process need be inspected.
    pub(in crate::native) fn count_everything(&self) -> bool {
        self.limits_memory() && self.limits_processes() && self.counts_cpu()
    }

    /// Checks from outside that a process is in each group and that each limit has the written value.
    pub(crate) fn check(&self, pid: i32, limits: &Limits) -> Result<(), String> {
        let membership =
            kernel_file::read(format!("/proc/{pid}/cgroup")).map_err(|error| error.to_string())?;
        for group in &self.groups {
            let tail: PathBuf =
                group.directory.components().rev().take(2).collect::<Vec<_>>().into_iter().rev().collect();
            if !membership
                .lines()
                .any(|line| Path::new(line.rsplit(':').next().unwrap_or("")).ends_with(&tail))
            {
                return Err(format!("the process is not in {}", group.directory.display()));
            }
            group.check(limits)?;
        }
        Ok(())
    }

    /// Changes the limits of an existing sandbox, and verifies the changed ones.
    pub(in crate::native) fn change(&self, from: &Limits, to: &Limits) -> Result<(), BackendError> {
        for group in &self.groups {
            group.change(from, to).map_err(at("cgroup"))?;
            if !Wall::Verify.off() {
                group.check_all(group.changed(from, to)).map_err(|what| BackendError::Unverified { what })?;
            }
        }
        Ok(())
    }

    /// Every process inside, if there is a group that lists them.
    pub(crate) fn processes(&self) -> Option<io::Result<Vec<i32>>> {
        self.groups.first().map(Group::processes)
    }

    /// Every thread inside that is not dead yet, as listed by the group that limits their number.
    pub(in crate::native) fn threads(&self) -> io::Result<Vec<i32>> {
        self.of_processes().ok_or(io::ErrorKind::NotFound)?.threads()
    }

    /// How many threads are inside, including dead ones that are not reaped yet.
    pub(in crate::native) fn threads_count(&self) -> Option<u64> {
        self.of_processes()?.threads_count()
    }

    /// Prevents new processes inside: the given limits allow no process but the guest.
    pub(in crate::native) fn forbid_births(&self, limits: &Limits) -> io::Result<()> {
        self.of_processes().ok_or(io::ErrorKind::NotFound)?.limit_processes(limits)
    }

    /// The group that counts and limits processes.
    fn of_processes(&self) -> Option<&Group> {
        self.groups.iter().find(|group| group.hierarchy.pids)
    }

    /// The usage. Fields that no group counts stay zero.
    pub(in crate::native) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for group in &self.groups {
            group.measure(&mut usage);
        }
        usage
    }

    /// Processor time of everything inside, in nanoseconds where version 1 counts it. A cheap read through a
    /// file descriptor that is kept open.
    pub(in crate::native) fn cpu_ns(&self) -> Option<u64> {
        let (group, name) = self.groups.iter().find_map(|group| Some((group, group.cpu_file()?)))?;
        let file = match group.kept(name).or_else(|| self.cpu_file.get()) {
            Some(file) => file,
            None => {
                let opened = fs::File::open(group.directory.join(name)).ok()?;
                self.cpu_file.get_or_init(|| opened)
            }
        };
        let mut bytes = [0; 512];
        let count = rustix::io::pread(file, &mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..count]).ok()?;
        match group.hierarchy.unified {
            true => keyed_in(text, "usage_usec").map(|us| us.saturating_mul(1000)),
            false => text.trim().parse().ok(),
        }
    }

    /// The part of the usage that only grows.
    pub(in crate::native) fn counters(&self) -> Usage {
        let mut usage = Usage::default();
        for group in &self.groups {
            group.count(&mut usage);
        }
        usage
    }

    /// Resets the kernel's peak values, where it can.
    pub(in crate::native) fn forget_peaks(&self) {
        for group in &self.groups {
            // An older kernel keeps the value; then the peak is that of the sandbox's whole life.
            group.forget_peak().ok();
        }
    }

    /// Has the groups removed and the given namespaces closed. The processes are dead.
    pub(in crate::native) fn remove(&mut self, namespaces: Vec<OwnedFd>) {
        self.cpu_file = OnceLock::new();
        let directories: Vec<PathBuf> = self.groups.drain(..).map(|group| group.directory).collect();
        let is_nothing = directories.is_empty() && namespaces.is_empty();
        if let Some(spawner) = self.spawner.as_ref().filter(|_| !is_nothing) {
            // Without a spawner the sandbox is gone too, and the next server's sweep removes the groups.
            if let Err(error) = spawner.remove(directories, &namespaces) {
                tracing::debug!(reason = %error, "cgroups_not_removed");
            }
        }
    }
}

impl Drop for CgroupSet {
    fn drop(&mut self) {
        self.remove(Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_again_and_again_by_one_descriptor() {
        for (unified, file, texts) in [
            (false, "cpuacct.usage", ["5000\n", "7000\n"]),
            (true, "cpu.stat", ["usage_usec 5\nuser_usec 1\n", "usage_usec 7\nuser_usec 1\n"]),
        ] {
            let name = if unified { "cpu2" } else { "cpu1" };
            let directory = std::env::temp_dir().join(format!("palisade-set-{name}-{}", std::process::id()));
            let hierarchy = Hierarchy {
                parent: directory.clone(),
                unified,
                memory: false,
                pids: false,
                cpu: false,
                cpuacct: !unified,
            };
            let group = Group::make(hierarchy, directory.clone()).unwrap();
            let mut set = CgroupSet::default();
            assert_eq!(set.cpu_ns(), None, "no group counts");
            set.groups.push(group);
            let found = texts.map(|text| {
                fs::write(directory.join(file), text).unwrap();
                set.cpu_ns()
            });
            fs::remove_dir_all(&directory).unwrap();
            assert_eq!(found, [Some(5000), Some(7000)]);
        }
    }
}
