//! The program that walls with a container runtime execute: `crates/static-guest`, built by the build script.

use std::marker::PhantomData;

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/static-guest"));

/// The program.
pub(crate) fn program() -> &'static [u8] {
    Embedded::<()>::program()
}

/// Generic, so that the constant is evaluated during code generation and not by `cargo check`. For a check
/// the build script leaves an empty file.
struct Embedded<T>(PhantomData<T>);

impl<T> Embedded<T> {
    const IS_THERE: () = assert!(!PROGRAM.is_empty(), "the static guest was not built");

    fn program() -> &'static [u8] {
        let () = Self::IS_THERE;
        PROGRAM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_of_the_sources_of_this_build_and_needs_no_interpreter() {
        let sources = env!("PALISADE_ZYGOTE_SOURCES").as_bytes();
        assert!(program().windows(sources.len()).any(|window| window == sources));
        assert!(!program().windows(7).any(|window| window == b"/ld-lin"), "it asks for a dynamic linker");
    }
}
