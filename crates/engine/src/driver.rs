//! Messages to and from an interpreter's driver (docs/DRIVERS.md): counted fields, each terminated by NUL.
//!
//! The program shares its process with the driver and can send anything here. What it sends is shown (value, error
//! position). It can only choose the exit status of its own program and, for a preparer, `compile_failed`; never a
//! limit, a time or anything of another run.

use std::str;

use crate::display::{DISPLAY_BYTES_MAX, Display, Displays, JSON_BYTES_MAX};
use crate::missing;

/// The most bytes that are accepted from one driver. Displays have separate limits.
pub(crate) const SAID_BYTES_MAX: usize = 1 << 20;
pub(crate) const FIELDS_MAX: usize = 64;
/// The first message of every driver.
const READY: &[u8] = b"1\0ready\0";
/// The last message of a driver whose process ends.
const LEAVING: &str = "leaving";
/// The beginnings of a display message, without and with data: the number of fields, then the first field.
const DISPLAY_BEGINS: [&[u8]; 2] = [b"4\0display\0", b"5\0display\0"];
/// The longest display message: content as base64, its media type, its description, the data behind it.
pub(crate) const DISPLAY_SAID_BYTES_MAX: usize =
    DISPLAY_BYTES_MAX.div_ceil(3) * 4 + JSON_BYTES_MAX + (128 << 10);

/// A program for a driver to run.
pub(crate) struct DriverRun<'a> {
    pub(crate) source: &'a str,
    pub(crate) code: &'a str,
    pub(crate) variables: &'a [String],
    pub(crate) args: &'a [String],
    /// Environment variables that the driver sets for this run: names and values.
    pub(crate) given: &'a [(String, String)],
}

/// The order for a fresh run: run, then close.
pub(crate) fn fresh_run(run: &DriverRun<'_>) -> Vec<u8> {
    let mut bytes = order(run, "1", "last", "");
    bytes.extend(message(&["close"]));
    bytes
}

/// The order for a run of an interpreter that outlives it. Standard input comes from a file, if there is one.
pub(crate) fn kept_run(run: &DriverRun<'_>, id: &str, stdin_path: &str) -> Vec<u8> {
    order(run, id, "keep", stdin_path)
}

/// The order for a warm-up run, given to an interpreter that waits for its program. Its output is discarded.
pub(crate) fn rehearsal() -> Vec<u8> {
    message(&["rehearse"])
}

/// The order for a preparer. Its `done` has the same id.
pub(crate) fn prepare_order(id: &str, words: &[String]) -> Vec<u8> {
    let mut fields = vec!["prepare", id];
    fields.extend(words.iter().map(String::as_str));
    message(&fields)
}

fn order(run: &DriverRun<'_>, id: &str, mode: &str, stdin_path: &str) -> Vec<u8> {
    let mut bytes = given(run.given);
    let count = run.variables.len().to_string();
    let mut fields = vec!["run", id, mode, run.source, run.code, stdin_path, count.as_str()];
    fields.extend(run.variables.iter().map(String::as_str));
    fields.extend(run.args.iter().map(String::as_str));
    bytes.extend(message(&fields));
    bytes
}

/// The message that precedes the order of a run that is given something. It applies to that run only. No bytes for a run
/// that is given nothing.
pub(crate) fn given(pairs: &[(String, String)]) -> Vec<u8> {
    if pairs.is_empty() {
        return Vec::new();
    }
    let fields = pairs.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
    message(&["given"].into_iter().chain(fields).collect::<Vec<_>>())
}

