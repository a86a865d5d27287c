//! Renders output, displays and timestamps as text.

use chrono::DateTime;
use engine::{Display, RunResult};

/// Maximum number of bytes of each stream in an answer.
pub const INLINE_BYTES_MAX: usize = 20_000;

/// A display as one line: `figure 1: image/png, 640x480, 23 kB: its title`.
pub fn display_line(number: usize, display: &Display) -> String {
    let pixels = display.pixels().map(|(width, height)| format!(", {width}x{height}")).unwrap_or_default();
    let noun = if display.kind.mime().starts_with("image/") { "figure" } else { "display" };
    let size = match display.data.len() {
        bytes @ ..1000 => format!("{bytes} bytes"),
        bytes => format!("{} kB", bytes.div_ceil(1000)),
    };
    let words = if display.text.is_empty() { String::new() } else { format!(": {}", display.text) };
    format!("{noun} {number}: {}{pixels}, {size}{words}", display.kind.mime())
}

/// Names of the signals 1 to 31 on Linux (signal(7)).
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The end of a program by a signal: `killed by signal 11 (SIGSEGV)`.
pub fn killed_by(signal: i32) -> String {
    let index = usize::try_from(signal).ok().and_then(|number| number.checked_sub(1));
    match index.and_then(|index| SIGNALS.get(index)) {
        Some(name) => format!("killed by signal {signal} (SIG{name})"),
        None => format!("killed by signal {signal}"),
    }
}

/// Whether a stream is longer than the part that is shown.
pub(crate) fn is_cut(result: &RunResult, inline_bytes_max: usize) -> bool {
    result.execution().stdout.len().max(result.execution().stderr.len()) > inline_bytes_max
}

/// A timestamp as the protocol writes it (RFC 3339), from milliseconds since the epoch.
pub fn timestamp(unix_ms: u64) -> String {
    let moment = i64::try_from(unix_ms).ok().and_then(DateTime::from_timestamp_millis);
    moment.unwrap_or_default().format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Output as text. Bytes that are not UTF-8 become `\xNN`, and the middle of a long text is omitted.
pub(crate) fn text(bytes: &[u8], bytes_max: usize) -> String {
    if bytes.len() <= bytes_max {
        return visible(bytes);
    }
    let half = bytes_max / 2;
    let head = &bytes[..whole_characters(&bytes[..half])];
    let tail = from_character(&bytes[bytes.len() - half..]);
    let left_out = bytes.len() - head.len() - tail.len();
    format!("{}\n[... {left_out} bytes left out ...]\n{}", visible(head), visible(tail))
}

/// Length of the prefix that ends with a complete character. Invalid bytes count as complete.
pub(crate) fn whole_characters(bytes: &[u8]) -> usize {
    /// A character has at most four bytes, so an incomplete one has at most three.
    const UNFINISHED_MAX: usize = 3;
    for back in 1..=UNFINISHED_MAX.min(bytes.len()) {
        let at = bytes.len() - back;
        let promised = match bytes[at] {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return bytes.len(),
        };
        return if promised > back { at } else { bytes.len() };
    }
    bytes.len()
}

/// The same bytes without the remainder of a character that began earlier.
pub(crate) fn from_character(bytes: &[u8]) -> &[u8] {
    let is_rest = |byte: &u8| (0x80..=0xbf).contains(byte);
    let rest = bytes.iter().take(3).take_while(|byte| is_rest(byte)).count();
    &bytes[rest..]
}

pub(crate) fn visible(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_dates() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(timestamp(1_794_744_218_420), "2026-11-15T12:03:38.420Z");
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(killed_by(11), "killed by signal 11 (SIGSEGV)");
        assert_eq!(killed_by(31), "killed by signal 31 (SIGSYS)");
        assert_eq!(killed_by(34), "killed by signal 34");
        assert_eq!(
            (killed_by(0).as_str(), killed_by(-1).as_str()),
            ("killed by signal 0", "killed by signal -1")
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_visible() {
        assert_eq!(visible("grüße\n".as_bytes()), "grüße\n");
        assert_eq!(visible(b"a\xff\xc3b"), "a\\xff\\xc3b");
    }

    #[test]
    fn a_long_text_keeps_head_and_tail() {
        let cut = text(&[b'a'; 100], 10);
        assert!(cut.starts_with("aaaaa\n[... 90 bytes") && cut.ends_with("\naaaaa"));
        assert_eq!(text(b"short", 10), "short");
    }
    #[test]
    fn a_cut_does_not_split_characters() {
        let cut = text("€".repeat(20).as_bytes(), 20);
        assert_eq!(cut, "€€€\n[... 42 bytes left out ...]\n€€€");
    }
}
