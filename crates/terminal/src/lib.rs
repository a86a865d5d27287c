//! What commands say to a person on a terminal: messages with a remedy, colours, a spinner, exit codes.
//!
//! Used by every crate that has commands of its own (`palisade`, `setup`, `bench`). It holds fewer than 500 lines and is a
//! crate all the same, because those crates must not depend on each other.

mod paint;

use std::io::{self, Write};

pub use self::paint::{Paint, Spinner};

/// A mistake in the command line, as the parser has it.
pub const BAD_USAGE: u8 = 2;
/// The program wrote more output than is kept.
pub const OUTPUT_LIMIT: u8 = 122;
/// The program reached its limit of memory, disk or processes.
pub const OTHER_LIMIT: u8 = 123;
/// The program reached its time limit.
pub const TIMED_OUT: u8 = 124;
/// Palisade itself failed.
pub const OWN_FAILURE: u8 = 125;
/// The request was refused.
pub const REFUSED: u8 = 126;
/// The caller interrupted the command.
pub const INTERRUPTED: u8 = 130;

/// Writes a message to standard error, with what to do next.
pub fn complain(message: &str, remedy: Option<&str>) {
    let paint = Paint::for_stream(&io::stderr());
    // The terminal may be closed; the command goes on.
    let mut error = io::stderr().lock();
    writeln!(error, "{} {message}", paint.bold("palisade:")).ok();
    if let Some(remedy) = remedy {
        writeln!(error, "          {}", paint.dim(remedy)).ok();
    }
}

/// Foreign text for a message: control characters made visible, and not too long.
pub fn plain(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    let shown = text.chars().take(CHARACTERS_MAX);
    shown.map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}
