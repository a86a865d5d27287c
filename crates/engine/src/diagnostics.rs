//! Reads the messages of compilers and failing programs: patterns as data, one list per language.
//!
//! A pattern is a list of line patterns that must match in this order, each at most [`GAP_LINES`] lines after
//! the previous one. A line pattern is literal text with captures, and must match the whole line:
//!
//! - `{line}` and `{column}` are digits.
//! - `{message}` and `{file}` are at least one character.
//! - `{any}` may be empty.
//! - `{source}` is the program's own file name.
//! - `{next}` at the beginning of a line pattern: it must match the very next line.
//!
//! The input is hostile text. Lines, their length and the steps of the search are bounded, and nothing found
//! here decides an outcome.

use serde::Deserialize;

/// The most lines that are examined.
const LINES_MAX: usize = 4000;
/// The most bytes of a line that are examined.
const LINE_BYTES_MAX: usize = 2000;
/// How far apart the lines of one pattern may be.
const GAP_LINES: usize = 48;
/// The most comparisons of one search. A match that needs more is not found.
const STEPS_MAX: usize = 2_000_000;
/// Begins a line pattern that must match the very next line.
const NEXT: &str = "{next}";

/// The pattern of a message, line by line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Pattern(Vec<String>);

/// A message and the position that it refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// The file that it refers to, as written. `None` means the program's own file.
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    pub(crate) message: String,
}

impl Said {
    /// Whether it refers to the program itself.
    pub(crate) fn is_about(&self, source: &str) -> bool {
        self.file.as_deref().is_none_or(|file| name_of(file) == source)
    }

    /// Adds the position to the message text if it refers to another file than the program.
    pub(crate) fn for_program(self, source: &str) -> Self {
        if self.is_about(source) {
            return self;
        }
        let file = name_of(self.file.as_deref().unwrap_or_default()).to_owned();
        let number = |number: Option<u32>| number.map(|number| format!(":{number}")).unwrap_or_default();
        let message = format!("{file}{}{}: {}", number(self.line), number(self.column), self.message);
        Self { file: Some(file), line: None, column: None, message }
    }
}

fn name_of(file: &str) -> &str {
    let file = file.trim();
    file.strip_prefix("/workspace/").or_else(|| file.strip_prefix("./")).unwrap_or(file)
}

/// All matches of the patterns in a text, in order, at most `most`.
pub(crate) fn find(text: &str, patterns: &[Pattern], source: &str, most: usize) -> Vec<Said> {
    let lines: Vec<&str> = text.lines().take(LINES_MAX).map(cut).collect();
    let mut search = Search { source, steps: STEPS_MAX };
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() && found.len() < most && search.steps > 0 {
        let here = patterns.iter().find_map(|pattern| search.begin(pattern, &lines[at..]));
        at += match here {
            Some((said, used)) => {
                found.push(said);
                used
            }
            None => 1,
        };
    }
    found
}

fn cut(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    let mut end = line.len().min(LINE_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line[..end]
}

/// One search through one text.
struct Search<'a> {
    source: &'a str,
    /// The remaining comparisons.
    steps: usize,
}

