//! Makes control sequences of untrusted text visible, so that a program cannot control the user's terminal.
//!
//! A terminal obeys escape sequences: they change titles, move the cursor over earlier lines, or answer as if
//! the user had typed. This filter shows each control character as text instead. Newline, tab and carriage
//! return pass: they reach no other line than the current one.

use std::fmt::Write as _;

/// A character has at most four bytes, so an incomplete one has at most three.
const INCOMPLETE_BYTES_MAX: usize = 3;

/// The filter for one stream. Output arrives in pieces that may split a character.
#[derive(Debug, Default)]
pub struct Visible {
    /// The beginning of a character whose rest has not arrived.
    incomplete: Vec<u8>,
}

impl Visible {
    /// The piece as text that is safe for a terminal.
    pub fn feed(&mut self, piece: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.incomplete);
        bytes.extend_from_slice(piece);
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            push_visible(&mut text, chunk.valid());
            let is_last = chunks.peek().is_none();
            if is_last && is_beginning(chunk.invalid()) {
                self.incomplete = chunk.invalid().to_vec();
            } else {
                push_bytes(&mut text, chunk.invalid());
            }
        }
        text
    }

    /// The rest at the end of the stream.
    pub fn end(&mut self) -> String {
        let mut text = String::new();
        push_bytes(&mut text, &std::mem::take(&mut self.incomplete));
        text
    }
}

/// A whole text with its control characters made visible.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    push_visible(&mut shown, text);
    shown
}

fn push_visible(text: &mut String, valid: &str) {
    for character in valid.chars() {
        match character {
            '\n' | '\t' | '\r' => text.push(character),
            // The caret notation of terminals: ^[ is escape.
            '\0'..='\x1f' | '\x7f' => {
                text.push('^');
                text.push(char::from(character as u8 ^ 0x40));
            }
            // Some terminals obey the second set of control characters too (ECMA-48, 8-bit).
            '\u{80}'..='\u{9f}' => push_bytes(text, &[character as u8]),
            other => text.push(other),
        }
    }
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        write!(text, "\\x{byte:02x}").ok();
    }
}

/// Whether bytes can become a character when more arrive.
fn is_beginning(bytes: &[u8]) -> bool {
    let error = std::str::from_utf8(bytes).err();
    (1..=INCOMPLETE_BYTES_MAX).contains(&bytes.len())
        && error.is_some_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_become_text_and_lines_stay() {
        assert_eq!(visible("\x1b]0;owned\x07a\tb\r\nc\x7f"), "^[]0;owned^Ga\tb\r\nc^?");
        assert_eq!(visible("\u{9b}31mé€"), "\\x9b31mé€");
    }

    #[test]
    fn characters_split_between_pieces_stay_whole() {
        let mut filter = Visible::default();
        let whole = "a€\x1b[2J😀";
        let text: String = whole.bytes().map(|byte| filter.feed(&[byte])).collect();
        assert_eq!(text + &filter.end(), "a€^[[2J😀");
    }

    #[test]
    fn bytes_that_are_no_text_are_shown() {
        let mut filter = Visible::default();
        assert_eq!(filter.feed(b"\xff\x9bm\xe2\x82"), "\\xff\\x9bm");
        assert_eq!(filter.feed(b"x\xe2"), "\\xe2\\x82x");
        assert_eq!(filter.end(), "\\xe2");
    }

    #[test]
    fn nothing_shown_can_control_a_terminal() {
        let mut filter = Visible::default();
        let every_byte: Vec<u8> = (0..=u8::MAX).cycle().take(2048).collect();
        let shown = filter.feed(&every_byte) + &filter.end();
        assert!(shown.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r')), "{shown:?}");
    }
}
