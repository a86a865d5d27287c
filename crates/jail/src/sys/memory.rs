//! Memory of a process that is about to be copied many times.

use std::fs;
use std::ptr::with_exposed_provenance_mut;

/// Where the words are that this process was started with, which others of its sandbox can read (see proc(5), cmdline).
pub(crate) struct Arguments {
    start: usize,
    words: Vec<u8>,
}

impl Arguments {
    pub(crate) fn find() -> Option<Self> {
        /// Fields of `stat` after the name that stand before the two.
        const BEFORE: usize = 45;
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(BEFORE);
        let (start, end): (usize, usize) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let length = end.checked_sub(start).filter(|length| start != 0 && *length < 1 << 20)?;
        let mut words = vec![0; length];
        // SAFETY: the kernel put that many bytes there when it started this program, and nobody unmaps its stack.
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
