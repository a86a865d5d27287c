//! One control group: writes limits, reads measurements. [`super::CgroupSet`] holds one for each hierarchy.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ::sandbox::{Limits, Usage};

use super::Hierarchy;
use super::limits::{CPU_PERIOD_US, GroupLimits};
use crate::native::{kernel_file, sockets};

/// The file of version 1 through which processes join.
const ENTRANCE_FILE: &str = "tasks";
const PROCESSES_FILE: &str = "pids.max";
const THREADS_FILE: &str = "pids.current";
/// The memory currently charged to a group of version 1; only version 1 groups are reused.
pub(super) const MEMORY_NOW_FILE: &str = "memory.usage_in_bytes";
/// The socket accounting of version 1. By its name the limit is for TCP, but it covers UDP too (sock.c in the
/// kernel, `__sk_mem_raise_allocated`). Version 2 counts socket memory with the rest.
pub(super) const SOCKETS_LIMIT_FILE: &str = "memory.kmem.tcp.limit_in_bytes";
/// Sockets may hold one part in this many of the memory limit, where they are counted separately.
const SOCKETS_SHARE: u64 = 4;

/// A group of one hierarchy.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) hierarchy: Hierarchy,
    pub(super) directory: PathBuf,
    /// Files that are read at the end of a run, or written when the group is reused. They are opened ahead of
    /// time.
    kept: Vec<(&'static str, File)>,
}

impl Group {
    /// Creates the group; its limits are written afterwards.
    pub(super) fn make(hierarchy: Hierarchy, directory: PathBuf) -> io::Result<Self> {
        fs::create_dir(&directory)?;
        Ok(Self { hierarchy, directory, kept: Vec::new() })
    }

    /// A group that a container engine created.
    pub(super) fn adopt(hierarchy: Hierarchy, directory: PathBuf) -> Self {
        Self { hierarchy, directory, kept: Vec::new() }
    }

    /// Whether the files that a container engine writes have the values that it was asked for.
    pub(super) fn check_asked(&self, limits: &Limits) -> Result<(), String> {
        let asked = self.settings(limits).into_iter().filter(|(file, _)| !is_optional(file));
        self.check_all(asked.collect())
    }

    pub(super) fn limit(&self, limits: &Limits) -> io::Result<()> {
        self.write(self.settings(limits))
    }

    /// Opens the files ahead of time, so that the later access costs less. A file that cannot be opened is
    /// tried again then.
    pub(super) fn open_files(&mut self) {
        let Hierarchy { memory, pids, unified, .. } = self.hierarchy;
        let of_memory = [self.peak_file(), self.events_file(), MEMORY_NOW_FILE];
        let of_processes = ["pids.peak", "pids.events", THREADS_FILE];
        let measured =
            of_memory.into_iter().filter(|_| memory).chain(of_processes.into_iter().filter(|_| pids));
        let settings = self.settings(&Limits::default()).into_iter().map(|(file, _)| file);
        let entrance = (!unified).then_some(ENTRANCE_FILE);
        for name in measured.chain(self.cpu_file()).chain(settings).chain(entrance).collect::<Vec<_>>() {
            // The file may be open already, from the sandbox that had the group before.
            if self.kept(name).is_none()
                && let Ok(file) = self.open(name)
            {
                self.kept.push((name, file));
            }
        }
    }

    /// Opens a file for what the kernel allows: some are read-only, some write-only.
    fn open(&self, name: &str) -> io::Result<File> {
        let path = self.directory.join(name);
        // Handed to the joining process, which need not read it.
        let is_entrance = name == ENTRANCE_FILE;
        let both = OpenOptions::new().read(!is_entrance).write(true).open(&path);
        both.or_else(|_| File::open(&path))
    }

    /// Whether almost no memory is charged to the group any more. The kernel releases the rest of a sandbox
    /// gradually.
    pub(super) fn is_quiet(&self) -> bool {
        /// The kernel keeps a reserve for each core, and a few objects of its own.
        const QUIET_BYTES: u64 = 2 << 20;
        // An unreadable value is treated as unknown.
        let is_little =
            |charged: String| charged.trim().parse::<u64>().is_ok_and(|bytes| bytes <= QUIET_BYTES);
        !self.hierarchy.memory || is_little(self.text(MEMORY_NOW_FILE))
    }

