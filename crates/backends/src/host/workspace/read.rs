//! Reads a regular file in parts of bounded size. Later changes of its name have no effect on an open file.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{OFlags, Stat};

use sandbox::BoxFuture;
use sandbox::workspace::{FileError, FilePart, FilePath, HEAD_BYTES, OpenFile, READ_BYTES_MAX, media_type};

use super::errno::told;
use super::{Work, beneath, blocking};

/// An open regular file. Later changes of its name have no effect.
#[derive(Debug, Clone)]
pub(super) struct HostFile {
    file: Arc<OwnedFd>,
    size_bytes: u64,
    modified_ms: u64,
    media_type: &'static str,
}

impl HostFile {
    pub(super) fn open(root: &OwnedFd, path: &FilePath) -> Result<Self, FileError> {
        let (file, stat) = beneath::regular(root, path.as_path(), OFlags::RDONLY)?;
        let mut head = [0_u8; HEAD_BYTES];
        let count = rustix::io::pread(&file, &mut head, 0).map_err(told)?;
        Ok(Self {
            file: Arc::new(file),
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ms: modified_ms(&stat),
            media_type: media_type(path.name(), &head[..count]),
        })
    }

    pub(super) fn known_media_type(&self) -> &'static str {
        self.media_type
    }

    pub(super) fn part(&self, offset: u64, limit: usize) -> Result<FilePart, FileError> {
        let left = usize::try_from(self.size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0_u8; limit.min(READ_BYTES_MAX).min(left)];
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::io::pread(&*self.file, &mut bytes[filled..], offset + filled as u64) {
                // The file has shrunk.
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(told(error)),
            }
        }
        let is_cut = filled < bytes.len();
        bytes.truncate(filled);
        let at_end = is_cut || offset.saturating_add(filled as u64) >= self.size_bytes;
        let media_type = self.media_type.into();
        Ok(FilePart { bytes, offset, size_bytes: self.size_bytes, at_end, media_type })
    }
}

impl OpenFile for HostFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn modified_ms(&self) -> u64 {
        self.modified_ms
    }

    fn media_type(&self) -> &str {
        self.media_type
    }

    fn read(&self, offset: u64, limit: usize) -> BoxFuture<'_, Result<FilePart, FileError>> {
        let file = self.clone();
        Box::pin(blocking(Work::Quick, move || file.part(offset, limit)))
    }
}

pub(super) fn modified_ms(stat: &Stat) -> u64 {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    seconds.saturating_mul(1000).saturating_add(u64::from(stat.st_mtime_nsec as u32 / 1_000_000))
}
