//! Adds a server to a JSON file by changing only the text of its entry, in the style of the file.
//! Indentation, line ends, trailing commas and comments are preserved.
//!
//! `jsonc-parser` provides the positions. Its editing functions would break up an object on one line, and
//! would format arrays differently from this file's entry for an empty file. This file therefore edits the
//! text itself, at the positions of the syntax tree.

use std::ops::Range;

use jsonc_parser::ast::{Object, ObjectProp};
use jsonc_parser::common::Ranged;
use jsonc_parser::tokens::{Token, TokenAndRange};
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, ast, parse_to_ast};
use serde::de::IgnoredAny;
use serde_json::ser::PrettyFormatter;
use serde_json::{Map, Serializer, Value, json};

use super::clients::Format;
use super::{FormatError, Position};

const BYTE_ORDER_MARK: char = '\u{feff}';

/// JSON with comments and trailing commas.
const SYNTAX: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The current entry of the server.
pub(crate) fn find(text: &str, format: Format, path: [&str; 2]) -> Result<Option<Value>, FormatError> {
    let parsed = Parsed::new(without_mark(text), format)?;
    Ok(parsed.locate(path)?.entry.map(|member| member.value.clone().into()))
}

/// The whole file, comments left out.
pub(crate) fn whole(text: &str) -> Result<Value, FormatError> {
    let parsed = Parsed::new(without_mark(text), Format::Jsonc)?;
    Ok(parsed.root.map_or(Value::Null, Into::into))
}

/// The text with the entry added, or with the old entry replaced.
pub(crate) fn put(text: &str, format: Format, path: [&str; 2], entry: &Value) -> Result<String, FormatError> {
    let body = without_mark(text);
    let mark = &text[..text.len() - body.len()];
    let parsed = Parsed::new(body, format)?;
    let [container, name] = path;
    let found = parsed.locate(path)?;
    let style = Style::of(body, found.root);
    let edited = match (found.entry, found.container, found.root) {
        (Some(member), ..) => {
            let value = style.render(entry, &style.indent_at(body, member.range.start));
            let old = member.value.range();
            format!("{}{value}{}", &body[..old.start], &body[old.end..])
        }
        (None, Some(object), _) => parsed.insert(&style, object, (name, entry)),
        (None, None, Some(root)) => parsed.insert(&style, root, (container, &json!({ name: entry }))),
        (None, None, None) => style.fresh(body, &json!({ container: { name: entry } })),
    };
    verify(parsed, &edited, path, entry)?;
    Ok(format!("{mark}{edited}"))
}

/// The text without the entry. Comments stay.
pub(crate) fn remove(text: &str, format: Format, path: [&str; 2]) -> Result<String, FormatError> {
    let body = without_mark(text);
    let mark = &text[..text.len() - body.len()];
    let parsed = Parsed::new(body, format)?;
    let found = parsed.locate(path)?;
    let (Some(servers), Some(member)) = (found.container, found.entry) else { return Ok(text.to_owned()) };
    let member = member.range.start..member.range.end;
    let comma = parsed.comma_beside(&member, servers);
    let mut edited = body.to_owned();
    // From the end, so that the other position stays valid.
    let mut cuts: Vec<Range<usize>> = comma.into_iter().chain([member]).collect();
    cuts.sort_by_key(|cut| std::cmp::Reverse(cut.start));
    for cut in cuts {
        cut_out(&mut edited, cut);
    }
    let mut expected = parsed.root.map_or(Value::Null, Value::from);
    let [container, name] = path;
    expected.get_mut(container).and_then(Value::as_object_mut).map(|servers| servers.remove(name));
    let after = Parsed::new(&edited, format).map_err(|_| FormatError::Unsure)?;
    match after.root.map(Value::from) == Some(expected) {
        true => Ok(format!("{mark}{edited}")),
        false => Err(FormatError::Unsure),
    }
}

