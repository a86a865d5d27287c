//! Reads the kernel's small files in one or two reads. The standard library begins with 32 bytes and asks for
//! a size that such files do not report.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

/// Most files fit.
const FIRST_BYTES: usize = 8 * 1024;
/// One setting or counter is shorter.
const VALUE_BYTES: usize = 1024;

/// The whole file.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    read_again(&open(path.as_ref())?)
}

/// The first `bytes_max` of a file that a program can make arbitrarily long, and whether that was all of it.
pub(super) fn read_at_most(path: impl AsRef<Path>, bytes_max: usize) -> io::Result<(String, bool)> {
    let file = open(path.as_ref())?;
    let mut bytes = Vec::with_capacity(FIRST_BYTES.min(bytes_max));
    while bytes.len() < bytes_max {
        bytes.reserve(VALUE_BYTES);
        let offset = bytes.len() as u64;
        match rustix::io::pread(&file, rustix::buffer::spare_capacity(&mut bytes), offset) {
            Ok(0) => return Ok((text(bytes), true)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((text(bytes), false))
}

/// The current content of an open file.
pub(super) fn read_again(file: &impl AsFd) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(FIRST_BYTES);
    loop {
        // The kernel keeps what does not fit for the next read, so the buffer need not hold all of it.
        bytes.reserve(VALUE_BYTES);
        let offset = bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), offset) {
            Ok(0) => return Ok(text(bytes)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A file of a control group that holds one setting or a few counters. The kernel returns all of it at once.
pub(super) fn read_value(path: &Path) -> io::Result<String> {
    read_value_again(&open(path)?)
}

/// The current content of such a file that is open.
pub(super) fn read_value_again(file: &impl AsFd) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(VALUE_BYTES);
    rustix::io::retry_on_intr(|| rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), 0))?;
    Ok(text(bytes))
}

pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A program chooses the names of its processes, files and sockets. Invalid UTF-8 in them must not hide the
/// rest.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_a_size_are_read_to_their_end() {
        let usual = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(read("/proc/self/mountinfo").unwrap(), usual);
        assert!(read("/proc/self/status").unwrap().ends_with('\n'));
        assert!(read("/proc/kallsyms").is_ok_and(|text| text.len() > FIRST_BYTES));
    }

    #[test]
    fn a_name_that_is_no_text_hides_nothing() {
        let read = std::thread::spawn(|| {
            rustix::thread::set_name(c"\xff\xfe").unwrap();
            read("/proc/thread-self/status")
        });
        let status = read.join().unwrap().unwrap();
        assert!(status.starts_with("Name:\t\u{fffd}") && status.contains("Threads:"));
    }

    #[test]
    fn a_file_without_end_is_left_off() {
        let (text, is_whole) = read_at_most("/proc/kallsyms", 10_000).unwrap();
        assert!(text.len() >= 10_000 && text.len() < 40_000 && !is_whole);
        let (text, is_whole) = read_at_most("/proc/self/status", 100_000).unwrap();
        assert!(text.ends_with('\n') && is_whole);
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        assert_eq!(read("/proc/self/nothing").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(read_value(Path::new("/proc/self/nothing")).is_err());
    }
}
