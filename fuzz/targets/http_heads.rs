//! Parts of HTTP requests that the service reads itself: ranges and names of files.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, &str)| {
    let (size, text) = input;
    service::hostile::range(text.as_bytes(), size);
    service::hostile::file_name(text);
});
