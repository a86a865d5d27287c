//! The library that a warm interpreter loads to clone sandboxes: `crates/zygote`, built by the build script.

use std::marker::PhantomData;

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libzygote.so"));

/// The library.
pub(crate) fn library() -> &'static [u8] {
    Embedded::<()>::library()
}

/// Generic, so that the constant is evaluated during code generation and not by `cargo check`. For a check
/// the build script leaves an empty file.
struct Embedded<T>(PhantomData<T>);

impl<T> Embedded<T> {
    const IS_THERE: () = assert!(!LIBRARY.is_empty(), "the library for warm interpreters was not built");

    fn library() -> &'static [u8] {
        let () = Self::IS_THERE;
        LIBRARY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_of_the_sources_of_this_build() {
        let sources = env!("PALISADE_ZYGOTE_SOURCES").as_bytes();
        assert!(library().windows(sources.len()).any(|window| window == sources));
    }
}
