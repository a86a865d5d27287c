//! The call as a human sees it before it runs: every character that could mislead the reader is shown by its number.
//!
//! - Control characters, bidirectional controls, characters without width, unusual spaces and tags become `<U+202E>`.
//! - A long row of spaces, which could push text out of sight, becomes `<80 spaces>`.
//! - A text of several lines stands behind a margin, so it cannot imitate the lines around it.
//! - What is folded is told with its length, and [`Fold::Whole`] shows it.
//! - Letters of other scripts stay, because people write them. A note counts them, because some look like Latin ones.

use std::fmt::Write as _;

use serde_json::Value;

/// Values, lines and characters that a folded text shows.
const VALUES_MAX: usize = 40;
const HEAD_LINES: usize = 25;
const TAIL_LINES: usize = 10;
const HEAD_CHARACTERS: usize = 200;
const TAIL_CHARACTERS: usize = 60;
/// Length of a preview in one line, and of each value in it.
const LINE_CHARACTERS_MAX: usize = 160;
const VALUE_CHARACTERS_MAX: usize = 60;
/// A row of so many spaces is shown as a number.
const SPACES_MAX: usize = 24;
/// Different characters that a note names.
const NAMED_MAX: usize = 5;
const MARGIN: &str = "  | ";

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// The beginning and the end of what is long.
    Folded,
    /// Everything.
    Whole,
}

/// A call for a human.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Lines that cannot deceive.
    pub text: String,
    /// Whether nothing was left out.
    pub is_whole: bool,
}

/// The arguments of a call, one value after the other.
pub fn shown_arguments(arguments: &Value, fold: Fold) -> Shown {
    let mut leaves = Vec::new();
    collect(arguments, String::new(), &mut leaves);
    let mut shown = Shown { text: String::new(), is_whole: true };
    let most = if fold == Fold::Whole { usize::MAX } else { VALUES_MAX };
    for (name, value) in leaves.iter().take(most) {
        match value {
            Value::String(text) if text.contains('\n') => push_lines(&mut shown, name, text, fold),
            Value::String(text) => {
                let text = line(text, fold, &mut shown.is_whole);
                push(&mut shown.text, &format!("{name}: \"{text}\"\n"));
            }
            other => {
                let text = line(&other.to_string(), fold, &mut shown.is_whole);
                push(&mut shown.text, &format!("{name}: {text}\n"));
            }
        }
    }
    if leaves.len() > most {
        shown.is_whole = false;
        push(
            &mut shown.text,
            &format!("[... {} further values are not shown here ...]\n", leaves.len() - most),
        );
    }
    if let Some(note) = note_of_foreign(&leaves) {
        push(&mut shown.text, &format!("{note}\n"));
    }
    shown
}

/// A call in one line, for lists.
pub(super) fn shown_line(tool: &str, arguments: &Value) -> String {
    let mut leaves = Vec::new();
    collect(arguments, String::new(), &mut leaves);
    let mut text = tool.to_owned();
    for (place, (name, value)) in leaves.iter().enumerate() {
        let whole = match value {
            Value::String(text) => format!("\"{}\"", visible(text)),
            other => visible(&other.to_string()),
        };
        let length = whole.chars().count();
        let part = match length > VALUE_CHARACTERS_MAX {
            true => {
                let head: String = whole.chars().take(VALUE_CHARACTERS_MAX).collect();
                format!("{head}[... {} more]", length - VALUE_CHARACTERS_MAX)
            }
            false => whole,
        };
        let part = format!(" {name}={part}");
        if text.chars().count() + part.chars().count() > LINE_CHARACTERS_MAX {
            push(&mut text, &format!(" [... {} more values]", leaves.len() - place));
            break;
        }
        push(&mut text, &part);
    }
    text
}

/// A text on one line with every deceptive character shown by its number.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut spaces = 0;
    for character in text.chars() {
        if character == ' ' {
            spaces += 1;
            continue;
        }
        push_spaces(&mut shown, std::mem::take(&mut spaces));
        match is_deceptive(character) {
            true => push(&mut shown, &format!("<U+{:04X}>", character as u32)),
            false => shown.push(character),
        }
    }
    push_spaces(&mut shown, spaces);
    shown
}

fn push_spaces(shown: &mut String, spaces: usize) {
    match spaces >= SPACES_MAX {
        true => push(shown, &format!("<{spaces} spaces>")),
        false => (0..spaces).for_each(|_| shown.push(' ')),
    }
}

