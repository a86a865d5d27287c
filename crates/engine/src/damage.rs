//! What to do about a program that was damaged on its way: prose around a fence, escapes of HTML or JSON, a shebang of
//! another language. `run`, `compile` and `sandboxes` ask for failed programs only.
//!
//! The program is never changed here. It only chooses the advice, and a program that parses gets none.

use sandbox::Outcome;

use crate::result::RunResult;

const FENCED: &str =
    "the program has a Markdown fence (```) in it: send only the code, without fence and prose";
const ENTITIES: &str =
    "the program was escaped as HTML: send the characters `<`, `>`, `&` and `\"` themselves";
const NEWLINES: &str = "the program has `\\n` as two characters outside its strings: send real line breaks, escaped once in JSON";
const QUOTES: &str =
    "the program has `\\\"` as two characters outside its strings: send plain quotes, escaped once in JSON";
/// How interpreters say that they do not understand a program.
const SYNTAX_WORDS: [&str; 11] = [
    "syntax error",
    "SyntaxError",
    "IndentationError",
    "arse error",
    "ParseError",
    "unexpected symbol",
    "unexpected input",
    "unexpected string",
    "expected near",
    "command not found",
    "invalid command name",
];
/// Entities and their characters.
const ENTITY_NAMES: [(&str, char); 5] =
    [("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"'), ("&#39;", '\''), ("&amp;", '&')];
/// The interpreters that a shebang may name, and the languages that they run.
const SHEBANGS: [(&str, &str); 11] = [
    ("python", "python"),
    ("pypy", "python"),
    ("bash", "bash"),
    ("sh", "bash"),
    ("node", "javascript"),
    ("perl", "perl"),
    ("ruby", "ruby"),
    ("php", "php"),
    ("lua", "lua"),
    ("Rscript", "r"),
    ("tclsh", "tcl"),
];
/// The most of a program and of its standard error that is looked at.
const BYTES_MAX: usize = 256 << 10;

/// Adds the advice to the result of a failed program. It takes the place of advice that the words of the failure
/// chose, which are about a program that was not meant.
pub(crate) fn advise(result: &mut RunResult, language: &str, code: &str) {
    if !matches!(result.outcome, Outcome::Failed | Outcome::CompileFailed) {
        return;
    }
    let Some(message) = result.error.as_ref().map(|error| error.message.as_str()) else { return };
    let is_unparsed = result.outcome == Outcome::CompileFailed || {
        let stderr = &result.execution().stderr;
        let tail = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(BYTES_MAX)..]);
        SYNTAX_WORDS.iter().any(|words| message.contains(words) || tail.contains(words))
    };
    if is_unparsed
        && let Some(advice) = remedy(language, code)
        && let Some(error) = &mut result.error
    {
        error.remedy = Some(advice);
    }
}

/// What to do about a program of that language that does not parse, if it looks damaged.
pub(crate) fn remedy(language: &str, code: &str) -> Option<String> {
    if code.len() > BYTES_MAX {
        return None;
    }
    if let Some(other) = shebang(code).filter(|other| *other != language) {
        return Some(format!(
            "the shebang of the program is that of {other}: send it with language: \"{other}\""
        ));
    }
    let damage = if code.lines().any(|line| line.trim_start().starts_with("```")) {
        FENCED
    } else if has_entities(code) {
        ENTITIES
    } else {
        escape_outside_strings(code)?
    };
    Some(damage.to_owned())
}

/// The language that the first line names.
fn shebang(code: &str) -> Option<&'static str> {
    let line = code.lines().next()?.strip_prefix("#!")?;
    let mut words = line.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
    let name = words.find(|name| *name != "env" && !name.starts_with('-'))?;
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    SHEBANGS.iter().find(|(interpreter, _)| *interpreter == name).map(|(_, language)| *language)
}

/// Whether the whole program was escaped: an entity is there, its character is not, and every ampersand begins an
/// entity. A program that writes HTML has both.
fn has_entities(code: &str) -> bool {
    let is_entity = |at: usize| ENTITY_NAMES.iter().any(|(entity, _)| code[at..].starts_with(entity));
    let is_whole = code.match_indices('&').all(|(at, _)| is_entity(at));
    let stands_for = |(entity, letter): &(&str, char)| {
        code.contains(entity) && (*letter == '&' || !code.contains(*letter))
    };
    is_whole && ENTITY_NAMES.iter().any(stands_for)
}

/// What an escape outside of strings says: all line breaks or all quotes of the program are escapes.
fn escape_outside_strings(code: &str) -> Option<&'static str> {
    let code = code.trim();
    let has_plain_quote = code.bytes().enumerate().any(|(at, byte)| {
        byte == b'"' && at.checked_sub(1).is_none_or(|before| code.as_bytes()[before] != b'\\')
    });
    if code.contains("\\\"") && !has_plain_quote {
        return Some(QUOTES);
    }
    if code.contains('\n') {
        return None;
    }
    let mut quote = None;
    let mut letters = code.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', _) => {
                let next = letters.next();
                if quote.is_none() && next == Some('n') {
                    return Some(NEWLINES);
                }
            }
            ('"' | '\'' | '`', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_apart_from_what_programs_contain() {
        for (code, words) in [
            ("Here:\n```python\nprint(1)\n```", FENCED),
            ("if 1 &lt; 2:\n    print(1)", ENTITIES),
            ("a &amp;&amp; b", ENTITIES),
            ("import os\\nprint(os.sep)", NEWLINES),
            ("x = 'a\\n'\\nprint(x)", NEWLINES),
            ("print(\\\"hi\\\")\\nprint(2)", QUOTES),
            ("a = 1\nprint(\\\"hi\\\")", QUOTES),
        ] {
            assert_eq!(remedy("python", code).as_deref(), Some(words), "{code}");
        }
        for code in [
            "print(\"a\\n\"",
            "x = '<'.replace('<', '&lt;'",
            "if a &lt; b && c",
            "x = 'it\\'s\\n'",
            "x = 1 \\\n  + 2 +",
            "print(\"say \\\"hi\\\"\"",
            "",
            "\\",
        ] {
            assert_eq!(remedy("python", code), None, "{code}");
        }
    }

    #[test]
    fn a_shebang_names_its_language() {
        for (line, language) in [
            ("#!/usr/bin/env python3", Some("python")),
            ("#!/usr/bin/python3.11 -u", Some("python")),
            ("#!/usr/bin/env -S node --no-warnings", Some("javascript")),
            ("#! /bin/sh", Some("bash")),
            ("#!/usr/bin/make -f", None),
            ("#!", None),
            ("# python", None),
        ] {
            assert_eq!(shebang(&format!("{line}\nx")), language, "{line}");
        }
        assert_eq!(remedy("bash", "#!/bin/sh\nif"), None);
        assert!(
            remedy("bash", "#!/usr/bin/env python3\nx").is_some_and(|advice| advice.contains("\"python\""))
        );
    }
}
