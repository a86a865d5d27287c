//! Memory of a process that is copied many times: its command line, its heap, and its interpreter's pages.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::ptr::with_exposed_provenance_mut;

/// The command line of this process, which other processes of its sandbox can read (see proc(5), cmdline).
pub(crate) struct Arguments {
    start: usize,
    words: Vec<u8>,
}

impl Arguments {
    pub(crate) fn find() -> Option<Self> {
        /// Number of fields in `stat` between the name and these two.
        const BEFORE: usize = 45;
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(BEFORE);
        let (start, end): (usize, usize) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let length = end.checked_sub(start).filter(|length| start != 0 && *length < 1 << 20)?;
        let mut words = vec![0; length];
        // SAFETY: the kernel put that many bytes there when it started this program, and nothing unmaps the
        // stack.
        unsafe {
            with_exposed_provenance_mut::<u8>(start).copy_to_nonoverlapping(words.as_mut_ptr(), length)
        };
        Some(Self { start, words })
    }

    /// Overwrites them with zeros.
    pub(crate) fn hide(&self) {
        // SAFETY: as many bytes of the stack as were read there; the interpreter has copied what it needs.
        unsafe { with_exposed_provenance_mut::<u8>(self.start).write_bytes(0, self.words.len()) };
    }

    /// Puts them back.
    pub(crate) fn show(&self) {
        let place = with_exposed_provenance_mut::<u8>(self.start);
        // SAFETY: the same bytes as before, in the same place.
        unsafe { place.copy_from_nonoverlapping(self.words.as_ptr(), self.words.len()) };
    }
}

/// Allocates every free piece of the C library's heap, permanently. Copies then allocate contiguous memory
/// beyond it instead of scattered pieces. This matters because each page that a copy writes to is copied
/// first.
pub(crate) fn fill_heap() {
    /// Larger than nearly every free piece, so that this allocation comes from the end of the heap.
    const LARGEST: usize = 96 << 10;
    /// A bound, because a C library with another kind of allocator would never run out of free pieces.
    const ALL_MAX: usize = 32 << 20;
    let (mut size, mut taken) = (LARGEST, 0);
    let end = ask(size);
    give_back(end);
    while size >= 16 && taken < ALL_MAX {
        let piece = ask(size);
        // Pieces below the end are kept.
        if piece.is_null() || piece.addr() >= end.addr() {
            give_back(piece);
            size = size * 3 / 4;
        } else {
            taken += size;
        }
    }
}

fn ask(size: usize) -> *mut libc::c_void {
    // SAFETY: any size may be requested; null is a valid answer.
    let piece = unsafe { libc::malloc(size) };
    // The compiler knows malloc and could remove a call whose result is unused.
    std::hint::black_box(piece)
}

fn give_back(piece: *mut libc::c_void) {
    // SAFETY: a piece that was just allocated and is not used anywhere, or null.
    unsafe { libc::free(piece) };
}

/// A memory mapping, parsed from a line of /proc/self/maps; see proc(5).
pub(super) struct Mapping<'a> {
    pub(super) place: Range<usize>,
    pub(super) permissions: &'a str,
    /// The mapped file, or a name in brackets.
    pub(super) path: Option<&'a Path>,
}

impl<'a> Mapping<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let place = number(start)?..number(end)?;
        Some(Self { place, permissions: fields.next()?, path: fields.nth(3).map(Path::new) })
    }
}

/// Memory that only the interpreter uses, which carries this code: the program's code, and the large pieces
/// that it requested from the kernel. It excludes the program's data, through which the C library is found,
/// and the memory that the C library manages, because this code uses both.
pub(crate) struct InterpreterMemory(Vec<Range<usize>>);

impl InterpreterMemory {
    /// Called by the zygote process itself, of which all others are copies. Memory that cannot be attributed
    /// is left out.
    pub(crate) fn find() -> Self {
        let program = fs::read_link("/proc/self/exe").unwrap_or_default();
        let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let needed = [thread_address(), (&raw const text).addr(), text.as_ptr().addr()];
        let ranges = text.lines().filter_map(|line| range_of_interpreter(line, &program));
        Self(ranges.filter(|piece| !needed.iter().any(|place| piece.contains(place))).collect())
    }

    /// Releases it. A later read finds zeros, or the program's code.
    pub(crate) fn drop(&self) {
        for piece in &self.0 {
            let place = with_exposed_provenance_mut::<libc::c_void>(piece.start);
            // SAFETY: private memory of an interpreter that will not run in this process any more, and that
            // nothing else uses.
            unsafe { libc::madvise(place, piece.len(), libc::MADV_DONTNEED) };
        }
    }
}

/// An address in this thread's own storage.
fn thread_address() -> usize {
    // SAFETY: always gives a valid pointer into the memory of this thread.
    unsafe { libc::__errno_location() }.addr()
}

/// The range of a line of /proc/self/maps if it belongs to the interpreter only.
fn range_of_interpreter(line: &str, program: &Path) -> Option<Range<usize>> {
    /// This code never holds a piece that large, and the C library's heap has a name.
    const LARGE_BYTES: usize = 1 << 20;
    let Mapping { place, permissions, path } = Mapping::parse(line)?;
    let is_its = match path {
        None => permissions == "rw-p" && place.len() >= LARGE_BYTES,
        Some(path) => permissions == "r-xp" && path == program,
    };
    is_its.then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_the_interpreters_is_given_back() {
        let of = |line: &str| range_of_interpreter(line, Path::new("/usr/bin/python3"));
        assert_eq!(
            of("00400000-00500000 r-xp 00000000 fe:00 2477 /usr/bin/python3"),
            Some(0x40_0000..0x50_0000)
        );
        assert_eq!(
            of("7f0000000000-7f0000200000 rw-p 00000000 00:00 0 "),
            Some(0x7f00_0000_0000..0x7f00_0020_0000)
        );
        for others in [
            "7f0000000000-7f0000080000 rw-p 00000000 00:00 0 ",
            "7f0000000000-7f0000200000 r--p 00000000 00:00 0 ",
            "0efd6000-0fff4000 rw-p 00000000 00:00 0                  [heap]",
            "7ffe5343c000-7fff5345d000 rw-p 00000000 00:00 0          [stack]",
            "7f38b2f7c000-7f38b30d2000 r-xp 00026000 fe:00 326279     /usr/lib/libc.so.6",
            "00600000-00700000 rw-p 00000000 fe:00 2477 /usr/bin/python3",
            "00500000-00501000 r--p 00000000 fe:00 2477 /usr/bin/python3",
            "nonsense",
        ] {
            assert_eq!(of(others), None, "{others}");
        }
    }
}