    /// The file with the peak memory.
    fn peak_file(&self) -> &'static str {
        if self.hierarchy.unified { "memory.peak" } else { "memory.max_usage_in_bytes" }
    }

    /// The file that counts processes killed for lack of memory.
    fn events_file(&self) -> &'static str {
        if self.hierarchy.unified { "memory.events" } else { "memory.oom_control" }
    }

    /// The file that counts processor time, if there is one.
    pub(super) fn cpu_file(&self) -> Option<&'static str> {
        match (self.hierarchy.unified, self.hierarchy.cpuacct) {
            (true, _) => Some("cpu.stat"),
            (false, true) => Some("cpuacct.usage"),
            (false, false) => None,
        }
    }

    /// Resets the counters of version 1.
    pub(super) fn count_anew(&self) -> io::Result<()> {
        if let Some(file) = self.cpu_file() {
            self.put(file, "0")?;
        }
        self.forget_peak()
    }

    /// Resets the kernel's peak value.
    pub(super) fn forget_peak(&self) -> io::Result<()> {
        if self.hierarchy.memory { self.put(self.peak_file(), "0") } else { Ok(()) }
    }

    /// The file into which a process writes itself to join.
    pub(super) fn entrance(&self) -> io::Result<OwnedFd> {
        let opened = match self.kept(ENTRANCE_FILE) {
            Some(file) => file.try_clone(),
            None => OpenOptions::new().write(true).open(self.directory.join(ENTRANCE_FILE)),
        };
        opened.map(OwnedFd::from)
    }

    /// Every process in the group. The file is opened each time, because version 1 caches the list per open
    /// file.
    pub(super) fn processes(&self) -> io::Result<Vec<i32>> {
        self.list("cgroup.procs")
    }

    /// Every thread in the group that is not dead yet.
    pub(super) fn threads(&self) -> io::Result<Vec<i32>> {
        self.list(if self.hierarchy.unified { "cgroup.threads" } else { ENTRANCE_FILE })
    }

    /// How many threads are in the group, including dead ones that are not reaped yet.
    pub(super) fn threads_count(&self) -> Option<u64> {
        self.text(THREADS_FILE).trim().parse().ok()
    }

    fn list(&self, file: &str) -> io::Result<Vec<i32>> {
        let listed = kernel_file::read(self.directory.join(file))?;
        let number =
            |line: &str| line.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
        listed.lines().map(number).collect()
    }

    /// Version 1 requires at every moment that the limit of memory plus swap is at least the limit of memory.
    pub(super) fn change(&self, from: &Limits, to: &Limits) -> io::Result<()> {
        let mut settings = self.changed(from, to);
        if GroupLimits::of(to).memory_bytes > GroupLimits::of(from).memory_bytes {
            settings.reverse();
        }
        self.write(settings)
    }

    pub(super) fn changed(&self, from: &Limits, to: &Limits) -> Vec<(&'static str, String)> {
        let pairs = self.settings(from).into_iter().zip(self.settings(to));
        pairs.filter(|(old, new)| old != new).map(|(_, new)| new).collect()
    }

    /// Sets only the limit of processes.
    pub(super) fn limit_processes(&self, limits: &Limits) -> io::Result<()> {
        self.put(PROCESSES_FILE, &GroupLimits::of(limits).processes.to_string())
    }

    fn write(&self, settings: Vec<(&'static str, String)>) -> io::Result<()> {
        for (file, value) in settings {
            match self.put(file, &value) {
                Ok(()) => {}
                Err(_) if is_optional(file) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Files and values, in the order that the kernel requires.
    fn settings(&self, limits: &Limits) -> Vec<(&'static str, String)> {
        let mut list = Vec::new();
        let memory = GroupLimits::of(limits).memory_bytes.to_string();
        let hierarchy = &self.hierarchy;
        if hierarchy.memory && hierarchy.unified {
            list.extend([("memory.max", memory), ("memory.swap.max", "0".to_owned())]);
        } else if hierarchy.memory {
            list.extend([("memory.limit_in_bytes", memory.clone()), ("memory.memsw.limit_in_bytes", memory)]);
            list.push((SOCKETS_LIMIT_FILE, socket_bytes(limits).to_string()));
        }
        if hierarchy.pids {
            list.push((PROCESSES_FILE, GroupLimits::of(limits).processes.to_string()));
        }
        if hierarchy.cpu {
            let quota_us = GroupLimits::of(limits).cpu_quota_us;
            if hierarchy.unified {
                list.push(("cpu.max", format!("{quota_us} {CPU_PERIOD_US}")));
            } else {
                list.push(("cpu.cfs_quota_us", quota_us.to_string()));
            }
        }
        list
    }

    pub(super) fn check(&self, limits: &Limits) -> Result<(), String> {
        self.check_all(self.settings(limits))
    }

    pub(super) fn check_all(&self, settings: Vec<(&'static str, String)>) -> Result<(), String> {
        const PAGE_BYTES: u64 = 65_536;
        for (file, wanted) in settings {
            let Ok(found) = self.get(file) else {
                if is_optional(file) {
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

    pub(super) fn measure(&self, usage: &mut Usage) {
        self.count(usage);
        if self.hierarchy.memory {
            usage.memory_peak_bytes = self.number(self.peak_file());
        }
        if self.hierarchy.pids {
            usage.processes_peak = self.number("pids.peak");
        }
    }

    /// The file of version 1 that makes the kernel release what it can.
    pub(super) fn reclaim_file(&self) -> PathBuf {
        self.directory.join("memory.force_empty")
    }

    pub(super) fn count(&self, usage: &mut Usage) {
        let hierarchy = &self.hierarchy;
        if hierarchy.unified {
            usage.cpu_us = self.keyed("cpu.stat", "usage_usec");
        } else if hierarchy.cpuacct {
            usage.cpu_us = self.number("cpuacct.usage") / 1000;
        }
        if hierarchy.memory {
            usage.oom_kills = self.keyed(self.events_file(), "oom_kill");
        }
        if hierarchy.pids {
            usage.process_refusals = self.keyed("pids.events", "max");
        }
    }

    pub(super) fn number(&self, file: &str) -> u64 {
        self.text(file).trim().parse().unwrap_or(0)
    }

    fn keyed(&self, file: &str, key: &str) -> u64 {
        keyed_in(&self.text(file), key).unwrap_or(0)
    }

    fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default()
    }

    pub(super) fn get(&self, name: &str) -> io::Result<String> {
        match self.kept(name) {
            Some(file) => kernel_file::read_value_again(file),
            None => kernel_file::read_value(&self.directory.join(name)),
        }
    }

    fn put(&self, name: &str, value: &str) -> io::Result<()> {
        match self.kept(name) {
            Some(file) => Ok(rustix::io::pwrite(file, value.as_bytes(), 0).map(drop)?),
            None => fs::write(self.directory.join(name), value),
        }
    }

    /// One of its open files.
    pub(super) fn kept(&self, name: &str) -> Option<&File> {
        self.kept.iter().find(|(known, _)| *known == name).map(|(_, file)| file)
    }
}

pub(super) fn keyed_in(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value.and_then(|number| number.trim().parse().ok())
}

/// A kernel without swap accounting lacks the swap files, and swap is then limited with memory. On a kernel
/// that does not count sockets separately, the watch counts them ([`Group::counts_sockets`]).
fn is_optional(file: &str) -> bool {
    ["memory.memsw.limit_in_bytes", "memory.swap.max", SOCKETS_LIMIT_FILE].contains(&file)
}

fn socket_bytes(limits: &Limits) -> u64 {
    (limits.memory_bytes / SOCKETS_SHARE).min(sockets::bytes_max())
}

/// A group of plain files, for tests.
#[cfg(test)]
pub(super) fn group(unified: bool, name: &str) -> Group {
    let directory = std::env::temp_dir().join(format!("palisade-group-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let hierarchy =
        Hierarchy { parent: directory.clone(), unified, memory: true, pids: true, cpu: true, cpuacct: false };
    Group { hierarchy, directory, kept: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain files replace the kernel's files. The test expects the values that version 2 documents.
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
        assert_eq!(names(&usual, &more), [memory[0], memory[1], SOCKETS_LIMIT_FILE, "pids.max"]);
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
    fn version_1_limits_are_written() {
        let group = group(false, "v1");
        group.limit(&Limits::default()).unwrap();
        let read = |file: &str| fs::read_to_string(group.directory.join(file)).unwrap();
        let (memory, quota) = (read("memory.limit_in_bytes"), read("cpu.cfs_quota_us"));
        fs::remove_dir_all(&group.directory).unwrap();
        assert_eq!((memory.as_str(), quota.as_str()), ("805306368", "100000"));
    }

    #[test]
    fn what_is_opened_before_is_read_again() {
        let mut group = group(false, "meters");
        let write = |file: &str, text: &str| fs::write(group.directory.join(file), text).unwrap();
        write("memory.max_usage_in_bytes", "10\n");
        write("memory.usage_in_bytes", "20\n");
        group.open_files();
        group.open_files();
        let count = group.kept.len();
        let write = |file: &str, text: &str| fs::write(group.directory.join(file), text).unwrap();
        write("memory.max_usage_in_bytes", "30\n");
        write("cgroup.procs", "1\n2\n3\n");
        let mut usage = Usage::default();
        group.measure(&mut usage);
        let (processes, was_quiet) = (group.processes().unwrap(), group.is_quiet());
        write("memory.usage_in_bytes", &(64 << 20).to_string());
        let is_quiet = group.is_quiet();
        fs::remove_dir_all(&group.directory).unwrap();
        assert_eq!((usage.memory_peak_bytes, processes), (30, vec![1, 2, 3]));
        assert!(was_quiet && !is_quiet);
        assert_eq!(count, 2, "opened twice");
    }
}
