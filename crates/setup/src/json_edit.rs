//! Puts a server into a JSON file by changing its text where the server goes and nowhere else, in the style
//! of the file: indentation, line ends, trailing commas and comments stay as they are.

use serde_json::ser::PrettyFormatter;
use serde_json::{Map, Serializer, Value, json};

use super::clients::Format;
use super::jsonc::{self, Blanked, Object, Twice};
use super::{FormatError, Position};

/// The server's entry as it is now.
pub(crate) fn find(text: &str, format: Format, path: [&str; 2]) -> Result<Option<Value>, FormatError> {
    let blanked = check(text, format)?;
    Ok(locate(&blanked, path)?.entry.map(|(_, value)| value))
}

/// The text with the entry put in, or put in place of the old one.
pub(crate) fn put(text: &str, format: Format, path: [&str; 2], entry: &Value) -> Result<String, FormatError> {
    let blanked = check(text, format)?;
    let [container, name] = path;
    let found = locate(&blanked, path)?;
    let style = Style::of(text, &blanked);
    let edited = match (&found.entry, &found.container, &found.root) {
        (Some((member, _)), ..) => {
            let value = style.render(entry, &style.indent_at(text, member.key_start));
            format!("{}{value}{}", &text[..member.value.start], &text[member.value.end..])
        }
        (None, Some(object), _) => insert(text, &blanked, &style, object, (name, entry)),
        (None, None, Some(root)) => {
            insert(text, &blanked, &style, root, (container, &json!({ name: entry })))
        }
        (None, None, None) => style.fresh(text, &json!({ container: { name: entry } })),
    };
    verify(&blanked, &edited, path, entry)?;
    Ok(edited)
}

/// What a person would add to an empty file.
pub(crate) fn fragment(path: [&str; 2], entry: &Value) -> String {
    let [container, name] = path;
    Style::default().render(&json!({ container: { name: entry } }), "")
}

fn check(text: &str, format: Format) -> Result<Blanked, FormatError> {
    let blanked = jsonc::blank(text);
    jsonc::parse(&blanked).map_err(|error| FormatError::Malformed {
        at: Some(Position { line: error.line(), column: error.column() }),
        message: "it is not valid JSON here".to_owned(),
    })?;
    if format == Format::Json && (blanked.has_comments || !blanked.trailing_commas.is_empty()) {
        return Err(FormatError::NotStrict);
    }
    Ok(blanked)
}

struct Located {
    /// Nothing: the file is empty.
    root: Option<Object>,
    container: Option<Object>,
    entry: Option<(jsonc::Member, Value)>,
}

fn locate(blanked: &Blanked, [container, name]: [&str; 2]) -> Result<Located, FormatError> {
    let text = &blanked.text;
    if text.trim().is_empty() {
        return Ok(Located { root: None, container: None, entry: None });
    }
    let not_object = |what: &str| FormatError::NotAnObject { what: what.to_owned() };
    let twice = |key: &str| {
        let key = key.to_owned();
        move |Twice| FormatError::Twice { key }
    };
    let root = Object::at(text, 0).ok_or_else(|| not_object("the whole file"))?;
    let Some(member) = root.member(container).map_err(twice(container))? else {
        return Ok(Located { root: Some(root), container: None, entry: None });
    };
    let servers = Object::at(text, member.value.start).ok_or_else(|| not_object(container))?;
    let entry = servers.member(name).map_err(twice(name))?.map(|member| {
        let value = serde_json::from_str(&text[member.value.clone()]).unwrap_or(Value::Null);
        (jsonc::Member { key: member.key.clone(), value: member.value.clone(), ..*member }, value)
    });
    Ok(Located { root: Some(root), container: Some(servers), entry })
}