/// Removes a range, and its line if nothing else is on it.
fn cut_out(text: &mut String, range: Range<usize>) {
    let behind = &text[range.end..];
    let blank = behind.len() - behind.trim_start_matches([' ', '\t', '\r']).len();
    let is_end_of_line = behind[blank..].starts_with('\n');
    let start = if is_first_on_line(text, range.start) { line_start(text, range.start) } else { range.start };
    let is_whole_line = start < range.start || is_first_on_line(text, range.start);
    match is_whole_line && is_end_of_line {
        true => text.replace_range(start..range.end + blank + 1, ""),
        false => text.replace_range(range, ""),
    }
}

/// The text to add to an empty file by hand.
pub(crate) fn fragment(path: [&str; 2], entry: &Value) -> String {
    let [container, name] = path;
    Style::default().render(&json!({ container: { name: entry } }), "")
}

fn without_mark(text: &str) -> &str {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// A text and its syntax tree.
struct Parsed<'a> {
    text: &'a str,
    /// `None`: the file is empty, except for comments.
    root: Option<ast::Value<'a>>,
    tokens: Vec<TokenAndRange<'a>>,
}

struct Located<'a> {
    root: Option<&'a Object<'a>>,
    container: Option<&'a Object<'a>>,
    entry: Option<&'a ObjectProp<'a>>,
}

impl<'a> Parsed<'a> {
    fn new(text: &'a str, format: Format) -> Result<Self, FormatError> {
        let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: true };
        let malformed = |start: usize| FormatError::Malformed {
            at: Some(Position::of(text, start)),
            message: "it is not valid JSON here".to_owned(),
        };
        let parsed = parse_to_ast(text, &collect, &SYNTAX).map_err(|error| malformed(error.range().start))?;
        let tokens = parsed.tokens.unwrap_or_default();
        if let Some(token) = tokens.iter().find(|token| !is_plain(token, text)) {
            return Err(malformed(token.range.start));
        }
        let is_strict = || text.trim().is_empty() || serde_json::from_str::<IgnoredAny>(text).is_ok();
        if format == Format::Json && !is_strict() {
            return Err(FormatError::NotStrict);
        }
        Ok(Self { text, root: parsed.value, tokens })
    }

    fn locate(&self, [container, name]: [&str; 2]) -> Result<Located<'_>, FormatError> {
        let Some(root) = &self.root else {
            return Ok(Located { root: None, container: None, entry: None });
        };
        let not_object = |what: &str| FormatError::NotAnObject { what: what.to_owned() };
        let root = root.as_object().ok_or_else(|| not_object("the whole file"))?;
        let Some(servers) = only_member(root, container)? else {
            return Ok(Located { root: Some(root), container: None, entry: None });
        };
        let servers = servers.value.as_object().ok_or_else(|| not_object(container))?;
        let entry = only_member(servers, name)?;
        Ok(Located { root: Some(root), container: Some(servers), entry })
    }

    /// Adds a member at the end of an object.
    fn insert(&self, style: &Style, object: &Object<'_>, (key, value): (&str, &Value)) -> String {
        let text = self.text;
        let (open, close) = (object.range.start, object.range.end - 1);
        let outer = style.indent_at(text, open);
        let inner = match object.properties.first() {
            Some(first) if is_first_on_line(text, first.range.start) => {
                style.indent_at(text, first.range.start)
            }
            _ => format!("{outer}{}", style.unit),
        };
        let separator = if style.is_compact { ":" } else { ": " };
        let member = format!("{}{separator}{}", json!(key), style.render(value, &inner));
        // Inserted after the last content of the object, even if that is a comment.
        let end = text[..close].trim_end().len();
        let (newline, rest) = (style.newline, &text[close..]);
        let Some(last) = object.properties.last() else {
            if style.is_compact {
                return format!("{}{member}{}", &text[..end], &text[end..]);
            }
            return format!("{}{newline}{inner}{member}{newline}{outer}{rest}", &text[..end]);
        };
        let (comma, trailing) = if self.has_comma(last.range.end..close) { ("", ",") } else { (",", "") };
        let (before, between) = (&text[..last.range.end], &text[last.range.end..end]);
        if style.is_compact {
            return format!("{before}{comma}{between}{member}{trailing}{}", &text[end..]);
        }
        let closing = match &text[end..close] {
            own_line if own_line.contains('\n') => own_line.to_owned(),
            _ => format!("{newline}{outer}"),
        };
        format!("{before}{comma}{between}{newline}{inner}{member}{trailing}{closing}{rest}")
    }

    /// The comma that goes with a member: the one behind it, else the one before it.
    fn comma_beside(&self, member: &Range<usize>, object: &Object<'_>) -> Option<Range<usize>> {
        let next = object.properties.iter().map(|other| other.range.start).find(|start| *start >= member.end);
        let last = object.properties.iter().map(|other| other.range.end).rfind(|end| *end <= member.start);
        let behind = member.end..next.unwrap_or(object.range.end - 1);
        let before = last.map(|end| end..member.start);
        let find = |range: Range<usize>| {
            let mut commas = self.tokens.iter().filter(|token| token.token == Token::Comma);
            let comma = commas.find(|comma| range.contains(&comma.range.start))?;
            Some(comma.range.start..comma.range.end)
        };
        find(behind).or_else(|| find(before?))
    }

    fn has_comma(&self, range: Range<usize>) -> bool {
        let mut commas = self.tokens.iter().filter(|token| token.token == Token::Comma);
        commas.any(|comma| range.contains(&comma.range.start))
    }
}

