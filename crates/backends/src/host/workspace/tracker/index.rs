//! The entries of a tracked workspace as last seen, their size together, and what changed since a mark.
//!
//! [`super::Tracked`] keeps it. It does no input or output.

use std::collections::{BTreeMap, BTreeSet};

use rustix::fs::Stat;
use sandbox::workspace::{EntryKind, Used, is_set_aside};

use super::super::changes::Stamp;
use super::super::walk::{count, kind_of};
use super::super::write::is_draft;

/// A path relative to the workspace.
pub(super) type Name = Box<[u8]>;

#[derive(Debug, Default)]
pub(in super::super) struct Index {
    entries: BTreeMap<Name, Record>,
    used: Used,
    /// Files that changed since the mark, with their stamps at the mark. `None`: the file did not exist.
    journal: BTreeMap<Name, Option<Stamp>>,
    /// Files that can change without an event in their directory: those with several names, and those that
    /// were created by a link, whose open file descriptors may belong to another directory.
    unsteady: BTreeSet<Name>,
    /// Inodes that were seen with several names for the first time. Their other names changed without an event.
    linked: BTreeSet<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    kind: EntryKind,
    inode: u64,
    used: Used,
    /// For regular files that count as artifacts.
    stamp: Option<Stamp>,
}

impl Index {
    /// Records an entry as it is now.
    pub(super) fn put(&mut self, path: &[u8], stat: &Stat) {
        let kind = kind_of(stat);
        let mut used = Used::default();
        count(&mut used, stat);
        let stamp = (kind == EntryKind::File && is_artifact(path)).then(|| Stamp::of(stat));
        let earlier = self.entries.insert(path.into(), Record { kind, inode: stat.st_ino, used, stamp });
        self.used.bytes = self.used.bytes.saturating_add(used.bytes);
        self.used.inodes += used.inodes;
        self.forget(earlier);
        self.note(path, earlier.and_then(|record| record.stamp), stamp);
        if kind == EntryKind::File && stat.st_nlink > 1 && self.unsteady.insert(path.into()) {
            self.linked.insert(stat.st_ino);
        }
    }

    /// Removes an entry, and everything beneath it.
    pub(super) fn remove(&mut self, path: &[u8]) {
        self.remove_beneath(path);
        self.remove_one(path);
    }

    /// Removes everything beneath a path.
    pub(super) fn remove_beneath(&mut self, path: &[u8]) {
        let beneath: Name = [path, b"/"].concat().into();
        let within = self.entries.range(beneath.clone()..).map(|(other, _)| other);
        let gone: Vec<Name> = within.take_while(|other| other.starts_with(&beneath)).cloned().collect();
        gone.iter().for_each(|path| self.remove_one(path));
    }

    fn remove_one(&mut self, path: &[u8]) {
        let Some(record) = self.entries.remove(path) else { return };
        self.forget(Some(record));
        self.unsteady.remove(path);
        self.note(path, record.stamp, None);
    }

    fn forget(&mut self, record: Option<Record>) {
        let used = record.map(|record| record.used).unwrap_or_default();
        self.used.bytes = self.used.bytes.saturating_sub(used.bytes);
        self.used.inodes = self.used.inodes.saturating_sub(used.inodes);
    }

    fn note(&mut self, path: &[u8], earlier: Option<Stamp>, now: Option<Stamp>) {
        if earlier != now && !self.journal.contains_key(path) {
            self.journal.insert(path.into(), earlier);
        }
    }

    /// Whether the path is a directory with that inode.
    pub(super) fn has_directory(&self, path: &[u8], inode: u64) -> bool {
        self.entries
            .get(path)
            .is_some_and(|record| record.kind == EntryKind::Directory && record.inode == inode)
    }

    /// Whether the path is a regular file.
    pub(super) fn has_file(&self, path: &[u8]) -> bool {
        self.entries.get(path).is_some_and(|record| record.kind == EntryKind::File)
    }

    /// Examines a file at every look from now on, or no longer.
    pub(super) fn set_unsteady(&mut self, path: &[u8], is_unsteady: bool) {
        if is_unsteady {
            self.unsteady.insert(path.into());
        } else {
            self.unsteady.remove(path);
        }
    }

    pub(super) fn unsteady(&self) -> &BTreeSet<Name> {
        &self.unsteady
    }

    /// Inodes that have several names since the last call.
    pub(super) fn take_linked(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.linked)
    }

    /// The paths of these inodes, and the inodes that have none.
    pub(super) fn paths_of(&self, inodes: &BTreeSet<u64>) -> (Vec<Name>, BTreeSet<u64>) {
        if inodes.is_empty() {
            return (Vec::new(), BTreeSet::new());
        }
        let mut missing = inodes.clone();
        let mut paths = Vec::new();
        for (path, record) in self.entries.iter().filter(|(_, record)| inodes.contains(&record.inode)) {
            missing.remove(&record.inode);
            paths.push(path.clone());
        }
        (paths, missing)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.journal.len()
    }

    /// The size of everything.
    pub(super) fn used(&self) -> Used {
        Used { is_complete: true, ..self.used }
    }

    /// Changes count from now on.
    pub(super) fn mark(&mut self) {
        self.journal.clear();
    }

    /// The files that exist and differ from the mark.
    pub(super) fn changed(&self) -> Vec<Name> {
        let now = |path: &Name| self.entries.get(path).and_then(|record| record.stamp);
        let is_changed = |(path, earlier): &(&Name, &Option<Stamp>)| {
            now(path).is_some_and(|stamp| Some(stamp) != **earlier)
        };
        self.journal.iter().filter(is_changed).map(|(path, _)| path.clone()).collect()
    }

    /// The files at the mark.
    pub(super) fn at_mark(&self) -> Vec<(Name, Stamp)> {
        let unchanged = self.entries.iter().filter(|(path, _)| !self.journal.contains_key(*path));
        let unchanged = unchanged.filter_map(|(path, record)| Some((path.clone(), record.stamp?)));
        let changed = self.journal.iter().filter_map(|(path, stamp)| Some((path.clone(), (*stamp)?)));
        unchanged.chain(changed).collect()
    }
}

/// Whether a regular file with that path is an artifact: it is not in a directory that is set aside, and not a
/// draft of the host.
fn is_artifact(path: &[u8]) -> bool {
    let mut above: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    above.pop();
    !above.into_iter().any(is_set_aside) && !is_draft(path)
}
