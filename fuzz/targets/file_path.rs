//! Paths in a workspace and ids, as callers send them: the engine's own check, and the guest's behind it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    engine::checks::file_path(text);
    engine::checks::ids(text);
    guest::checks::file_path(text);
});
