//! The groups of one sandbox: limits in, measurements out, removed at the end.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ::sandbox::{BackendError, Limits, Usage};
use jail::{Spawner, Wall};

use super::Hierarchy;
use crate::native::{at, kernel_file};

/// The kernel's default accounting period.
const CPU_PERIOD_US: u64 = 100_000;
/// Process 1 of the sandbox counts too.
const GUEST_PROCESSES: u64 = 1;

/// One sandbox's groups; dropping it removes them.
#[derive(Debug, Default)]
pub(in crate::native) struct CgroupSet {
    groups: Vec<Group>,
    /// Removes the groups, off the path of the answer.
    spawner: Option<Arc<Spawner>>,
    /// Where processor time is read that is asked for often.
    cpu_file: OnceLock<fs::File>,
}

#[derive(Debug)]
struct Group {
    hierarchy: Hierarchy,
    directory: PathBuf,
}

impl CgroupSet {
    pub(super) fn new(spawner: &Arc<Spawner>) -> Self {
        Self { groups: Vec::new(), spawner: Some(Arc::clone(spawner)), cpu_file: OnceLock::new() }
    }

    /// Makes the group in one hierarchy and writes its limits.
    pub(super) fn add(
        &mut self,
        hierarchy: &Hierarchy,
        directory: PathBuf,
        limits: &Limits,
    ) -> io::Result<()> {
        fs::create_dir(&directory)?;
        let group = Group { hierarchy: hierarchy.clone(), directory };
        let written = group.limit(limits);
        self.groups.push(group);
        written
    }

    /// Where the process is born.
    pub(in crate::native) fn unified_directory(&self) -> Option<PathBuf> {
        self.groups.iter().find(|group| group.hierarchy.unified).map(|group| group.directory.clone())
    }

