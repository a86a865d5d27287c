//! Takes the values of secrets out of what a program reports: its streams, value, displays and error.
//!
//! This protects against accidents, such as a program that prints its environment. It is no wall: a program that wants to
//! tell a secret can write it in a form that is not searched for. Searched for are the exact value, also in lower case and
//! with line ends of a terminal, base64 in its three alignments and both alphabets, base64 of the value alone in lines of
//! 64 and 76 characters, hexadecimal, percent-encoding and JSON escapes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use wire::Stream;

use crate::display::Display;
use crate::given::Secret;
use crate::result::{RunError, RunPhase, RunResult, Value};

/// Shorter values are not searched for: they are found by chance in ordinary output.
const VALUE_BYTES_LEAST: usize = 8;

/// Finds the forms of some secrets.
pub struct Redactor {
    searcher: AhoCorasick,
    needles: Vec<Vec<u8>>,
    /// What replaces each needle.
    masks: Vec<String>,
    needle_bytes_max: usize,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor(..)")
    }
}

impl Redactor {
    /// A redactor for these secrets, by the names of their variables; `None` if there is nothing to search for.
    pub fn new<'a>(secrets: impl Iterator<Item = (&'a str, &'a Secret)>) -> Result<Option<Self>, RunError> {
        let (mut needles, mut masks) = (Vec::new(), Vec::new());
        for (name, secret) in secrets.filter(|(_, secret)| secret.expose().len() >= VALUE_BYTES_LEAST) {
            for needle in forms(secret.expose()) {
                needles.push(needle);
                masks.push(format!("[redacted:{name}]"));
            }
        }
        if needles.is_empty() {
            return Ok(None);
        }
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&needles);
        // A searcher is refused only for far more patterns than there can be. Without one the secrets are not given.
        let searcher = built.map_err(|error| RunError::new("secret_unusable", error.to_string()))?;
        let needle_bytes_max = needles.iter().map(Vec::len).max().unwrap_or(0);
        Ok(Some(Self { searcher, needles, masks, needle_bytes_max }))
    }

    /// The bytes without secrets.
    pub(crate) fn redact(&self, bytes: &[u8]) -> Vec<u8> {
        self.redact_until(bytes, bytes.len()).0
    }

    /// Redacts what begins before `end`. Also returns where it stopped: at `end`, or behind a match across it.
    fn redact_until(&self, bytes: &[u8], end: usize) -> (Vec<u8>, usize) {
        let mut redacted = Vec::with_capacity(bytes.len());
        let mut at = 0;
        for found in self.searcher.find_iter(bytes).take_while(|found| found.start() < end) {
            redacted.extend_from_slice(&bytes[at..found.start()]);
            redacted.extend_from_slice(self.masks[found.pattern().as_usize()].as_bytes());
            at = found.end();
        }
        if at < end {
            redacted.extend_from_slice(&bytes[at..end]);
        }
        (redacted, at.max(end))
    }

    /// Where the end of the bytes may be the beginning of a secret.
    fn open_end(&self, bytes: &[u8]) -> usize {
        let first = bytes.len().saturating_sub(self.needle_bytes_max.saturating_sub(1));
        let is_beginning = |start: &usize| {
            let tail = &bytes[*start..];
            self.needles.iter().any(|needle| needle.len() > tail.len() && needle.starts_with(tail))
        };
        (first..bytes.len()).find(is_beginning).unwrap_or(bytes.len())
    }

    /// Takes the secrets out of a text.
    pub fn redact_text(&self, text: &mut String) {
        if self.searcher.is_match(text.as_bytes()) {
            // Masks are text, and needles that are no text do not match inside of a character.
            *text = String::from_utf8_lossy(&self.redact(text.as_bytes())).into_owned();
        }
    }

    fn redact_option(&self, text: &mut Option<String>) {
        if let Some(text) = text {
            self.redact_text(text);
        }
    }

    fn redact_error(&self, error: &mut RunError) {
        self.redact_text(&mut error.message);
        self.redact_option(&mut error.cause);
        self.redact_option(&mut error.remedy);
    }

    fn redact_value(&self, value: &mut Value) {
        self.redact_text(&mut value.repr);
        let Some(json) = &value.json else { return };
        let text = json.to_string();
        if self.searcher.is_match(&text) {
            // A secret that was a number leaves no JSON.
            value.json = serde_json::from_slice(&self.redact(text.as_bytes())).ok();
        }
    }

    fn redact_display(&self, display: &mut Display) {
        self.redact_text(&mut display.text);
        self.redact_option(&mut display.json);
        if self.searcher.is_match(&display.data) {
            display.data = self.redact(&display.data);
        }
    }

    /// Takes the secrets out of everything that a program reported besides its streams, which are redacted as they come.
    pub(crate) fn redact_result(&self, result: &mut RunResult) {
        if let Some(error) = &mut result.error {
            self.redact_error(error);
        }
        result.warnings.iter_mut().for_each(|warning| self.redact_text(warning));
        // A program chooses labels of names beneath a wildcard.
        result.egress.iter_mut().for_each(|reached| self.redact_text(&mut reached.host));
        if let RunPhase::Finished(execution) = &mut result.phase {
            if let Some(value) = &mut execution.value {
                self.redact_value(value);
            }
            execution.displays.iter_mut().for_each(|display| self.redact_display(display));
        }
    }
}

