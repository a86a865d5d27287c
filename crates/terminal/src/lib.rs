//! Output of commands for a user at a terminal: messages with a remedy, colours, a spinner, exit codes.
//!
//! Every crate with commands uses it (`palisade`, `setup`, `bench`). It has fewer than 500 lines. It is still
//! a separate crate, because those crates must not depend on each other.

mod paint;
mod visible;

use std::io::{self, Write};

pub use self::paint::{Paint, Spinner};
pub use self::visible::{Visible, visible};

/// The command line is invalid; the same code as the parser's.
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

/// Writes a message and its remedy to standard error. Either may repeat foreign text, so control characters
/// are made visible.
pub fn complain(message: &str, remedy: Option<&str>) {
    let paint = Paint::for_stream(&io::stderr());
    // The terminal may be closed; the command continues.
    let mut error = io::stderr().lock();
    writeln!(error, "{} {}", paint.bold("palisade:"), visible(message)).ok();
    if let Some(remedy) = remedy {
        writeln!(error, "          {}", paint.dim(&visible(remedy))).ok();
    }
}

/// Foreign text for a message: control characters are made visible, and long text is cut.
pub fn plain(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    let shown = text.chars().take(CHARACTERS_MAX);
    shown.map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}
