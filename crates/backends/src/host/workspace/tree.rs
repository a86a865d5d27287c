//! Reads a whole directory of a workspace out, by descriptor: the product of a build.
//!
//! The caller reads it after the program has ended. The walk still trusts no name: each file is opened from the
//! descriptor of the directory, without following a link.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use rustix::fs::OFlags;
use sandbox::workspace::{EntryKind, FileError, FilePath, TreeBounds, TreeEntry, TreeKind, TreeSink};

use super::beneath;
use super::errno::told;
use super::walk::{Then, WalkedEntry, walk_for};

/// How much is read at once.
const PART_BYTES: usize = 256 << 10;
/// The permission bits of a mode, with set-user-id, set-group-id and the sticky bit.
const PERMISSIONS: u32 = 0o7777;

struct Pass<'a> {
    top: &'a OwnedFd,
    bounds: TreeBounds,
    until: Instant,
    sink: Box<dyn TreeSink>,
    entries: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

/// Gives every entry below a directory to the sink.
pub(super) fn read(
    root: &OwnedFd,
    path: &FilePath,
    bounds: TreeBounds,
    sink: Box<dyn TreeSink>,
) -> Result<Box<dyn TreeSink>, FileError> {
    let top = beneath::directory(root, path.as_path()).map_err(told)?;
    let walked_from = beneath::directory(&top, Path::new(".")).map_err(told)?;
    let until = Instant::now() + bounds.patience;
    let buffer = vec![0; PART_BYTES];
    let mut pass = Pass { top: &top, bounds, until, sink, entries: 0, bytes: 0, buffer };
    let mut failure = None;
    let walked = walk_for(bounds.patience, walked_from, |found| match pass.take(found) {
        Ok(()) => Then::Enter,
        Err(error) => {
            failure = Some(error);
            Then::Stop
        }
    })?;
    match failure {
        Some(error) => Err(error),
        None if !walked.is_complete => Err(refused("it is too deep, or reading it took too long")),
        None => {
            pass.sink.finish().map_err(FileError::Failed)?;
            Ok(pass.sink)
        }
    }
}

fn refused(reason: &str) -> FileError {
    FileError::Failed(reason.to_owned())
}

impl Pass<'_> {
    fn take(&mut self, found: &WalkedEntry<'_>) -> Result<(), FileError> {
        self.entries += 1;
        if self.entries > self.bounds.entries_max {
            return Err(refused("it has too many files"));
        }
        let path = std::str::from_utf8(found.path).map_err(|_| refused("a name in it is not UTF-8"))?;
        let kind = match found.kind {
            EntryKind::Directory => TreeKind::Directory,
            EntryKind::File => return self.file(path),
            EntryKind::Link => {
                let target = beneath::link_target(self.top, Path::new(path)).map_err(told)?;
                let target = String::from_utf8(target).map_err(|_| refused("a link in it is not UTF-8"))?;
                let kind = TreeKind::Link { target: &target };
                return self.sink.entry(&TreeEntry { path, kind }).map_err(FileError::Failed);
            }
            EntryKind::Other => TreeKind::Other,
        };
        self.sink.entry(&TreeEntry { path, kind }).map_err(FileError::Failed)
    }

    fn file(&mut self, path: &str) -> Result<(), FileError> {
        let (opened, stat) = beneath::regular(self.top, Path::new(path), OFlags::RDONLY)?;
        let kind = TreeKind::File { mode: stat.st_mode & PERMISSIONS };
        self.sink.entry(&TreeEntry { path, kind }).map_err(FileError::Failed)?;
        let mut file = File::from(opened);
        loop {
            let count = file.read(&mut self.buffer).map_err(told)?;
            if count == 0 {
                return Ok(());
            }
            self.bytes = self.bytes.saturating_add(count as u64);
            if self.bytes > self.bounds.bytes_max {
                return Err(refused("it is too large"));
            }
            if Instant::now() > self.until {
                return Err(refused("reading it took too long"));
            }
            self.sink.bytes(&self.buffer[..count]).map_err(FileError::Failed)?;
        }
    }
}