/// The streams of one run, redacted as they come.
pub(crate) struct Redaction {
    redactor: Arc<Redactor>,
    /// The end of each stream, while it may be the beginning of a secret.
    held: [Vec<u8>; 2],
}

impl Redaction {
    pub(crate) fn new(redactor: Arc<Redactor>) -> Self {
        Self { redactor, held: Default::default() }
    }

    /// Takes a piece of output, and returns what can be shown now.
    pub(crate) fn pass(&mut self, stream: Stream, data: &[u8]) -> Vec<u8> {
        let held = &mut self.held[index(stream)];
        held.extend_from_slice(data);
        let open = self.redactor.open_end(held);
        let (shown, end) = self.redactor.redact_until(held, open);
        held.drain(..end);
        shown
    }

    /// Whether something of the stream is held back.
    pub(crate) fn holds(&self, stream: Stream) -> bool {
        !self.held[index(stream)].is_empty()
    }

    /// What was held back at the end of the stream.
    pub(crate) fn rest(&mut self, stream: Stream) -> Vec<u8> {
        let held = std::mem::take(&mut self.held[index(stream)]);
        self.redactor.redact(&held)
    }
}

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// The forms of a value that are searched for.
fn forms(value: &str) -> BTreeSet<Vec<u8>> {
    let bytes = value.as_bytes();
    let mut forms = BTreeSet::from([bytes.to_vec()]);
    // As a terminal shows its lines, and as it stands in the name of a host.
    forms.insert(value.replace('\n', "\r\n").into_bytes());
    forms.insert(value.to_ascii_lowercase().into_bytes());
    // As base64(1), MIME (RFC 2045) and PEM (RFC 7468) break their lines.
    for width in [76, 64] {
        let encoded = &STANDARD_NO_PAD.encode(bytes).into_bytes()[..bytes.len() * 8 / 6];
        forms.insert(encoded.chunks(width).collect::<Vec<_>>().join(&b'\n'));
    }
    for offset in 0..3 {
        let padded = [&vec![0; offset][..], bytes].concat();
        // Characters that depend on the bytes around the value are left out.
        let (start, end) = ((offset * 8).div_ceil(6), padded.len() * 8 / 6);
        for encoded in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            forms.insert(encoded.as_bytes()[start..end].to_vec());
        }
    }
    let hex = |letters: &[u8; 16]| -> Vec<u8> {
        bytes
            .iter()
            .flat_map(|byte| [letters[usize::from(byte >> 4)], letters[usize::from(byte & 15)]])
            .collect()
    };
    forms.insert(hex(b"0123456789abcdef"));
    forms.insert(hex(b"0123456789ABCDEF"));
    for kept in ["-_.~", "-_.~/", "-_.!~*'()", ""] {
        let upper = percent(bytes, kept, "%20");
        forms.insert(lower_escapes(&upper));
        forms.insert(upper);
        forms.insert(percent(bytes, kept, "+"));
    }
    for escaped in [json_escaped(value, false), json_escaped(value, true)] {
        forms.insert(escaped.replace('/', "\\/").into_bytes());
        forms.insert(escaped.into_bytes());
    }
    forms.retain(|form| form.len() >= VALUE_BYTES_LEAST);
    forms
}

