//! The current build step of a clone, for the host to read when a build takes too long.
//!
//! The clone writes it into its own memory, which costs a few stores and no message. The host reads it from
//! there (/proc/PID/mem, proc(5)). This works because a clone of the spawner has the same memory layout as
//! the server, of which the spawner is a fork. A clone of a zygote process has another layout and is never
//! read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD_BYTES: usize = size_of::<u64>();
/// The longest name that is stored in full, in bytes.
const NAME_BYTES: usize = 3 * WORD_BYTES;

/// The name, padded with zeros.
static STEP: [AtomicU64; NAME_BYTES / WORD_BYTES] = [const { AtomicU64::new(0) }; NAME_BYTES / WORD_BYTES];

/// Notes that a step begins.
pub(crate) fn enter(name: &str) {
    let mut bytes = [0; NAME_BYTES];
    let length = name.len().min(NAME_BYTES);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    let (words, _) = bytes.as_chunks::<WORD_BYTES>();
    for (place, word) in STEP.iter().zip(words) {
        place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
}

/// The current step of a clone of this server's spawner; `None` before the first step.
pub fn step_of(pid: i32) -> io::Result<Option<String>> {
    let mut bytes = [0; NAME_BYTES];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut bytes, STEP.as_ptr().addr() as u64)?;
    let name = bytes.iter().take_while(|byte| **byte != 0).filter(|byte| matches!(byte, b' '..=b'~'));
    let name: String = name.map(|byte| char::from(*byte)).collect();
    Ok(Some(name).filter(|name| !name.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raise::Steps;

    #[test]
    fn the_step_that_a_process_is_in_can_be_read_from_outside() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(step_of(own).unwrap(), None);
        let mut steps = Steps::start();
        for name in ["visible to the host", "procfs"] {
            let seen = steps.take(name, || step_of(own)).unwrap();
            assert_eq!(seen.as_deref(), Some(name));
        }
    }
}
