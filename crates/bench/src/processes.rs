//! Resources of processes from /proc: memory, file descriptors, mounts, control groups.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

const BYTES_PER_MB: f64 = 1024.0 * 1024.0;

/// Memory of one process or of several.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Memory {
    /// Pages that no other process has.
    pub(super) private_mb: f64,
    /// Shared pages counted in proportion.
    pub(super) proportional_mb: f64,
    /// All resident pages.
    pub(super) resident_mb: f64,
}

impl std::iter::Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            private_mb: sum.private_mb + one.private_mb,
            proportional_mb: sum.proportional_mb + one.proportional_mb,
            resident_mb: sum.resident_mb + one.resident_mb,
        })
    }
}

/// The memory of a process; an error if it cannot be read.
pub(super) fn memory(pid: u32) -> std::io::Result<Memory> {
    Ok(parse_memory(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?))
}

fn parse_memory(text: &str) -> Memory {
    let mb = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        kilobytes.unwrap_or(0.0) * 1024.0 / BYTES_PER_MB
    };
    Memory {
        private_mb: mb("Private_Clean") + mb("Private_Dirty"),
        proportional_mb: mb("Pss"),
        resident_mb: mb("Rss"),
    }
}

/// The total memory of all descendants of a process, without the process itself. A process that cannot be
/// read is an error; one that has ended is not.
pub(super) fn memory_beneath(pid: u32) -> Result<Memory, String> {
    let mut all = Vec::new();
    for process in beneath(pid) {
        match memory(process) {
            Ok(found) => all.push(found),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(
                    "this user may not read the memory of sandboxed processes; try as root".to_owned()
                );
            }
            // This also covers a process that is just ending and has no memory any more.
            Err(_) => {}
        }
    }
    Ok(all.into_iter().sum())
}

/// All descendants of a process.
pub(super) fn beneath(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for process in numbered("/proc") {
        if let Some(parent) = parent(process) {
            children.entry(parent).or_default().push(process);
        }
    }
    let (mut found, mut queue) = (Vec::new(), vec![pid]);
    while let Some(next) = queue.pop() {
        let below = children.remove(&next).unwrap_or_default();
        found.extend(&below);
        queue.extend(below);
    }
    found
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain any character.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn numbered(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Resources that a server creates and must release.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Holdings {
    pub(super) processes: f64,
    pub(super) threads: f64,
    pub(super) mounts: f64,
    pub(super) cgroups: f64,
    pub(super) descriptors: f64,
    pub(super) files: f64,
    pub(super) resident_mb: f64,
}

impl Holdings {
    /// The resources of a server with that state directory, and of the processes that serve it.
    pub(super) fn of(server: u32, state_dir: &Path) -> Self {
        let below = beneath(server);
        let mounts = std::iter::once(&server).chain(&below).map(|pid| mounts(*pid)).max().unwrap_or(0);
        Self {
            processes: below.len() as f64,
            threads: numbered(&format!("/proc/{server}/task")).len() as f64,
            mounts: mounts as f64,
            cgroups: own_cgroups(server).iter().map(|group| folders_in(group)).sum::<usize>() as f64,
            descriptors: std::iter::once(&server).chain(&below).map(|pid| descriptors(*pid)).sum::<usize>()
                as f64,
            files: files_in(state_dir) as f64,
            resident_mb: memory(server).map_or(0.0, |memory| memory.resident_mb),
        }
    }

    /// Names and values.
    pub(super) fn parts(&self) -> [(&'static str, f64); 7] {
        [
            ("processes", self.processes),
            ("threads", self.threads),
            ("mounts", self.mounts),
            ("cgroups", self.cgroups),
            ("descriptors", self.descriptors),
            ("files", self.files),
            ("resident MB", self.resident_mb),
        ]
    }

    /// Whether nothing except memory has grown.
    pub(super) fn is_back_to(&self, before: &Self) -> bool {
        self.parts().iter().zip(before.parts()).take(6).all(|(now, before)| now.1 <= before.1)
    }
}

fn mounts(pid: u32) -> usize {
    fs::read_to_string(format!("/proc/{pid}/mountinfo")).map_or(0, |text| text.lines().count())
}

fn descriptors(pid: u32) -> usize {
    numbered(&format!("/proc/{pid}/fd")).len()
}

/// The control groups of a server: it holds a file descriptor of each, to show that it is alive.
fn own_cgroups(server: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{server}/fd")).into_iter().flatten().flatten();
    let held = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let is_group = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        path.starts_with("/sys/fs/cgroup") && name.is_some_and(|name| name.starts_with("palisade-"))
    };
    let mut groups: Vec<PathBuf> = held.filter(is_group).collect();
    groups.sort();
    groups.dedup();
    groups
}

fn folders_in(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count()
}

fn files_in(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            1 + if is_folder { files_in(&entry.path()) } else { 0 }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_megabytes() {
        let text = "0-1 ---p 0 0 [rollup]\nRss:    4096 kB\nPss:    2048 kB\nPss_Dirty: 7 kB\nPrivate_Clean: 512 kB\nPrivate_Dirty: 512 kB\n";
        let expected = Memory { private_mb: 1.0, proportional_mb: 2.0, resident_mb: 4.0 };
        assert_eq!(parse_memory(text), expected);
    }

    #[test]
    fn a_child_is_beneath_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(beneath(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!beneath(std::process::id()).contains(&child.id()));
    }
}