    /// Moves a process that was born elsewhere into the unified group.
    pub(in crate::native) fn move_in(&self, pid: i32) -> io::Result<()> {
        let unified = self.groups.iter().filter(|group| group.hierarchy.unified);
        for group in unified {
            fs::write(group.directory.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// What the process writes itself into, opened by us, who have the right to.
    pub(in crate::native) fn open_tasks(&self) -> io::Result<Vec<OwnedFd>> {
        let old = self.groups.iter().filter(|group| !group.hierarchy.unified);
        old.map(|group| {
            fs::OpenOptions::new().write(true).open(group.directory.join("tasks")).map(OwnedFd::from)
        })
        .collect()
    }

    pub(in crate::native) fn limits_memory(&self) -> bool {
        self.groups.iter().any(|group| group.hierarchy.memory)
    }

    pub(in crate::native) fn limits_processes(&self) -> bool {
        self.groups.iter().any(|group| group.hierarchy.pids)
    }

    pub(in crate::native) fn limits_cpu(&self) -> bool {
        self.groups.iter().any(|group| group.hierarchy.cpu)
    }

    /// Whether processor time is counted.
    pub(in crate::native) fn counts_cpu(&self) -> bool {
        self.groups.iter().any(|group| group.hierarchy.unified || group.hierarchy.cpuacct)
    }

    /// Whether nothing need be found out by looking at processes.
    pub(in crate::native) fn count_everything(&self) -> bool {
        self.limits_memory() && self.limits_processes() && self.counts_cpu()
    }

    /// Checks from outside that a process is in each group and that each limit is what was written.
    pub(in crate::native) fn check(&self, pid: i32, limits: &Limits) -> Result<(), String> {
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

    /// Changes the limits of a sandbox that stands, and looks at those that changed.
    pub(in crate::native) fn change(&self, from: &Limits, to: &Limits) -> Result<(), BackendError> {
        for group in &self.groups {
            group.change(from, to).map_err(at("cgroup"))?;
            if !Wall::Verify.off() {
                group.check_all(group.changed(from, to)).map_err(|what| BackendError::Unverified { what })?;
            }
        }
        Ok(())
    }

    /// Every process inside, if there is a group that knows.
    pub(in crate::native) fn processes(&self) -> Option<io::Result<Vec<i32>>> {
        let group = self.groups.first()?;
        let listed = kernel_file::read(group.directory.join("cgroup.procs"));
        Some(listed.map(|text| text.lines().filter_map(|line| line.trim().parse().ok()).collect()))
    }

    /// What was used; fields that no group counts stay zero.
    pub(in crate::native) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for group in &self.groups {
            group.measure(&mut usage);
        }
        usage
    }

    /// Processor time of everything inside, to the nanosecond where version 1 counts it; a cheap look, by a descriptor that
    /// is kept.
    pub(in crate::native) fn cpu_ns(&self) -> Option<u64> {
        let (directory, unified) = self.groups.iter().find_map(|group| {
            let Hierarchy { unified, cpuacct, .. } = group.hierarchy;
            (unified || cpuacct).then_some((&group.directory, unified))
        })?;
        let name = if unified { "cpu.stat" } else { "cpuacct.usage" };
        let file = match self.cpu_file.get() {
            Some(file) => file,
            None => {
                let opened = fs::File::open(directory.join(name)).ok()?;
                self.cpu_file.get_or_init(|| opened)
            }
        };
        let mut bytes = [0; 512];
        let count = rustix::io::pread(file, &mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..count]).ok()?;
        match unified {
            true => keyed_in(text, "usage_usec").map(|us| us.saturating_mul(1000)),
            false => text.trim().parse().ok(),
        }
    }

    /// The part of it that only ever grows.
    pub(in crate::native) fn counters(&self) -> Usage {
        let mut usage = Usage::default();
        for group in &self.groups {
            group.count(&mut usage);
        }
        usage
    }

    /// Lets the kernel's highest marks begin anew, where it can.
    pub(in crate::native) fn forget_peaks(&self) {
        for group in self.groups.iter().filter(|group| group.hierarchy.memory) {
            let file = if group.hierarchy.unified { "memory.peak" } else { "memory.max_usage_in_bytes" };
            // An older kernel keeps the mark; then the peak is that of the sandbox's whole life.
            fs::write(group.directory.join(file), "0").ok();
        }
    }

    /// Has the groups removed, and these namespaces let go of; the processes are dead.
    pub(in crate::native) fn remove(&mut self, namespaces: Vec<OwnedFd>) {
        self.cpu_file = OnceLock::new();
        let directories: Vec<PathBuf> = self.groups.drain(..).map(|group| group.directory).collect();
        let is_nothing = directories.is_empty() && namespaces.is_empty();
        if let Some(spawner) = self.spawner.as_ref().filter(|_| !is_nothing) {
            // Without a spawner the sandbox is gone too, and the next server's sweep removes the groups.
            spawner.remove(directories, &namespaces).ok();
        }
    }
}

impl Drop for CgroupSet {
    fn drop(&mut self) {
        self.remove(Vec::new());
    }
}

impl Group {
    fn limit(&self, limits: &Limits) -> io::Result<()> {
        self.write(self.settings(limits))
    }

    /// Version 1 keeps memory with swap at or above memory alone at every moment.
    fn change(&self, from: &Limits, to: &Limits) -> io::Result<()> {
        let mut settings = self.changed(from, to);
        if memory_bytes(to) > memory_bytes(from) {
            settings.reverse();
        }
        self.write(settings)
    }

    fn changed(&self, from: &Limits, to: &Limits) -> Vec<(&'static str, String)> {
        let pairs = self.settings(from).into_iter().zip(self.settings(to));
        pairs.filter(|(old, new)| old != new).map(|(_, new)| new).collect()
    }

    fn write(&self, settings: Vec<(&'static str, String)>) -> io::Result<()> {
        for (file, value) in settings {
            match fs::write(self.directory.join(file), &value) {
                Ok(()) => {}
                // A kernel without swap accounting has no such file, and swap is then limited with memory.
                Err(_) if is_swap(file) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Files and values, in the order the kernel wants them.
    fn settings(&self, limits: &Limits) -> Vec<(&'static str, String)> {
        let mut list = Vec::new();
        let memory = memory_bytes(limits).to_string();
        let hierarchy = &self.hierarchy;
        if hierarchy.memory && hierarchy.unified {
            list.extend([("memory.max", memory), ("memory.swap.max", "0".to_owned())]);
        } else if hierarchy.memory {
            list.extend([("memory.limit_in_bytes", memory.clone()), ("memory.memsw.limit_in_bytes", memory)]);
        }
        if hierarchy.pids {
            list.push(("pids.max", (u64::from(limits.processes) + GUEST_PROCESSES).to_string()));
        }
        if hierarchy.cpu {
            let quota_us = u64::from(limits.cpus_milli) * CPU_PERIOD_US / 1000;
            if hierarchy.unified {
                list.push(("cpu.max", format!("{quota_us} {CPU_PERIOD_US}")));
            } else {
                list.push(("cpu.cfs_quota_us", quota_us.to_string()));
            }
        }
        list
    }

    fn check(&self, limits: &Limits) -> Result<(), String> {
        self.check_all(self.settings(limits))
    }

    fn check_all(&self, settings: Vec<(&'static str, String)>) -> Result<(), String> {
        const PAGE_BYTES: u64 = 65_536;
        for (file, wanted) in settings {
            let Ok(found) = kernel_file::read_value(&self.directory.join(file)) else {
                if is_swap(file) {
                    continue;
                }
                return Err(format!("{file} cannot be read"));
            };
            let same = match (found.trim().parse::<u64>(), wanted.parse::<u64>()) {
                // The kernel rounds memory down to whole pages.
                (Ok(found), Ok(wanted)) => found <= wanted && found + PAGE_BYTES >= wanted,
                _ => found.trim() == wanted,
            };
            if !same {
                return Err(format!("{file} is {} instead of {wanted}", found.trim()));
            }
        }
        Ok(())
    }

    fn measure(&self, usage: &mut Usage) {
        self.count(usage);
        if self.hierarchy.memory {
            let peak = if self.hierarchy.unified { "memory.peak" } else { "memory.max_usage_in_bytes" };
            usage.memory_peak_bytes = self.number(peak);
        }
        if self.hierarchy.pids {
            usage.processes_peak = self.number("pids.peak");
        }
    }

    fn count(&self, usage: &mut Usage) {
        let hierarchy = &self.hierarchy;
        if hierarchy.unified {
            usage.cpu_us = self.keyed("cpu.stat", "usage_usec");
        } else if hierarchy.cpuacct {
            usage.cpu_us = self.number("cpuacct.usage") / 1000;
        }
        if hierarchy.memory {
            let events = if hierarchy.unified { "memory.events" } else { "memory.oom_control" };
            usage.oom_kills = self.keyed(events, "oom_kill");
        }
        if hierarchy.pids {
            usage.process_refusals = self.keyed("pids.events", "max");
        }
    }

    fn number(&self, file: &str) -> u64 {
        let text = kernel_file::read_value(&self.directory.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    fn keyed(&self, file: &str, key: &str) -> u64 {
        let text = kernel_file::read_value(&self.directory.join(file)).unwrap_or_default();
        keyed_in(&text, key).unwrap_or(0)
    }
}

fn keyed_in(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value.and_then(|number| number.trim().parse().ok())
}

fn is_swap(file: &str) -> bool {
    file == "memory.memsw.limit_in_bytes" || file == "memory.swap.max"
}

/// Files of the sandbox are memory too: adding them keeps a full disk apart from used-up memory.
fn memory_bytes(limits: &Limits) -> u64 {
    limits.memory_bytes.saturating_add(limits.disk_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(unified: bool, name: &str) -> Group {
        let directory = std::env::temp_dir().join(format!("palisade-group-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let hierarchy = Hierarchy {
            parent: directory.clone(),
            unified,
            memory: true,
            pids: true,
            cpu: true,
            cpuacct: false,
        };
        Group { hierarchy, directory }
    }

    /// Plain files stand for the kernel's: what is written is what version 2 documents.
    #[test]
    fn version_2_limits_are_written_checked_and_measured() {
        let group = group(true, "v2");
        let limits = Limits { cpus_milli: 1500, ..Limits::default() };
        group.limit(&limits).unwrap();
        let read = |file: &str| fs::read_to_string(group.directory.join(file)).unwrap();
        assert_eq!(read("memory.max"), (768_u64 << 20).to_string());
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("pids.max"), "65");
        assert_eq!(read("cpu.max"), "150000 100000");
        group.check(&limits).unwrap();
        fs::write(group.directory.join("pids.max"), "max").unwrap();
        assert!(group.check(&limits).unwrap_err().contains("pids.max"));
        fs::write(group.directory.join("cpu.stat"), "usage_usec 1234\nuser_usec 1\n").unwrap();
        fs::write(group.directory.join("memory.events"), "oom 5\noom_kill 2\n").unwrap();
        fs::write(group.directory.join("pids.events"), "max 3\n").unwrap();
        let mut usage = Usage::default();
        group.measure(&mut usage);
        fs::remove_dir_all(&group.directory).unwrap();
        assert_eq!((usage.cpu_us, usage.oom_kills, usage.process_refusals), (1234, 2, 3));
    }

    #[test]
    fn only_what_changed_is_written_and_memory_in_the_order_that_version_1_wants() {
        let group = group(false, "change");
        let usual = Limits::default();
        let more = Limits { memory_bytes: usual.memory_bytes * 2, processes: 128, ..usual.clone() };
        let names = |from: &Limits, to: &Limits| -> Vec<&str> {
            group.changed(from, to).into_iter().map(|(file, _)| file).collect()
        };
        assert_eq!(names(&usual, &usual), [""; 0]);
        let memory = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
        assert_eq!(names(&usual, &more), [memory[0], memory[1], "pids.max"]);
        group.change(&usual, &more).unwrap();
        group.change(&more, &usual).unwrap();
        let read = |file: &str| fs::read_to_string(group.directory.join(file)).unwrap();
        let found = [memory[0], memory[1], "pids.max"].map(read);
        let is_there = |file: &str| group.directory.join(file).exists();
        let has_cpu = is_there("cpu.cfs_quota_us");
        fs::remove_dir_all(&group.directory).unwrap();
        assert_eq!(found, ["805306368", "805306368", "65"]);
        assert!(!has_cpu, "a limit was written that stays as it is");
    }

    #[test]
    fn processor_time_is_read_again_and_again_by_one_descriptor() {
        for (unified, file, texts) in [
            (false, "cpuacct.usage", ["5000\n", "7000\n"]),
            (true, "cpu.stat", ["usage_usec 5\nuser_usec 1\n", "usage_usec 7\nuser_usec 1\n"]),
        ] {
            let mut group = group(unified, if unified { "cpu2" } else { "cpu1" });
            group.hierarchy.cpuacct = !unified;
            let directory = group.directory.clone();
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

    #[test]
    fn version_1_limits_are_written() {
        let group = group(false, "v1");
        group.limit(&Limits::default()).unwrap();
        let read = |file: &str| fs::read_to_string(group.directory.join(file)).unwrap();
        let (memory, quota) = (read("memory.limit_in_bytes"), read("cpu.cfs_quota_us"));
        fs::remove_dir_all(&group.directory).unwrap();
        assert_eq!((memory.as_str(), quota.as_str()), ("805306368", "100000"));
    }
}
