//! Frames and messages that a host sends to a guest. The first byte is the size of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((piece, stream)) = data.split_first() else { return };
    wire::checks::stream::<wire::ToGuest>(stream, usize::from(*piece));
});