/// Whether a character is invisible, moves others, or looks like an ordinary space.
fn is_deceptive(character: char) -> bool {
    matches!(character,
        // C0, DEL and C1; a tab and a line break as well, because these texts stand on one line.
        '\0'..='\x1f' | '\x7f'..='\u{9f}'
        // Spaces that are not the ordinary one, the soft hyphen, and fillers that look empty.
        | '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}' | '\u{17b5}'
        | '\u{2800}' | '\u{3000}' | '\u{3164}' | '\u{ffa0}'
        // Bidirectional controls, joiners, characters without width, line separators.
        | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
        | '\u{205f}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
        // Variation selectors, musical and shorthand formats, tags, private use, noncharacters.
        | '\u{fe00}'..='\u{fe0f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e000}'..='\u{f8ff}' | '\u{fdd0}'..='\u{fdef}' | '\u{e0000}'..='\u{10ffff}')
        || (character as u32) & 0xfffe == 0xfffe
}

/// Every value with its name, in order. Objects and lists without content are values.
fn collect<'a>(value: &'a Value, name: String, leaves: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let key = visible(key);
                let name = if name.is_empty() { key } else { format!("{name}.{key}") };
                collect(value, name, leaves);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (place, value) in items.iter().enumerate() {
                collect(value, format!("{name}[{place}]"), leaves);
            }
        }
        // A call without arguments.
        Value::Object(_) if name.is_empty() => {}
        other => leaves.push((name, other)),
    }
}

fn push_lines(shown: &mut Shown, name: &str, text: &str, fold: Fold) {
    let lines: Vec<&str> = text.split('\n').collect();
    let count = lines.len() - usize::from(text.ends_with('\n'));
    push(&mut shown.text, &format!("{name}: {count} lines, {} bytes\n", text.len()));
    let folds = fold == Fold::Folded && count > HEAD_LINES + TAIL_LINES + 1;
    let mut put = |lines: &[&str]| {
        for one in lines {
            let one = line(one, fold, &mut shown.is_whole);
            push(&mut shown.text, &format!("{MARGIN}{one}\n"));
        }
    };
    if !folds {
        put(&lines[..count]);
        return;
    }
    put(&lines[..HEAD_LINES]);
    let hidden = &lines[HEAD_LINES..count - TAIL_LINES];
    let bytes: usize = hidden.iter().map(|line| line.len() + 1).sum();
    push(&mut shown.text, &format!("  [... {} lines, {bytes} bytes are not shown here ...]\n", hidden.len()));
    shown.is_whole = false;
    let mut put = |lines: &[&str]| {
        for one in lines {
            let one = line(one, fold, &mut shown.is_whole);
            push(&mut shown.text, &format!("{MARGIN}{one}\n"));
        }
    };
    put(&lines[count - TAIL_LINES..count]);
}

/// A line with its middle folded if it is long. A tab stays a tab: behind a margin it moves nothing.
fn line(text: &str, fold: Fold, is_whole: &mut bool) -> String {
    let shown: Vec<String> = text.split('\t').map(visible).collect();
    let shown = shown.join("\t");
    let count = shown.chars().count();
    if fold == Fold::Whole || count <= HEAD_CHARACTERS + TAIL_CHARACTERS {
        return shown;
    }
    *is_whole = false;
    let head: String = shown.chars().take(HEAD_CHARACTERS).collect();
    let tail: String = shown.chars().skip(count - TAIL_CHARACTERS).collect();
    let hidden = count - HEAD_CHARACTERS - TAIL_CHARACTERS;
    format!("{head}[... {hidden} characters are not shown here ...]{tail}")
}

/// A note about characters that are not ASCII, in the whole call.
fn note_of_foreign(leaves: &[(String, &Value)]) -> Option<String> {
    let (mut count, mut named) = (0_usize, Vec::new());
    let texts = leaves.iter().flat_map(|(name, value)| [Some(name.as_str()), value.as_str()]);
    for character in texts.flatten().flat_map(str::chars).filter(|character| !character.is_ascii()) {
        count += 1;
        if named.len() < NAMED_MAX && !named.contains(&character) {
            named.push(character);
        }
    }
    if count == 0 {
        return None;
    }
    let names: Vec<String> = named
        .iter()
        .map(|character| format!("{} U+{:04X}", visible(&character.to_string()), *character as u32))
        .collect();
    Some(format!(
        "note: {count} characters are not ASCII ({}); letters of other scripts can look like Latin ones",
        names.join(", ")
    ))
}

