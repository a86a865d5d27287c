//! Moves the program of a zygote process into large pages.
//!
//! Every fork maps file-backed pages anew, a few at each fault, and the kernel unmaps them page by page at
//! its end. A fork shares private memory in pages of two megabytes with one entry for each page.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use super::memory::Mapping;

const LARGE_BYTES: usize = 2 << 20;

/// Moves the code and constants of this process's program into large pages, as far as they fill whole ones.
/// Must be called while the process has one thread. Without large pages, or with a program that is too small,
/// nothing changes.
pub(crate) fn enlarge_program() {
    let program = fs::read_link("/proc/self/exe").unwrap_or_default();
    let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let parts = text.lines().filter_map(|line| constant_part(line, &program));
    // A part that cannot be replaced stays as it is.
    whole_pages(parts).and_then(|place| replace(&place).ok());
}

/// The range of a line of /proc/self/maps if it belongs to the program and is not writable.
fn constant_part(line: &str, program: &Path) -> Option<Range<usize>> {
    let Mapping { place, permissions, path } = Mapping::parse(line)?;
    let is_constant = matches!(permissions, "r--p" | "r-xp");
    (is_constant && path == Some(program)).then_some(place)
}

/// The large pages that the first contiguous parts fill.
fn whole_pages(mut parts: impl Iterator<Item = Range<usize>>) -> Option<Range<usize>> {
    let mut whole = parts.next()?;
    while let Some(part) = parts.next().filter(|part| part.start == whole.end) {
        whole.end = part.end;
    }
    let pages = whole.start.next_multiple_of(LARGE_BYTES)..whole.end / LARGE_BYTES * LARGE_BYTES;
    (pages.start < pages.end).then_some(pages)
}

/// Replaces the range with a copy of itself, in one step.
fn replace(place: &Range<usize>) -> io::Result<()> {
    let reservation = Reservation::new(place.len() + LARGE_BYTES)?;
    let copy = reservation.start.map_addr(|start| start.next_multiple_of(LARGE_BYTES));
    let from = with_exposed_provenance_mut::<libc::c_void>(place.start);
    // SAFETY: within the new memory, to which nothing else refers.
    told(unsafe { libc::madvise(copy, place.len(), libc::MADV_HUGEPAGE) })?;
    // SAFETY: the same; and the source is readable, as its mappings say.
    unsafe { copy.copy_from_nonoverlapping(from, place.len()) };
    // SAFETY: the same; nothing writes to it any more.
    told(unsafe { libc::mprotect(copy, place.len(), libc::PROT_READ | libc::PROT_EXEC) })?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the replacement is byte for byte identical, so code that executes there continues.
    let moved = unsafe { libc::mremap(copy, place.len(), place.len(), flags, from) };
    if moved == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn told(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// New memory. Dropping it unmaps everything that was not moved out of it.
struct Reservation {
    start: *mut libc::c_void,
    length: usize,
}

impl Reservation {
    fn new(length: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { start, length }) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: this range is owned here. Moved-away parts are unmapped, and the only thread has mapped
        // nothing there since.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(lines: &[&str]) -> Option<Range<usize>> {
        whole_pages(lines.iter().filter_map(|line| constant_part(line, Path::new("/usr/bin/python3"))))
    }

    #[test]
    fn only_large_pages_that_constant_parts_of_the_program_fill_are_meant() {
        let program = [
            "00400000-0041f000 r--p 00000000 fe:00 2477 /usr/bin/python3",
            "0041f000-006d2000 r-xp 0001f000 fe:00 2477 /usr/bin/python3",
            "006d2000-00945000 r--p 002d2000 fe:00 2477 /usr/bin/python3",
            "00946000-00e85000 rw-p 00545000 fe:00 2477 /usr/bin/python3",
            "7f38b2c7c000-7f38b30d2000 r-xp 00026000 fe:00 326279 /usr/lib/libc.so.6",
        ];
        assert_eq!(pages(&program), Some(0x40_0000..0x80_0000));
        assert_eq!(pages(&program[1..]), Some(0x60_0000..0x80_0000));
        assert_eq!(pages(&[program[0], program[2]]), None, "with a gap");
        assert_eq!(pages(&program[..1]), None, "too small");
        assert_eq!(pages(&program[3..]), None, "written to, or another's");
    }

    /// Uses this process itself: its program is large enough where tests are not optimised.
    #[test]
    fn a_program_goes_on_in_large_pages() {
        let is_own = |line: &str| line.contains(" r-xp ") && line.contains(" 00:00 0 ");
        let maps = || fs::read_to_string("/proc/self/maps").unwrap();
        let program = std::env::current_exe().unwrap();
        let Some(pages) = whole_pages(maps().lines().filter_map(|line| constant_part(line, &program))) else {
            eprintln!("SKIPPED: this program is too small");
            return;
        };
        replace(&pages).unwrap();
        assert!(maps().lines().any(is_own), "{}", maps());
        assert_eq!(pages.len() % LARGE_BYTES, 0);
    }
}
