//! Memory of a process that is about to be copied many times.

use std::fs;
use std::io;

/// Lets copies of this process inherit the pages of programs and libraries that it has mapped, instead of asking for each
/// anew. The kernel copies the page table of a private mapping only if one of its pages was written to: so one is, with
/// what is there already. Nothing depends on it; a mapping that cannot be treated so is left alone.
pub(crate) fn hand_down_file_pages() -> io::Result<()> {
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        // start-end permissions offset device inode path; see proc(5).
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [range, permissions, _, _, _, path] = fields.as_slice() else { continue };
        let protection = match *permissions {
            "r--p" => libc::PROT_READ,
            "r-xp" => libc::PROT_READ | libc::PROT_EXEC,
            _ => continue,
        };
        let number = |text| usize::from_str_radix(text, 16).ok();
        let bounds = range.split_once('-').and_then(|(start, end)| Some((number(start)?, number(end)?)));
        if let (Some((start, end)), true) = (bounds, path.starts_with('/')) {
            write_once(start, end - start, protection);
        }
    }
    Ok(())
}

fn write_once(start: usize, length: usize, protection: libc::c_int) {
    let place = std::ptr::with_exposed_provenance_mut::<u8>(start);
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
