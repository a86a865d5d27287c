//! Messages to and from an interpreter's driver (docs/DRIVERS.md): counted fields, each ended by NUL.
//!
//! The program shares its process with the driver and can say anything here: what comes back is only ever
//! shown (value, error position), never decides an outcome.

use std::str;

/// More than this from one driver is ignored.
pub(crate) const SAID_BYTES_MAX: usize = 1 << 20;
const FIELDS_MAX: usize = 64;

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
pub(crate) struct DriverEar {
    said: Vec<u8>,
}

impl DriverEar {
    pub(crate) fn hear(&mut self, data: &[u8]) {
        let room = SAID_BYTES_MAX - self.said.len();
        self.said.extend_from_slice(&data[..data.len().min(room)]);
    }

    /// The last `done` that was said, if the words make sense up to there.
    pub(crate) fn done(&self) -> Option<Done> {
        self.messages().iter().rev().find_map(|message| parse_done(message))
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
        let mut ear = DriverEar::default();
        ear.hear(b"1\0ready\0");
        ear.hear(b"10\0done\x001\0ok\x000\0\0\0\x0042\x0042\0\0");
        ear.hear(b"10\0done\x001\0error\x001\0boom\x003\x007\0\0\0\0");
        let done = ear.done().unwrap();
        assert_eq!(
            (done.error_message.as_deref(), done.error_line, done.error_column),
            (Some("boom"), Some(3), Some(7))
        );
    }

    #[test]
    fn nonsense_says_nothing() {
        for words in
            [&b"x\0y\0"[..], b"99999999999999999999\0", b"10\0done\0", b"", b"\0\0\0", b"3\0a\0b\0c\0-1\0"]
        {
            let mut ear = DriverEar::default();
            ear.hear(words);
            assert_eq!(ear.done(), None, "{words:?}");
        }
    }

    #[test]
    fn a_flood_is_cut() {
        let mut ear = DriverEar::default();
        for _ in 0..64 {
            ear.hear(&[0; 65_536]);
        }
        assert_eq!(ear.said.len(), SAID_BYTES_MAX);
    }
}