fn message(fields: &[&str]) -> Vec<u8> {
    let mut bytes = fields.len().to_string().into_bytes();
    bytes.push(0);
    for field in fields {
        bytes.extend_from_slice(field.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// A driver's report about a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// The id of the run.
    pub(crate) id: String,
    /// Whether the driver reports an interruption.
    pub(crate) is_interrupted: bool,
    /// The exit status that the process would have had.
    pub(crate) exit_code: i32,
    pub(crate) error_message: Option<String>,
    pub(crate) error_line: Option<u32>,
    pub(crate) error_column: Option<u32>,
    pub(crate) value_repr: Option<String>,
    pub(crate) value_json: Option<String>,
    pub(crate) value_mime: Option<String>,
    /// Names of modules that resemble one that the program did not find.
    pub(crate) near_modules: Vec<String>,
}

/// Collects a driver's messages, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct DriverDecoder {
    /// Complete messages, except displays.
    said: Vec<u8>,
    /// The incomplete message.
    unfinished: Vec<u8>,
    /// How many of its fields are missing, once that is known.
    fields_missing: Option<usize>,
    /// Whether its rest is dropped.
    is_cut: bool,
    /// Whether a message was malformed or too long. Later messages are ignored.
    is_poisoned: bool,
    displays: Displays,
    /// The run whose `done` is accepted. `None` accepts any.
    awaited: Option<String>,
    /// The last accepted `done`.
    answer: Option<Done>,
    /// The announced exit status of its process.
    leaving: Option<u8>,
}

impl DriverDecoder {
    /// A decoder that waits for the end of one run among others.
    pub(crate) fn awaiting(id: &str) -> Self {
        Self { awaited: Some(id.to_owned()), ..Self::default() }
    }

    pub(crate) fn feed(&mut self, data: &[u8]) {
        for piece in data.split_inclusive(|byte| *byte == 0) {
            if self.is_poisoned {
                return;
            }
            self.keep(piece);
            if piece.ends_with(&[0]) && !self.is_poisoned {
                self.end_field();
            }
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        let is_display = display_fields(&self.unfinished).is_some();
        let bytes_max = if is_display { DISPLAY_SAID_BYTES_MAX } else { SAID_BYTES_MAX - self.said.len() };
        if self.is_cut || self.unfinished.len() + piece.len() > bytes_max {
            self.is_cut = is_display;
            self.is_poisoned = !is_display;
            return;
        }
        self.unfinished.extend_from_slice(piece);
    }

    fn end_field(&mut self) {
        let missing = match self.fields_missing {
            Some(missing) => missing.checked_sub(1),
            None => count(&self.unfinished),
        };
        self.is_poisoned |= missing.is_none();
        self.fields_missing = missing;
        if missing == Some(0) {
            self.end_message();
        }
    }

    fn end_message(&mut self) {
        let message = std::mem::take(&mut self.unfinished);
        match display_fields(&message) {
            Some(_) if self.is_cut => self.displays.miss(),
            Some(fields) => {
                let text = String::from_utf8_lossy(fields);
                // The last field is empty: each field is terminated.
                if let [mime, content, words, json, ..] = text.split('\0').collect::<Vec<_>>().as_slice() {
                    self.displays.take(mime, content, words, json);
                }
            }
            None => {
                self.note_done(&message);
                self.said.extend_from_slice(&message);
            }
        }
        (self.fields_missing, self.is_cut) = (None, false);
    }

    /// Returns the displays, and messages about displays that were left out.
    pub(crate) fn take_displays(&mut self) -> (Vec<Display>, Vec<String>) {
        std::mem::take(&mut self.displays).into_parts()
    }

    /// Reads each message once, when it is complete: a program may send any number of messages.
    fn note_done(&mut self, message: &[u8]) {
        let fields: Vec<String> = message
            .strip_suffix(&[0])
            .unwrap_or(message)
            .split(|byte| *byte == 0)
            .skip(1)
            .map(|field| String::from_utf8_lossy(field).into_owned())
            .collect();
        let done = parse_done(&fields).filter(|done| self.awaited.as_ref().is_none_or(|id| *id == done.id));
        if done.is_some() {
            self.answer = done;
        }
        if let [kind, status] = fields.as_slice()
            && kind == LEAVING
        {
            self.leaving = status.parse().ok();
        }
    }

    /// The announced exit status of its process: the program is over and its output is complete. A program that
    /// forges this message ends itself, with a status that it chooses in any case.
    pub(crate) fn leaving(&self) -> Option<u8> {
        self.leaving
    }

    /// The last `done`, if all messages up to it are well-formed.
    pub(crate) fn done(&self) -> Option<Done> {
        self.answer.clone()
    }

    /// The size of the complete messages, and of the incomplete one.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held_bytes(&self) -> (usize, usize) {
        (self.said.len(), self.unfinished.len())
    }

    /// Whether the driver reported that it waits for its first order.
    pub(crate) fn is_ready(&self) -> bool {
        self.said.starts_with(READY)
    }

    /// All messages up to the first malformed one.
    pub(crate) fn messages(&self) -> Vec<Vec<String>> {
        let mut fields =
            self.said.split(|byte| *byte == 0).map(|field| String::from_utf8_lossy(field).into_owned());
        let mut messages = Vec::new();
        while let Some(count) = fields.next().and_then(|text| text.parse::<usize>().ok()) {
            if count > FIELDS_MAX {
                break;
            }
            let message: Vec<String> = fields.by_ref().take(count).collect();
            if message.len() < count {
                break;
            }
            messages.push(message);
        }
        messages
    }
}

/// The fields of a display message, as far as they have arrived.
fn display_fields(message: &[u8]) -> Option<&[u8]> {
    DISPLAY_BEGINS.iter().find_map(|begin| message.strip_prefix(*begin))
}

/// The number of fields that follow.
fn count(said: &[u8]) -> Option<usize> {
    let digits = str::from_utf8(said.strip_suffix(&[0])?).ok()?;
    digits.parse().ok().filter(|count| *count <= FIELDS_MAX)
}

fn parse_done(fields: &[String]) -> Option<Done> {
    let [kind, id, status, exit, message, line, column, repr, json, mime, more @ ..] = fields else {
        return None;
    };
    if kind != "done" {
        return None;
    }
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    Some(Done {
        id: id.clone(),
        is_interrupted: status == "interrupted",
        // Any status except success counts as failure.
        exit_code: exit.parse().unwrap_or_else(|_| i32::from(status != "ok")),
        error_message: some(message),
        error_line: line.parse().ok(),
        error_column: column.parse().ok(),
        value_repr: some(repr),
        value_json: some(json),
        value_mime: some(mime),
        near_modules: more.first().map(|names| missing::names(names)).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_counted_fields() {
        let run = DriverRun {
            source: "/w/m.py",
            code: "x",
            variables: &["{}".to_owned()],
            args: &["a".to_owned()],
            given: &[],
        };
        let text = String::from_utf8(fresh_run(&run)).unwrap();
        let plain = "9\0run\x001\0last\0/w/m.py\0x\0\x001\0{}\0a\x001\0close\0";
        assert_eq!(text, plain);
        let pairs = [("A".to_owned(), "x y".to_owned()), ("B".to_owned(), String::new())];
        let text = String::from_utf8(fresh_run(&DriverRun { given: &pairs, ..run })).unwrap();
        assert_eq!(text, format!("5\0given\0A\0x y\0B\0\0{plain}"));
    }

    #[test]
    fn done_is_understood_and_the_last_one_counts() {
        let mut decoder = DriverDecoder::default();
        decoder.feed(b"1\0ready\0");
        decoder.feed(b"10\0done\x001\0ok\x000\0\0\0\x0042\x0042\0\0");
        decoder.feed(b"10\0done\x001\0error\x001\0boom\x003\x007\0\0\0\0");
        let done = decoder.done().unwrap();
        assert_eq!(
            (done.error_message.as_deref(), done.error_line, done.error_column),
            (Some("boom"), Some(3), Some(7))
        );
    }

    #[test]
    fn who_leaves_says_with_what() {
        let mut decoder = DriverDecoder::default();
        decoder.feed(b"1\0ready\x002\0leaving\x00300\0");
        assert_eq!(decoder.leaving(), None);
        decoder.feed(b"2\0leaving\x007\0");
        assert_eq!(decoder.leaving(), Some(7));
    }

    #[test]
    fn the_end_of_another_run_hides_nothing() {
        let mut decoder = DriverDecoder::awaiting("b");
        decoder.feed(b"10\0done\0a\0ok\x000\0\0\0\x001\x001\0\0");
        assert_eq!(decoder.done(), None);
        decoder.feed(b"10\0done\0b\0ok\x000\0\0\0\x002\x002\0\0\x0010\0done\0c\0ok\x000\0\0\0\x003\x003\0\0");
        assert_eq!(decoder.done().and_then(|done| done.value_repr).as_deref(), Some("2"));
    }

    #[test]
    fn nonsense_says_nothing() {
        for words in
            [&b"x\0y\0"[..], b"99999999999999999999\0", b"10\0done\0", b"", b"\0\0\0", b"3\0a\0b\0c\0-1\0"]
        {
            let mut decoder = DriverDecoder::default();
            decoder.feed(words);
            assert_eq!(decoder.done(), None, "{words:?}");
        }
    }

    #[test]
    fn a_flood_is_cut() {
        let mut decoder = DriverDecoder::default();
        for _ in 0..64 {
            decoder.feed(&[b"2\0a\0".as_slice(), &[b'b'; 65_536], b"\0"].concat());
        }
        decoder.feed(&[b'9'; 2 * SAID_BYTES_MAX]);
        assert!(decoder.said.len() + decoder.unfinished.len() <= SAID_BYTES_MAX);
        assert!(decoder.said.len() > SAID_BYTES_MAX / 2);
    }

    #[test]
    fn displays_come_in_any_pieces_and_leave_the_other_words_alone() {
        let words = b"1\0ready\x004\0display\0text/html\0<b>x</b>\0bold\x0010\0done\x001\0ok\x000\0\0\0\x007\x007\0\0";
        for size in 1..words.len() {
            let mut decoder = DriverDecoder::default();
            words.chunks(size).for_each(|piece| decoder.feed(piece));
            assert_eq!(decoder.done().unwrap().value_repr.as_deref(), Some("7"));
            let (displays, warnings) = decoder.take_displays();
            assert_eq!((displays[0].data.as_slice(), displays[0].text.as_str()), (&b"<b>x</b>"[..], "bold"));
            assert_eq!((displays.len(), warnings.len()), (1, 0));
        }
    }

    #[test]
    fn a_display_that_is_too_long_is_left_out_and_the_rest_is_heard() {
        let mut decoder = DriverDecoder::default();
        decoder.feed(b"4\0display\0image/png\0");
        for _ in 0..64 {
            decoder.feed(&[b'A'; 65_536]);
            assert!(decoder.unfinished.len() <= DISPLAY_SAID_BYTES_MAX);
        }
        decoder.feed(b"\0huge\x0010\0done\x001\0ok\x000\0\0\0\x007\x007\0\0");
        assert_eq!(decoder.done().unwrap().value_repr.as_deref(), Some("7"));
        let (displays, warnings) = decoder.take_displays();
        assert_eq!((displays.len(), warnings.len()), (0, 1));
    }

    #[test]
    fn many_displays_do_not_use_up_the_room_of_other_words() {
        let mut decoder = DriverDecoder::default();
        let display = [b"4\0display\0text/plain\0".as_slice(), &[b'x'; 100_000], b"\0\0"].concat();
        for _ in 0..100 {
            decoder.feed(&display);
        }
        decoder.feed(b"10\0done\x001\0ok\x000\0\0\0\x007\x007\0\0");
        assert!(decoder.done().is_some());
        assert_eq!(decoder.take_displays().0.len(), crate::display::DISPLAYS_MAX);
    }
}
