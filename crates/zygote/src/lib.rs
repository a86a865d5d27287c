//! The jail and the guest as a library that an interpreter loads, to become a zygote process (see
//! `jail::Zygote`).
//!
//! The library is embedded in the binary (crates/palisade/build.rs) and passed to the interpreter by file
//! descriptor; there is no such file on disk. It exports one function with a plain C signature, so that any
//! interpreter that can call C can call it.

#![allow(unsafe_code, reason = "the fence: a name that C can find, and a descriptor that C gives")]

use std::os::fd::{FromRawFd, OwnedFd};

/// Identifies the sources of this library. Palisade's build script does not embed a library built from other
/// sources.
// SAFETY: no other symbol of that name exists in an interpreter.
#[unsafe(no_mangle)]
pub static PALISADE_ZYGOTE_SOURCES: [u8; SOURCES_BYTES] = sources();

/// `zygote sources ` and a hash of 16 digits.
const SOURCES_BYTES: usize = 31;

const fn sources() -> [u8; SOURCES_BYTES] {
    let Some(sources) = option_env!("PALISADE_ZYGOTE_SOURCES") else { return [0; SOURCES_BYTES] };
    match sources.as_bytes().first_chunk() {
        Some(sources) => *sources,
        None => [0; SOURCES_BYTES],
    }
}

/// Serves requests from the given socket, which only this process holds. The process must be single-threaded.
/// Returns 1 in a process that continues as the interpreter, behind its walls, with its channel as file
/// descriptor 3. Returns 0 when there are no more requests.
// SAFETY: no other symbol of that name exists in an interpreter.
#[unsafe(no_mangle)]
pub extern "C" fn palisade_serve_zygote(requests: std::ffi::c_int) -> std::ffi::c_int {
    // SAFETY: the caller passes the descriptor that the zygote was started with, and does not use it again.
    let requests = unsafe { OwnedFd::from_raw_fd(requests) };
    match jail::serve_zygote(requests, become_guest) {
        jail::Left::Ended(_) => 0,
        jail::Left::AsInterpreter => 1,
    }
}

/// What a clone becomes once its walls are up.
fn become_guest(stream: OwnedFd, consent: OwnedFd) -> jail::Left {
    let gate = guest::Gate { socket: consent, accept: jail::accept_consent };
    let carried = guest::Carried { let_go: jail::let_go_of_interpreter };
    match guest::run_in_interpreter(stream, gate, carried) {
        guest::Left::Ended(status) => jail::Left::Ended(status),
        guest::Left::AsInterpreter => jail::Left::AsInterpreter,
    }
}
