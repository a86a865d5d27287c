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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::super::walk::DEPTH_MAX;
    use super::*;

    const BOUNDS: TreeBounds = TreeBounds { entries_max: 4, bytes_max: 8, patience: Duration::from_secs(60) };

    /// Takes everything.
    struct Taking;

    impl TreeSink for Taking {
        fn entry(&mut self, _: &TreeEntry<'_>) -> Result<(), String> {
            Ok(())
        }

        fn bytes(&mut self, _: &[u8]) -> Result<(), String> {
            Ok(())
        }

        fn finish(&mut self) -> Result<(), String> {
            Ok(())
        }
    }

    /// Reads a directory `product` with such files, each with its size.
    fn read_with(bounds: TreeBounds, files: &[(&str, usize)]) -> Result<(), String> {
        let folder = harness::TestFolder::new();
        fs::create_dir(folder.path().join("product")).unwrap();
        for (name, size) in files {
            folder.file(&format!("product/{name}"), vec![b'x'; *size]);
        }
        let root = OwnedFd::from(File::open(folder.path()).unwrap());
        let path = FilePath::parse("product").unwrap();
        let read = read(&root, &path, bounds, Box::new(Taking));
        read.map(drop).map_err(|error| match error {
            FileError::Failed(reason) => reason,
            other => other.to_string(),
        })
    }

    #[test]
    fn a_product_is_read_within_its_bounds() {
        let four = [("a", 2), ("b", 2), ("c", 2), ("d", 2)];
        assert_eq!(read_with(BOUNDS, &four), Ok(()));
        let five = [("a", 0), ("b", 0), ("c", 0), ("d", 0), ("e", 0)];
        assert!(read_with(BOUNDS, &five).unwrap_err().contains("too many files"));
        assert!(read_with(BOUNDS, &[("a", 9)]).unwrap_err().contains("too large"));
        assert!(read_with(BOUNDS, &[("a", 5), ("b", 4)]).unwrap_err().contains("too large"));
        let late = TreeBounds { patience: Duration::ZERO, ..BOUNDS };
        assert!(read_with(late, &[("a", 1)]).unwrap_err().contains("too long"));
        let wide = TreeBounds { entries_max: 1000, ..BOUNDS };
        let deep = format!("{}file", "d/".repeat(DEPTH_MAX + 1));
        assert!(read_with(wide, &[(&deep, 1)]).unwrap_err().contains("too deep"));
    }
}
