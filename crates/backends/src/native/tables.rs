//! The tables of file descriptors in a sandbox.
//!
//! The threads of a process usually share one table, but a thread may have its own (CLONE_FILES in clone(2), CLOSE_RANGE_UNSHARE in
//! close_range(2)), and several processes may share one: the helper processes of gVisor share that of its kernel, which
//! holds thousands of files. `descriptors` and `nameless` therefore ask for every thread, and inspect each table once.

use std::cmp::Ordering;
use std::fs;
use std::path::Path;

use super::kernel_file;

/// One thread of each known table, in the kernel's order of the tables.
#[derive(Debug, Default)]
pub(super) struct Tables(Vec<i32>);

impl Tables {
    /// Notes the table of a thread. Returns whether it was unknown. Where the kernel cannot compare two tables, because
    /// one of the threads has ended or kcmp(2) is missing, they count as different.
    pub(super) fn note(&mut self, thread: i32) -> bool {
        let order = |known: &i32| jail::order_of_tables(*known, thread).unwrap_or(Ordering::Less);
        self.0.binary_search_by(order).map_err(|place| self.0.insert(place, thread)).is_err()
    }
}

/// All threads of a process.
pub(super) fn threads(pid: i32) -> Vec<i32> {
    let listed = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    listed.filter_map(|thread| thread.file_name().to_string_lossy().parse().ok()).collect()
}

/// Whether messages with file descriptors wait in a socket of the process or thread with that folder.
pub(super) fn carries_descriptors(folder: &Path, link: &Path) -> bool {
    let Some(number) = link.file_name() else { return false };
    let info = folder.join("fdinfo").join(number);
    let text = kernel_file::read(info).unwrap_or_default();
    text.lines()
        .any(|line| line.strip_prefix("scm_fds:").is_some_and(|count| count.trim().parse::<u64>() != Ok(0)))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn threads_share_a_table_and_processes_have_their_own() {
        let (end, ends) = mpsc::sync_channel::<()>(1);
        let waiting = std::thread::spawn(move || ends.recv());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let all = threads(own);
        assert!(all.len() >= 2, "{all:?}");
        let mut tables = Tables::default();
        assert_eq!(all.iter().filter(|thread| tables.note(**thread)).count(), 1);
        let other = i32::try_from(child.id()).unwrap();
        assert!(tables.note(other) && !tables.note(other));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tables.note(other), "what has ended cannot be compared");
        drop(end);
        waiting.join().unwrap().unwrap_err();
    }
}
