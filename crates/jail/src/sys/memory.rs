//! Memory of a process that is about to be copied many times.

use std::fs;
use std::io;
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

/// Smaller mappings are asked for in one go anyway.
const LARGE_BYTES: usize = 256 << 10;

/// Lets copies of this process inherit the pages of programs and libraries that it has mapped, instead of asking for each
/// anew. The kernel copies the page table of a private mapping only if one of its pages was written to: so one is, with
/// what is there already. That makes each copy a little dearer, so only for large ones that are executed. Nothing depends
/// on it; a mapping that cannot be treated so is left alone.
pub(crate) fn hand_down_file_pages() -> io::Result<()> {
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        // start-end permissions offset device inode path; see proc(5).
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [range, permissions, _, _, _, path] = fields.as_slice() else { continue };
        let number = |text| usize::from_str_radix(text, 16).ok();
        let bounds = range.split_once('-').and_then(|(start, end)| Some((number(start)?, number(end)?)));
        let Some((start, end)) = bounds else { continue };
        if *permissions == "r-xp" && path.starts_with('/') && end - start >= LARGE_BYTES {
            write_once(start, end - start);
        }
    }
    Ok(())
}

fn write_once(start: usize, length: usize) {
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    let place = with_exposed_provenance_mut::<u8>(start);
    // SAFETY: the range is one mapping of this process as the kernel just told; it stays readable and executable.
    if unsafe { libc::mprotect(place.cast(), length, protection | libc::PROT_WRITE) } == -1 {
        return;
    }
    // SAFETY: within that mapping, which is readable.
    let byte = unsafe { place.read_volatile() };
    // SAFETY: within that mapping, which is writable now; what is written is what was there, and there is one thread.
    unsafe { place.write_volatile(byte) };
    // SAFETY: gives the range back the protection it had.
    unsafe { libc::mprotect(place.cast(), length, protection) };
}
