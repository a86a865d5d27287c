//! Bytes that claim to be an image, as programs show them and workspaces hold them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| engine::checks::image(data));