fn push(text: &mut String, more: &str) {
    // Writing to a string cannot fail.
    text.write_str(more).ok();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn folded(arguments: Value) -> Shown {
        shown_arguments(&arguments, Fold::Folded)
    }

    #[test]
    fn a_preview_shows_bidirectional_and_zero_width_characters_and_escape_sequences() {
        let code =
            "ok\u{202e}txt.exe\u{2066}\u{200b}pay\u{feff}\x1b[2Jload\rx\u{9b}31m\u{e0041}\u{ad}\u{3164}";
        let shown = folded(json!({ "code": code })).text;
        let wanted = "code: \"ok<U+202E>txt.exe<U+2066><U+200B>pay<U+FEFF><U+001B>[2Jload<U+000D>x<U+009B>31m<U+E0041><U+00AD><U+3164>\"\n";
        assert!(shown.starts_with(wanted), "{shown}");
        assert!(!shown.chars().any(|c| c != '\n' && (c.is_control() || is_deceptive(c))), "{shown:?}");
    }

    #[test]
    fn what_is_folded_is_told_with_its_length_and_can_be_seen_whole() {
        let mut lines: Vec<String> = (0..1000).map(|number| format!("print({number})")).collect();
        lines[500] = "import os; os.system('hostile')".to_owned();
        let arguments = json!({ "code": lines.join("\n") });
        let shown = folded(arguments.clone());
        assert!(shown.text.starts_with("code: 1000 lines, "), "{}", shown.text);
        assert!(shown.text.contains("  [... 965 lines, ") && !shown.is_whole, "{}", shown.text);
        assert!(!shown.text.contains("hostile"));
        let whole = shown_arguments(&arguments, Fold::Whole);
        assert!(whole.is_whole && whole.text.contains("  | import os; os.system('hostile')\n"));
        let long = folded(json!({ "code": format!("{}hostile{}", "a".repeat(5000), "b".repeat(5000)) }));
        assert!(long.text.contains("[... 9747 characters are not shown here ...]") && !long.is_whole);
    }

    #[test]
    fn text_cannot_imitate_the_lines_around_it_or_push_itself_out_of_sight() {
        let shown = folded(json!({ "code": "1\nstate: approved\n", "x\ny": "a" })).text;
        assert!(shown.contains("  | state: approved\n") && !shown.contains("\nstate:"), "{shown}");
        assert!(shown.contains("x<U+000A>y: \"a\""), "{shown}");
        let pushed = folded(json!({ "code": format!("1{};hostile", " ".repeat(400)) })).text;
        assert_eq!(pushed, "code: \"1<400 spaces>;hostile\"\n");
    }

    #[test]
    fn letters_of_other_scripts_stay_and_are_counted() {
        let shown = folded(json!({ "code": "p\u{430}ypal \u{430}" })).text;
        assert!(shown.contains("p\u{430}ypal"), "{shown}");
        assert!(shown.contains("note: 2 characters are not ASCII (\u{430} U+0430)"), "{shown}");
        assert!(!folded(json!({ "code": "paypal" })).text.contains("note:"));
    }

    #[test]
    fn every_value_of_nested_arguments_has_its_name() {
        let arguments =
            json!({"inputs": [{"path": "a", "text": "b"}], "limits": {}, "variables": {"m": null}});
        let shown = folded(arguments);
        assert_eq!(
            shown.text,
            "inputs[0].path: \"a\"\ninputs[0].text: \"b\"\nlimits: {}\nvariables.m: null\n"
        );
        assert!(shown.is_whole && folded(json!({})).text.is_empty());
        let many: Vec<u32> = (0..100).collect();
        let shown = folded(json!({ "args": many }));
        assert!(shown.text.ends_with("[... 60 further values are not shown here ...]\n") && !shown.is_whole);
    }

    #[test]
    fn a_line_for_lists_is_short_and_tells_what_it_leaves_out() {
        let arguments = json!({"code": "x".repeat(500), "language": "bash\u{202e}"});
        let line = shown_line("run", &arguments);
        assert!(line.starts_with("run code=\"xxx") && line.contains("[... 442 more]"), "{line}");
        assert!(line.ends_with("language=\"bash<U+202E>\""), "{line}");
        let many = json!({ "args": vec!["word"; 100] });
        let line = shown_line("run", &many);
        assert!(line.chars().count() < 200 && line.ends_with(" more values]"), "{line}");
    }
}