impl Search<'_> {
    /// Matches from the first of these lines on. Returns how many lines it took.
    fn begin(&mut self, pattern: &Pattern, lines: &[&str]) -> Option<(Said, usize)> {
        let mut said = Said::default();
        let mut at = 0;
        for (number, pattern) in pattern.0.iter().enumerate() {
            let (gap, pattern) = match pattern.strip_prefix(NEXT) {
                Some(pattern) => (1, pattern),
                None => (if number == 0 { 1 } else { GAP_LINES }, pattern.as_str()),
            };
            let mut tried = lines.iter().enumerate().skip(at).take(gap);
            let (used, captured) = tried.find_map(|(index, line)| {
                let mut captured = said.clone();
                self.fits(pattern, line, &mut captured).then_some((index + 1, captured))
            })?;
            (at, said) = (used, captured);
        }
        said.message = said.message.trim().to_owned();
        (!said.message.is_empty()).then_some((said, at))
    }

    /// Whether the whole text matches the pattern. Fills in the captures.
    fn fits(&mut self, pattern: &str, text: &str, said: &mut Said) -> bool {
        self.steps = self.steps.saturating_sub(1);
        if self.steps == 0 {
            return false;
        }
        let Some((literal, rest)) = pattern.split_once('{') else { return pattern == text };
        let Some(text) = text.strip_prefix(literal) else { return false };
        let Some((name, rest)) = rest.split_once('}') else { return false };
        match name {
            "source" => text.strip_prefix(self.source).is_some_and(|text| self.fits(rest, text, said)),
            "line" | "column" => {
                let digits =
                    text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
                let Ok(number) = text[..digits].parse() else { return false };
                *(if name == "line" { &mut said.line } else { &mut said.column }) = Some(number);
                self.fits(rest, &text[digits..], said)
            }
            _ => self.captures(name, rest, text, said),
        }
    }

    /// Tries the shortest capture after which the rest matches.
    fn captures(&mut self, name: &str, rest: &str, text: &str, said: &mut Said) -> bool {
        let least = usize::from(name != "any");
        // The literal text that follows narrows the places where a capture can end.
        let next = rest.split('{').next().unwrap_or_default();
        let ends: Vec<usize> = match next {
            "" if rest.is_empty() => vec![text.len()],
            "" => text.char_indices().map(|(at, _)| at).chain([text.len()]).collect(),
            literal => text.match_indices(literal).map(|(at, _)| at).collect(),
        };
        for end in ends.into_iter().filter(|end| *end >= least) {
            let before = said.clone();
            match name {
                "message" => text[..end].clone_into(&mut said.message),
                "file" => said.file = Some(text[..end].to_owned()),
                _ => {}
            }
            if self.fits(rest, &text[end..], said) {
                return true;
            }
            *said = before;
            if self.steps == 0 {
                return false;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(lines: &[&str]) -> Pattern {
        Pattern(lines.iter().map(|line| (*line).to_owned()).collect())
    }

    fn one(text: &str, lines: &[&str]) -> Option<Said> {
        find(text, &[pattern(lines)], "main.c", 1).pop()
    }

    #[test]
    fn a_compilers_line_is_taken_apart() {
        let gcc = ["{file}:{line}:{column}: error: {message}"];
        let said = one("main.c: In function 'main':\nmain.c:3:15: error: 'x' undeclared: y\n", &gcc).unwrap();
        assert_eq!((said.line, said.column, said.message.as_str()), (Some(3), Some(15), "'x' undeclared: y"));
        assert!(said.is_about("main.c"));
        assert_eq!(one("main.c:3:15: warning: error", &gcc), None);
        assert_eq!(one("main.c:a:15: error: x", &gcc), None);
    }

    #[test]
    fn several_lines_belong_together_over_a_gap() {
        let rust = ["error{any}: {message}", "{any}--> {file}:{line}:{column}"];
        let text = "error[E0425]: cannot find value `x`\n --> main.c:2:5\n  |\n";
        let said = one(text, &rust).unwrap();
        assert_eq!((said.line, said.message.as_str()), (Some(2), "cannot find value `x`"));
        assert_eq!(one("error: aborting due to 1 previous error\n\n", &rust), None);
    }

    #[test]
    fn another_files_place_goes_into_the_words() {
        let gcc = ["{file}:{line}:{column}: error: {message}"];
        let said = one("./util.h:7:1: error: oh", &gcc).unwrap().for_program("main.c");
        assert_eq!((said.line, said.message.as_str()), (None, "util.h:7:1: oh"));
        let own = one("/workspace/main.c:7:1: error: oh", &gcc).unwrap().for_program("main.c");
        assert_eq!((own.line, own.message.as_str()), (Some(7), "oh"));
    }

    #[test]
    fn the_source_is_a_word_of_the_pattern() {
        let go = ["panic: {message}", "{any}/{source}:{line} {any}"];
        let text = "panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/workspace/main.c:6 +0x1d\n";
        assert_eq!(one(text, &go).unwrap().line, Some(6));
    }

    #[test]
    fn the_next_line_is_not_one_further_on() {
        let rust =
            ["error{any}: {message}", "{next}{any}--> /rustc/{any}", "{any}::: {file}:{line}:{column}"];
        let text = "error: a\n --> /rustc/1/macros.rs:1:2\n  |\n ::: main.c:3:1\n";
        assert_eq!(one(text, &rust).unwrap().line, Some(3));
        let own = format!("error: own\n --> main.c:9:1\n{text}");
        assert_eq!(one(&own, &rust).unwrap().message, "a");
    }

    #[test]
    fn hostile_text_ends_the_search_in_time() {
        let greedy = pattern(&["{any}:{any}:{any}:{any}:{file}:{line}: {message}"]);
        let text = ":".repeat(LINE_BYTES_MAX * 2);
        let all = [text.as_str(); 200].join("\n");
        let started = std::time::Instant::now();
        assert!(find(&all, &[greedy], "main.c", 5).is_empty());
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
        assert_eq!(find("ü".repeat(3000).as_str(), &[pattern(&["{message}"])], "m", 1).len(), 1);
    }

    #[test]
    fn every_finding_is_told_up_to_the_most() {
        let gcc = [pattern(&["{file}:{line}:{column}: error: {message}"])];
        let text = "main.c:1:1: error: a\nmain.c:2:1: error: b\nmain.c:3:1: error: c\n";
        let found = find(text, &gcc, "main.c", 2);
        assert_eq!(found.iter().map(|said| said.message.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }
}
