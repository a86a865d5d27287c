//! Words of an interpreter's driver, which the program in its process can say too. The first byte is the size of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((piece, words)) = data.split_first() else { return };
    engine::checks::driver_words(words, usize::from(*piece));
});