/// Adds a member at the end of an object.
fn insert(
    text: &str,
    blanked: &Blanked,
    style: &Style,
    object: &Object,
    (key, value): (&str, &Value),
) -> String {
    let outer = style.indent_at(text, object.open);
    let inner = match object.members.first() {
        Some(first) if is_first_on_line(text, first.key_start) => style.indent_at(text, first.key_start),
        _ => format!("{outer}{}", style.unit),
    };
    let separator = if style.is_compact { ":" } else { ": " };
    let member = format!("{}{separator}{}", json!(key), style.render(value, &inner));
    // After whatever stands last in the object, be it a comment.
    let end = text[..object.close].trim_end().len();
    let (newline, rest) = (style.newline, &text[object.close..]);
    let Some(last) = object.members.last() else {
        if style.is_compact {
            return format!("{}{member}{}", &text[..end], &text[end..]);
        }
        return format!("{}{newline}{inner}{member}{newline}{outer}{rest}", &text[..end]);
    };
    let has_trailing =
        blanked.trailing_commas.iter().any(|comma| (last.value.end..object.close).contains(comma));
    let (comma, trailing) = if has_trailing { ("", ",") } else { (",", "") };
    let (before, between) = (&text[..last.value.end], &text[last.value.end..end]);
    if style.is_compact {
        return format!("{before}{comma}{between}{member}{trailing}{}", &text[end..]);
    }
    let closing = match &text[end..object.close] {
        own_line if own_line.contains('\n') => own_line.to_owned(),
        _ => format!("{newline}{outer}"),
    };
    format!("{before}{comma}{between}{newline}{inner}{member}{trailing}{closing}{rest}")
}

/// Nothing but the entry may have changed; a doubt is our own mistake, and nothing is written.
fn verify(
    before: &Blanked,
    edited: &str,
    [container, name]: [&str; 2],
    entry: &Value,
) -> Result<(), FormatError> {
    let own_mistake = |_| FormatError::Unsure;
    let mut expected = jsonc::parse(before).map_err(own_mistake)?;
    let servers = expected.as_object_mut().map(|root| root.entry(container).or_insert_with(|| json!({})));
    servers.and_then(Value::as_object_mut).map(|servers| servers.insert(name.to_owned(), entry.clone()));
    let after = jsonc::parse(&jsonc::blank(edited)).map_err(own_mistake)?;
    if after == expected { Ok(()) } else { Err(FormatError::Unsure) }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

fn is_first_on_line(text: &str, at: usize) -> bool {
    text[line_start(text, at)..at].trim_start_matches('\u{feff}').trim().is_empty()
}

/// How a file is written.
struct Style {
    newline: &'static str,
    unit: String,
    /// All on one line.
    is_compact: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { newline: "\n", unit: "  ".to_owned(), is_compact: false }
    }
}

impl Style {
    fn of(text: &str, blanked: &Blanked) -> Self {
        const UNIT_MAX: usize = 8;
        let content = blanked.text.trim();
        let indents = content
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| &line[..line.len() - line.trim_start().len()]);
        let unit = indents.skip(1).find(|indent| !indent.is_empty() && indent.len() <= UNIT_MAX);
        Self {
            newline: if text.contains("\r\n") { "\r\n" } else { "\n" },
            unit: unit.unwrap_or("  ").to_owned(),
            is_compact: content.len() > "{}".len() && !content.contains('\n'),
        }
    }

    /// The blanks that the line of an offset begins with.
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
        // Writing JSON to memory does not fail; if it did, `verify` would notice the empty text.
        serde::Serialize::serialize(value, &mut serializer).ok();
        let pretty = String::from_utf8(bytes).unwrap_or_default();
        pretty.replace('\n', &format!("{}{indent}", self.newline))
    }

    /// A file that has no content yet, except perhaps comments.
    fn fresh(&self, text: &str, value: &Value) -> String {
        let kept = text.trim_end();
        let gap = if kept.trim_start_matches('\u{feff}').is_empty() { "" } else { self.newline };
        format!("{kept}{gap}{}{}", self.render(value, ""), self.newline)
    }
}

/// The same entry, written in more or fewer words: no `env` is an empty one, no `type` is `stdio`.
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

    /// What a file was, and what it becomes.
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
    fn no_beginning_of_a_file_makes_it_crash_or_lose_anything() {
        let whole = "\u{feff}// ☃\r\n{ \"ä\": [1, {\"c\": \"\\\"}\"},], /* é */ \"c\": { \"x\": {}, // ü\n }, }\n/* end */";
        let ends = whole.char_indices().map(|(at, _)| at).chain([whole.len()]);
        let accepted = ends
            .filter(|end| put(&whole[..*end], Format::Jsonc, ["c", "palisade"], &json!({ "k": 1 })).is_ok());
        assert!(accepted.count() > 2, "the whole file and its first comment at least");
    }
}
