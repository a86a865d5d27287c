//! The jail and the guest as a library that an interpreter loads, to become a zygote (see `jail::Zygote`).
//!
//! Embedded in the binary (crates/palisade/build.rs) and handed to the interpreter by descriptor: there is no such file on
//! disk. One function, of the plainest kind, so that it can be called from any interpreter that can call C.

#![allow(unsafe_code, reason = "the fence: a name that C can find, and a descriptor that C gives")]

use std::os::fd::{FromRawFd, OwnedFd};

/// Says which sources this library is of: palisade's build script does not embed one of others.
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

/// Serves requests from the socket given, which is this process's alone and single-threaded. Gives back 1 in a process that
/// is to go on as the interpreter, behind its walls, with its channel as descriptor 3; 0 when there will be no more.
// SAFETY: no other symbol of that name exists in an interpreter.
#[unsafe(no_mangle)]
pub extern "C" fn palisade_serve_zygote(requests: std::ffi::c_int) -> std::ffi::c_int {
    // SAFETY: the caller gives the descriptor that the zygote was started with, and does not use it again.
    let requests = unsafe { OwnedFd::from_raw_fd(requests) };
    match jail::serve_zygote(requests, become_guest) {
        jail::Left::Ended(_) => 0,
        jail::Left::AsInterpreter => 1,
    }
}

/// What a clone turns into once its walls stand.
fn become_guest(stream: OwnedFd, consent: OwnedFd) -> jail::Left {
    let gate = guest::Gate { socket: consent, accept: jail::accept_consent };
    let carried = guest::Carried { let_go: jail::let_go_of_interpreter };
    match guest::run_in_interpreter(stream, gate, carried) {
        guest::Left::Ended(status) => jail::Left::Ended(status),
        guest::Left::AsInterpreter => jail::Left::AsInterpreter,
    }
}