/// Whether a string or a number is valid JSON: the parser accepts line ends and tabs in a string, clients do
/// not.
fn is_plain(token: &TokenAndRange<'_>, text: &str) -> bool {
    let written = &text[token.range.start..token.range.end];
    match token.token {
        Token::String(_) | Token::Number(_) => serde_json::from_str::<IgnoredAny>(written).is_ok(),
        _ => true,
    }
}

/// The only member of that name. With two it is ambiguous which one counts, which is an error.
fn only_member<'a>(object: &'a Object<'a>, key: &str) -> Result<Option<&'a ObjectProp<'a>>, FormatError> {
    let mut found = object.properties.iter().filter(|member| member.name.as_str() == key);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(FormatError::Twice { key: key.to_owned() }),
        (one, None) => Ok(one),
    }
}

/// Checks that only the entry changed. A difference is an error of this program, and nothing is written.
fn verify(
    before: Parsed<'_>,
    edited: &str,
    [container, name]: [&str; 2],
    entry: &Value,
) -> Result<(), FormatError> {
    let mut expected = before.root.map_or_else(|| json!({}), Value::from);
    let servers = expected.as_object_mut().map(|root| root.entry(container).or_insert_with(|| json!({})));
    servers.and_then(Value::as_object_mut).map(|servers| servers.insert(name.to_owned(), entry.clone()));
    let after = Parsed::new(edited, Format::Jsonc).map_err(|_| FormatError::Unsure)?;
    if after.root.map(Value::from) == Some(expected) { Ok(()) } else { Err(FormatError::Unsure) }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

fn is_first_on_line(text: &str, at: usize) -> bool {
    text[line_start(text, at)..at].trim().is_empty()
}

/// The formatting style of a file.
struct Style {
    newline: &'static str,
    unit: String,
    /// Everything is on one line.
    is_compact: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { newline: "\n", unit: "  ".to_owned(), is_compact: false }
    }
}

impl Style {
    fn of(text: &str, root: Option<&Object<'_>>) -> Self {
        const UNIT_MAX: usize = 8;
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let Some(root) = root else { return Self { newline, ..Self::default() } };
        let content = &text[root.range.start..root.range.end];
        // Only lines with a member, because comments may be indented differently.
        let members = content.lines().skip(1).filter(|line| line.trim_start().starts_with('"'));
        let mut indents = members.map(|line| &line[..line.len() - line.trim_start().len()]);
        let unit = indents.find(|indent| !indent.is_empty() && indent.len() <= UNIT_MAX);
        Self {
            newline,
            unit: unit.unwrap_or("  ").to_owned(),
            is_compact: content.len() > "{}".len() && !content.contains('\n'),
        }
    }

    /// The indentation of the line at an offset.
    fn indent_at(&self, text: &str, at: usize) -> String {
        let line = &text[line_start(text, at)..at];
        line.chars().take_while(|c| matches!(c, ' ' | '\t')).collect()
    }