/// Percent-encoding that keeps letters, digits and some marks. Without marks it keeps nothing.
fn percent(bytes: &[u8], kept: &str, space: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    for byte in bytes {
        let is_kept = !kept.is_empty() && (byte.is_ascii_alphanumeric() || kept.as_bytes().contains(byte));
        match byte {
            byte if is_kept => encoded.push(*byte),
            b' ' => encoded.extend_from_slice(space.as_bytes()),
            byte => encoded.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    encoded
}

fn lower_escapes(encoded: &[u8]) -> Vec<u8> {
    let mut lower = encoded.to_vec();
    let escapes: Vec<usize> =
        encoded.iter().enumerate().filter(|(_, byte)| **byte == b'%').map(|(at, _)| at).collect();
    for at in escapes {
        lower.iter_mut().skip(at + 1).take(2).for_each(|byte| *byte = byte.to_ascii_lowercase());
    }
    lower
}

/// The value as it stands in a JSON string, with letters beyond ASCII as they are or as `\u` escapes.
fn json_escaped(value: &str, is_ascii: bool) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    let inner = &quoted[1..quoted.len() - 1];
    if !is_ascii {
        return inner.to_owned();
    }
    let mut units = [0; 2];
    let escaped = inner.chars().map(|letter| match letter.is_ascii() {
        true => letter.to_string(),
        false => letter.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const VALUE: &str = "s3cr\"t/vélue+&";

    fn redactor() -> Redactor {
        let secret = Secret::new(VALUE.to_owned());
        Redactor::new([("TOKEN", &secret)].into_iter()).unwrap().unwrap()
    }

    fn redacted(text: &str) -> String {
        String::from_utf8(redactor().redact(text.as_bytes())).unwrap()
    }

    #[test]
    fn every_form_of_a_secret_is_taken_out() {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        for (shown, form) in [
            ("plain", VALUE.to_owned()),
            ("json", serde_json::Value::from(VALUE).to_string()),
            ("json, ascii", "s3cr\\\"t/v\\u00e9lue+&".to_owned()),
            ("json, slash", "s3cr\\\"t\\/v\\u00e9lue+&".to_owned()),
            ("hex", VALUE.bytes().map(|byte| format!("{byte:02x}")).collect()),
            ("HEX", VALUE.bytes().map(|byte| format!("{byte:02X}")).collect()),
            ("percent", "s3cr%22t%2Fv%C3%A9lue%2B%26".to_owned()),
            ("percent, lower", "s3cr%22t%2fv%c3%a9lue%2b%26".to_owned()),
            ("percent, slash", "s3cr%22t/v%C3%A9lue%2B%26".to_owned()),
            ("percent, all", VALUE.bytes().map(|byte| format!("%{byte:02X}")).collect()),
        ] {
            let text = redacted(&format!("before {form} after"));
            assert!(text.contains("[redacted:TOKEN]") && text.starts_with("before "), "{shown}: {text}");
            assert!(text.ends_with(" after"), "{shown}: {text}");
        }
        for around in ["", "a", "ab", "abc"] {
            let text = redacted(&encode(&format!("{around}{VALUE}xyz")));
            assert!(text.contains("[redacted:TOKEN]"), "{around}: {text}");
            let text = redacted(&URL_SAFE_NO_PAD.encode(format!("{around}{VALUE}")));
            assert!(text.contains("[redacted:TOKEN]"), "{around}: {text}");
        }
        assert_eq!(redacted("nothing of it: s3cr"), "nothing of it: s3cr");
    }

    #[test]
    fn a_long_value_of_several_lines_is_found_as_tools_show_it() {
        let value = format!("-----BEGIN KEY-----\n{}\n-----END KEY-----", "Zm9v".repeat(20));
        let secret = Secret::new(value.clone());
        let redactor = Redactor::new([("KEY", &secret)].into_iter()).unwrap().unwrap();
        let encoded = base64::engine::general_purpose::STANDARD.encode(&value);
        let lines = |width: usize| {
            let lines: Vec<&[u8]> = encoded.as_bytes().chunks(width).collect();
            String::from_utf8(lines.join(&b'\n')).unwrap()
        };
        for (shown, form) in [
            ("terminal", value.replace('\n', "\r\n")),
            ("base64(1)", lines(76)),
            ("openssl", lines(64)),
            ("lower case", value.to_lowercase()),
        ] {
            let text = String::from_utf8(redactor.redact(form.as_bytes())).unwrap();
            assert!(text.starts_with("[redacted:KEY]") && text.len() < 24, "{shown}: {text}");
        }
    }

    #[test]
    fn a_secret_in_the_name_of_a_host_is_taken_out_of_the_result() {
        let secret = Secret::new("0123456789ABCDEF".to_owned());
        let redactor = Redactor::new([("KEY", &secret)].into_iter()).unwrap().unwrap();
        let mut result = RunResult::finished(sandbox::Outcome::Completed, "x", crate::Execution::default());
        let host = "0123456789abcdef.api.example:443".to_owned();
        let verdict = crate::access::ALLOWED.to_owned();
        result.egress = vec![crate::access::Reached {
            host,
            address: None,
            connections: 1,
            bytes_out: 0,
            bytes_in: 0,
            verdict,
        }];
        redactor.redact_result(&mut result);
        assert_eq!(result.egress[0].host, "[redacted:KEY].api.example:443");
    }

    #[test]
    fn short_values_are_not_searched_for() {
        let short = Secret::new("1234567".to_owned());
        assert!(Redactor::new([("PIN", &short)].into_iter()).unwrap().is_none());
    }

    #[test]
    fn a_prompt_is_not_held_back() {
        let mut redaction = Redaction::new(Arc::new(redactor()));
        assert_eq!(redaction.pass(Stream::Stdout, b"name: "), b"name: ");
        assert_eq!(redaction.pass(Stream::Stdout, b"pas"), b"pa", "it may be the beginning");
        assert_eq!(redaction.pass(Stream::Stderr, b"x"), b"x");
        assert_eq!(redaction.rest(Stream::Stdout), b"s");
    }

    #[test]
    fn of_two_secrets_with_one_beginning_the_longer_one_is_found() {
        let (short, long) = (Secret::new("abcdefgh".to_owned()), Secret::new("abcdefghijkl".to_owned()));
        let redactor = Redactor::new([("A", &short), ("B", &long)].into_iter()).unwrap().unwrap();
        let mut redaction = Redaction::new(Arc::new(redactor));
        assert_eq!(redaction.pass(Stream::Stdout, b"abcdefgh"), b"");
        assert_eq!(redaction.pass(Stream::Stdout, b"ijkl."), b"[redacted:B].");
        assert_eq!(redaction.pass(Stream::Stdout, b"abcdefgh."), b"[redacted:A].");
    }

    #[test]
    fn values_displays_and_errors_are_redacted() {
        let mut result = RunResult::finished(sandbox::Outcome::Failed, "x", crate::Execution::default());
        result.error = Some(RunError::new("program_failed", format!("KeyError: '{VALUE}'")));
        if let RunPhase::Finished(execution) = &mut result.phase {
            let json = Some(serde_json::json!({"a": [VALUE], "b": 1}));
            execution.value = Some(Value { repr: format!("'{VALUE}'"), json, mime: None });
        }
        redactor().redact_result(&mut result);
        assert_eq!(result.error.as_ref().unwrap().message, "KeyError: '[redacted:TOKEN]'");
        let value = result.execution().value.clone().unwrap();
        assert_eq!(value.repr, "'[redacted:TOKEN]'");
        assert_eq!(value.json, Some(serde_json::json!({"a": ["[redacted:TOKEN]"], "b": 1})));
    }

    proptest! {
        #![proptest_config(harness::properties())]

        #[test]
        fn a_secret_is_found_across_the_borders_of_chunks(
            pieces in vec(prop_oneof![Just(VALUE.to_owned()), "[a-z\"/3]{0,6}", Just("s3cr\"t/v".to_owned())], 0..8),
            cuts in vec(1..9_usize, 1..40),
        ) {
            let text = pieces.concat();
            let redactor = Arc::new(redactor());
            let expected = redactor.redact(text.as_bytes());
            let mut redaction = Redaction::new(redactor);
            let (mut shown, mut rest, mut cuts) = (Vec::new(), text.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, more) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                shown.extend(redaction.pass(Stream::Stdout, piece));
                rest = more;
            }
            shown.extend(redaction.rest(Stream::Stdout));
            prop_assert_eq!(String::from_utf8_lossy(&shown), String::from_utf8_lossy(&expected));
            prop_assert!(!String::from_utf8_lossy(&shown).contains(VALUE));
        }
    }
}
