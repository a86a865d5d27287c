//! Messages to and from an interpreter's driver (docs/DRIVERS.md): counted fields, each ended by NUL.
//!
//! The program shares its process with the driver and can say anything here: what comes back is only ever
//! shown (value, error position), never decides an outcome.

use std::str;

use crate::display::{DISPLAY_BYTES_MAX, Display, Displays};

/// More than this from one driver is ignored; what it shows has bounds of its own.
pub(crate) const SAID_BYTES_MAX: usize = 1 << 20;
pub(crate) const FIELDS_MAX: usize = 64;
/// The first words of every driver.
const READY: &[u8] = b"1\0ready\0";
/// The last word of a driver whose process ends.
const LEAVING: &str = "leaving";
/// How the words of something that is shown begin: the count of fields, then the first of them.
const DISPLAY_BEGIN: &[u8] = b"4\0display\0";
/// The longest such words: content as base64, its type, what is said about it.
pub(crate) const DISPLAY_SAID_BYTES_MAX: usize = DISPLAY_BYTES_MAX.div_ceil(3) * 4 + (128 << 10);

/// A program for a driver to run.
pub(crate) struct DriverRun<'a> {
    pub(crate) source: &'a str,
    pub(crate) code: &'a str,
    pub(crate) variables: &'a [String],
    pub(crate) args: &'a [String],
}

/// One fresh run: run, then close.
pub(crate) fn fresh_run(run: &DriverRun<'_>) -> Vec<u8> {
    let mut bytes = order(run, "1", "last", "");
    bytes.extend(message(&["close"]));
    bytes
}

/// One run of an interpreter that lives on; its standard input comes from a file, if there is one.
pub(crate) fn kept_run(run: &DriverRun<'_>, id: &str, stdin_path: &str) -> Vec<u8> {
    order(run, id, "keep", stdin_path)
}

/// An interpreter that waits for its program is told to walk through a run once, into nothing.
pub(crate) fn rehearsal() -> Vec<u8> {
    message(&["rehearse"])
}

/// What makes a program ready is told what of; its `done` has the same id.
pub(crate) fn prepare_order(id: &str, words: &[String]) -> Vec<u8> {
    let mut fields = vec!["prepare", id];
    fields.extend(words.iter().map(String::as_str));
    message(&fields)
}

fn order(run: &DriverRun<'_>, id: &str, mode: &str, stdin_path: &str) -> Vec<u8> {
    let count = run.variables.len().to_string();
    let mut fields = vec!["run", id, mode, run.source, run.code, stdin_path, count.as_str()];
    fields.extend(run.variables.iter().map(String::as_str));
    fields.extend(run.args.iter().map(String::as_str));
    message(&fields)
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

/// What a driver said about a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Which run it is about.
    pub(crate) id: String,
    /// Whether it says that it was interrupted.
    pub(crate) is_interrupted: bool,
    /// What the process would have ended with.
    pub(crate) exit_code: i32,
    pub(crate) error_message: Option<String>,
    pub(crate) error_line: Option<u32>,
    pub(crate) error_column: Option<u32>,
    pub(crate) value_repr: Option<String>,
    pub(crate) value_json: Option<String>,
    pub(crate) value_mime: Option<String>,
}

/// Collects what a driver says, up to a maximum.
#[derive(Debug, Default)]
pub(crate) struct DriverDecoder {
    /// Whole messages, but for displays.
    said: Vec<u8>,
    /// The message that is being said.
    unfinished: Vec<u8>,
    /// How many of its fields are still to come, once that is known.
    fields_missing: Option<usize>,
    /// Its rest is not kept.
    is_cut: bool,
    /// It made no sense or was too much: nothing more is listened to.
    is_poisoned: bool,
    displays: Displays,
    /// Whose `done` is listened to; nothing: any.
    awaited: Option<String>,
    /// The last such.
    answer: Option<Done>,
    /// What its process is about to end with.
    leaving: Option<u8>,
}

impl DriverDecoder {
    /// Listens for the end of one run among others.
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
        let is_display = self.unfinished.starts_with(DISPLAY_BEGIN);
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
        match message.strip_prefix(DISPLAY_BEGIN) {
            Some(_) if self.is_cut => self.displays.miss(),
            Some(fields) => {
                let text = String::from_utf8_lossy(fields);
                if let [mime, content, words, ..] = text.split('\0').collect::<Vec<_>>().as_slice() {
                    self.displays.take(mime, content, words);
                }
            }
            None => {
                self.note_done(&message);
                self.said.extend_from_slice(&message);
            }
        }
        (self.fields_missing, self.is_cut) = (None, false);
    }

    /// What was shown, and a word about what was left out of it.
    pub(crate) fn take_displays(&mut self) -> (Vec<Display>, Vec<String>) {
        std::mem::take(&mut self.displays).into_parts()
    }

    /// Each message is read once, when it is whole: a program may say as many as it likes.
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

    /// What its process is about to end with, if it said so: the program is over and its output is out. A program that says
    /// so itself ends itself, with a status that is its own choice in any case.
    pub(crate) fn leaving(&self) -> Option<u8> {
        self.leaving
    }

    /// The last `done` that was said, if the words make sense up to there.
    pub(crate) fn done(&self) -> Option<Done> {
        self.answer.clone()
    }

    /// How much is held of whole messages, and of the one that is being said.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held_bytes(&self) -> (usize, usize) {
        (self.said.len(), self.unfinished.len())
    }

    /// Whether it said that it waits for its first order.
    pub(crate) fn is_ready(&self) -> bool {
        self.said.starts_with(READY)
    }

    /// Everything that was said, up to the first thing that makes no sense.
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

/// How many fields follow.
fn count(said: &[u8]) -> Option<usize> {
    let digits = str::from_utf8(said.strip_suffix(&[0])?).ok()?;
    digits.parse().ok().filter(|count| *count <= FIELDS_MAX)
}

fn parse_done(fields: &[String]) -> Option<Done> {
    let [kind, id, status, exit, message, line, column, repr, json, mime, ..] = fields else {
        return None;
    };
    if kind != "done" {
        return None;
    }
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    Some(Done {
        id: id.clone(),
        is_interrupted: status == "interrupted",
        // Whatever it says, what is not success is failure.
        exit_code: exit.parse().unwrap_or_else(|_| i32::from(status != "ok")),
        error_message: some(message),
        error_line: line.parse().ok(),
        error_column: column.parse().ok(),
        value_repr: some(repr),
        value_json: some(json),
        value_mime: some(mime),
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
        };
        let text = String::from_utf8(fresh_run(&run)).unwrap();
        assert_eq!(text, "9\0run\x001\0last\0/w/m.py\0x\0\x001\0{}\0a\x001\0close\0");
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