    fn render(&self, value: &Value, indent: &str) -> String {
        if self.is_compact {
            return value.to_string();
        }
        let mut bytes = Vec::new();
        let mut serializer =
            Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(self.unit.as_bytes()));
        // Writing JSON to memory does not fail; otherwise `verify` would find the empty text.
        serde::Serialize::serialize(value, &mut serializer).ok();
        let pretty = String::from_utf8(bytes).unwrap_or_default();
        pretty.replace('\n', &format!("{}{indent}", self.newline))
    }

    /// The content for a file that is empty, except for comments.
    fn fresh(&self, text: &str, value: &Value) -> String {
        let kept = text.trim_end();
        let gap = if kept.is_empty() { "" } else { self.newline };
        format!("{kept}{gap}{}{}", self.render(value, ""), self.newline)
    }
}

/// Whether two entries are equivalent: no `env` equals an empty one, and no `type` equals `stdio`.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    fn essence(entry: &Value) -> Option<Map<String, Value>> {
        let mut fields = entry.as_object()?.clone();
        fields.retain(|key, value| match key.as_str() {
            "env" => value.as_object().is_none_or(|env| !env.is_empty()),
            "type" => *value != "stdio",
            _ => true,
        });
        Some(fields)
    }
    essence(one).is_some_and(|one| Some(one) == essence(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file before and after the edit.
    #[test]
    fn the_style_of_a_json_file_is_kept() {
        let cases = [
            ("", "{\n  \"c\": {\n    \"palisade\": {\n      \"k\": 1\n    }\n  }\n}\n"),
            (" \n", "{\n  \"c\": {\n    \"palisade\": {\n      \"k\": 1\n    }\n  }\n}\n"),
            ("// note\n", "// note\n{\n  \"c\": {\n    \"palisade\": {\n      \"k\": 1\n    }\n  }\n}\n"),
            ("{}", "{\n  \"c\": {\n    \"palisade\": {\n      \"k\": 1\n    }\n  }\n}"),
            ("{\n}\n", "{\n  \"c\": {\n    \"palisade\": {\n      \"k\": 1\n    }\n  }\n}\n"),
            ("{\"a\":1}", "{\"a\":1,\"c\":{\"palisade\":{\"k\":1}}}"),
            ("{\"c\":{\"x\":{}},\"b\":2}", "{\"c\":{\"x\":{},\"palisade\":{\"k\":1}},\"b\":2}"),
            ("{\"c\":{},\"b\":2}", "{\"c\":{\"palisade\":{\"k\":1}},\"b\":2}"),
            ("{\"c\":{\"palisade\":7},\"b\":2}", "{\"c\":{\"palisade\":{\"k\":1}},\"b\":2}"),
            ("{\n\t\"c\": {}\n}", "{\n\t\"c\": {\n\t\t\"palisade\": {\n\t\t\t\"k\": 1\n\t\t}\n\t}\n}"),
            (
                "{\n  \"c\": { \"x\": 1 }\n}",
                "{\n  \"c\": { \"x\": 1,\n    \"palisade\": {\n      \"k\": 1\n    }\n  }\n}",
            ),
            (
                "{\n  \"c\": {\n    // none yet\n  }\n}",
                "{\n  \"c\": {\n    // none yet\n    \"palisade\": {\n      \"k\": 1\n    }\n  }\n}",
            ),
            (
                "\u{feff}{\n  \"\\u0063\": {}\n}",
                "\u{feff}{\n  \"\\u0063\": {\n    \"palisade\": {\n      \"k\": 1\n    }\n  }\n}",
            ),
        ];
        for (before, after) in cases {
            let edited = put(before, Format::Jsonc, ["c", "palisade"], &json!({ "k": 1 })).unwrap();
            assert_eq!(edited, after, "from {before:?}");
        }
    }

    #[test]
    fn an_entry_is_removed_and_the_rest_stays() {
        let cases = [
            ("{\"c\":{\"palisade\":{}},\"b\":2}", "{\"c\":{},\"b\":2}"),
            ("{\"c\":{\"x\":1,\"palisade\":{}}}", "{\"c\":{\"x\":1}}"),
            ("{\"c\":{\"palisade\":{},\"x\":1}}", "{\"c\":{\"x\":1}}"),
            (
                "{\n  \"c\": {\n    \"x\": 1,\n    \"palisade\": {\n      \"k\": 1\n    }\n  }\n}\n",
                "{\n  \"c\": {\n    \"x\": 1\n  }\n}\n",
            ),
            (
                "{\r\n\t\"c\": {\r\n\t\t\"palisade\": {},\r\n\t\t\"x\": 1\r\n\t}\r\n}",
                "{\r\n\t\"c\": {\r\n\t\t\"x\": 1\r\n\t}\r\n}",
            ),
            (
                "{\n  \"c\": {\n    \"x\": 1, // one\n    \"palisade\": 7 // two\n  }\n}",
                "{\n  \"c\": {\n    \"x\": 1 // one\n     // two\n  }\n}",
            ),
            ("{\n  \"c\": {\n    \"palisade\": 7,\n  },\n}", "{\n  \"c\": {\n  },\n}"),
            ("{\"a\": 1}", "{\"a\": 1}"),
        ];
        for (before, after) in cases {
            let edited = remove(before, Format::Jsonc, ["c", "palisade"]).unwrap();
            assert_eq!(edited, after, "from {before:?}");
        }
    }

    #[test]
    fn what_was_added_can_be_removed_again() {
        for before in
            ["{\"c\": {}}", "{\n  \"c\": {\n    \"x\": {}\n  }\n}\n", "{\n \"c\": { \"x\": 1, },\n}"]
        {
            let added = put(before, Format::Jsonc, ["c", "palisade"], &json!({ "k": [1] })).unwrap();
            let removed = remove(&added, Format::Jsonc, ["c", "palisade"]).unwrap();
            assert_eq!(find(&removed, Format::Jsonc, ["c", "palisade"]), Ok(None), "{removed}");
        }
    }

    #[test]
    fn what_is_not_json_stays_an_error() {
        let bad = [
            "{,}",
            "[,]",
            "{\"a\":1,,}",
            "{ /* open",
            "{\"a\" 1}",
            "{\"a\":1} x",
            "'a'",
            "{\"a\": \"open}",
            "{a: 1}",
            "{\"a\": 0x1}",
            "{\"a\": +1}",
            "{\"a\": .5}",
            "{\"a\": NaN}",
            "{\"a\": 1 \"b\": 2}",
            "{\"a\": 01}",
            "{\"a\": \"\n\"}",
            "{\"a\": \"\\x41\"}",
            "{\"a\": \"\t\"}",
            "{\"a\": 1.}",
        ];
        for text in bad {
            let found = find(text, Format::Jsonc, ["c", "palisade"]);
            assert!(matches!(found, Err(FormatError::Malformed { .. })), "{text}: {found:?}");
        }
    }

    #[test]
    fn only_plain_json_is_edited_in_a_file_that_must_be_plain() {
        for text in ["// note\n{}", "{\"a\": [1,]}", "{\"a\": 1,}", "{} /* end */", "// note"] {
            let found = find(text, Format::Json, ["c", "palisade"]);
            assert!(matches!(found, Err(FormatError::NotStrict)), "{text}: {found:?}");
        }
        assert!(find("\u{feff}{\"a\": 1e400}", Format::Json, ["c", "palisade"]).is_ok());
    }

    #[test]
    fn no_beginning_of_a_file_makes_it_crash_or_lose_anything() {
        let whole = "\u{feff}// ☃\r\n{ \"ä\": [1, {\"c\": \"\\\"}\"},], /* é */ \"c\": { \"x\": {}, // ü\n }, }\n/* end */";
        let ends = whole.char_indices().map(|(at, _)| at).chain([whole.len()]);
        let accepted = ends
            .filter(|end| put(&whole[..*end], Format::Jsonc, ["c", "palisade"], &json!({ "k": 1 })).is_ok());
        assert!(accepted.count() > 2, "the whole file and its first comment at least");
    }
}
