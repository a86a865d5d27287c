//! Counts what exists on the machine because of palisade, to prove that nothing is left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Things that palisade creates and must remove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Left {
    /// Processes with palisade's name, or in a user namespace other than this test's.
    pub processes: Vec<String>,
    /// Mounts of this namespace.
    pub mounts: usize,
    /// Control groups with palisade's name.
    pub cgroups: Vec<PathBuf>,
}

/// Counts what exists now. `marker` is a word in the command line of the processes to look for.
pub fn look(marker: &str) -> Left {
    Left { processes: processes(marker), mounts: mounts(), cgroups: cgroups() }
}

/// Waits until no more exists than before; the error says what is left.
pub fn wait_until_back(before: &Left, marker: &str, patience: Duration) -> Result<(), String> {
    let deadline = Instant::now() + patience;
    loop {
        let now = look(marker);
        let is_back = now.processes.len() <= before.processes.len()
            && now.mounts <= before.mounts
            && now.cgroups.iter().all(|group| before.cgroups.contains(group));
        if is_back {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("before {before:?}, now {now:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn processes(marker: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let pids = numbers.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && *name != own);
    pids.filter_map(|pid| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let text = String::from_utf8_lossy(&command).replace('\0', " ");
        text.contains(marker).then(|| format!("{pid} {}", text.chars().take(120).collect::<String>()))
    })
    .collect()
}

fn mounts() -> usize {
    fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines().count()
}

fn cgroups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), 8, &mut found);
    found
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with("palisade-") {
            found.push(entry.path());
        }
        walk(&entry.path(), depth - 1, found);
    }
}
