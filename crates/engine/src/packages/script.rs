//! Packages that a Python program asks for itself: script metadata (PEP 723), and lines such as `%pip install pandas`.
//!
//! The text is only read. A line counts if it is at top level, outside of strings and brackets, and says literally what to
//! install. Every other line is left to the driver, which tells the program what to do instead.

use serde::Deserialize;

use super::asked::{self, BAD_PACKAGE};
use crate::result::RunError;

/// Options of `pip install` that change nothing here.
const IDLE_OPTIONS: [&str; 18] = [
    "-q",
    "-qq",
    "-qqq",
    "--quiet",
    "-U",
    "--upgrade",
    "--user",
    "-y",
    "--yes",
    "--no-cache-dir",
    "--no-input",
    "--force-reinstall",
    "--break-system-packages",
    "--disable-pip-version-check",
    "--no-warn-script-location",
    "--prefer-binary",
    "--root-user-action=ignore",
    "--system",
];
/// The opening line of script metadata.
const OPENING: &str = "# /// script";
/// Its closing line.
const CLOSING: &str = "# ///";

/// What a program asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Requested {
    /// Requirements of the script metadata.
    pub(super) dependencies: Vec<String>,
    /// Requirements of lines that install, in the order of the program.
    pub(super) installs: Vec<String>,
    /// The versions of Python that the program accepts.
    pub(super) requires_python: Option<String>,
}

/// What a program asks for. Only Python programs can.
pub(super) fn asked_in_code(language: &str, code: &str) -> Result<Requested, RunError> {
    if language != "python" {
        return Ok(Requested::default());
    }
    let mut asked = if code.contains(OPENING) { metadata(code)? } else { Requested::default() };
    if code.contains("install") {
        asked.installs = installs(code);
    }
    Ok(asked)
}

/// Whether a version is among those that a specifier such as `>=3.9,<4` accepts. A clause that is not understood accepts
/// every version.
pub(super) fn accepts_version(specifier: &str, version: &str) -> bool {
    let version = numbers(version);
    specifier.split(',').all(|clause| {
        let clause = clause.trim();
        let operators = ["~=", "==", "!=", ">=", "<=", ">", "<"];
        let Some((operator, wanted)) =
            operators.iter().find_map(|operator| Some((*operator, clause.strip_prefix(operator)?)))
        else {
            return true;
        };
        let wanted = wanted.trim();
        let is_prefix = wanted.ends_with(".*");
        let wanted = numbers(wanted.trim_end_matches(".*"));
        if wanted.is_empty() {
            return true;
        }
        let mut padded = [version.clone(), wanted.clone()];
        let length = version.len().max(wanted.len());
        padded.iter_mut().for_each(|one| one.resize(length, 0));
        let [found, bound] = padded;
        let is_within = version.len() >= wanted.len() && version[..wanted.len()] == wanted[..];
        match operator {
            ">=" => found >= bound,
            "<=" => found <= bound,
            ">" => found > bound,
            "<" => found < bound,
            "==" => {
                if is_prefix {
                    is_within
                } else {
                    found == bound
                }
            }
            "!=" => !if is_prefix { is_within } else { found == bound },
            // `~=3.9` is `>=3.9, ==3.*`.
            _ => found >= bound && version.starts_with(&wanted[..wanted.len() - 1]),
        }
    })
}

fn numbers(version: &str) -> Vec<u64> {
    let number = |part: &str| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    version.trim().split('.').map_while(number).collect()
}

// -- script metadata --

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    #[serde(default)]
    dependencies: Vec<String>,
    requires_python: Option<String>,
}

fn metadata(code: &str) -> Result<Requested, RunError> {
    let lines: Vec<&str> = code.lines().map(str::trim_end).collect();
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let body = if lines[at] == OPENING { block(&lines[at + 1..]) } else { None };
        match body {
            Some(body) => {
                blocks.push((at, body));
                at += body.len() + 2;
            }
            None => at += 1,
        }
    }
    let (line, body) = match blocks.as_slice() {
        [] => return Ok(Requested::default()),
        [one] => *one,
        [_, (second, _), ..] => {
            return Err(malformed(
                *second,
                "the program has two blocks of script metadata",
                "leave one of them",
            ));
        }
    };
    let text =
        |line: &&str| line.strip_prefix("# ").or(line.strip_prefix('#')).unwrap_or_default().to_owned();
    let toml = body.iter().map(text).collect::<Vec<_>>().join("\n");
    let Metadata { dependencies, requires_python } = toml::from_str(&toml).map_err(|error| {
        let before = error.span().map_or(0, |span| toml[..span.start].matches('\n').count());
        malformed(
            line + 1 + before,
            &format!("the script metadata is not valid: {}", error.message()),
            "write dependencies = [\"pandas\"] as TOML, each line behind `# `",
        )
    })?;
    Ok(Requested { dependencies, requires_python, ..Requested::default() })
}

/// The lines of a block, up to its last closing line.
fn block<'a, 'b>(lines: &'b [&'a str]) -> Option<&'b [&'a str]> {
    let is_comment = |line: &&&str| **line == "#" || line.starts_with("# ");
    let comments = lines.iter().take_while(is_comment).count();
    let end = lines[..comments].iter().rposition(|line| *line == CLOSING)?;
    Some(&lines[..end])
}

fn malformed(line: usize, message: &str, remedy: &str) -> RunError {
    let line = u32::try_from(line + 1).ok();
    RunError { line, ..RunError::new(BAD_PACKAGE, message).remedy(remedy) }
}

// -- lines that install --

fn installs(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = code.lines().peekable();
    let margin = code.lines().find(|line| !line.trim().is_empty()).map_or("", |line| {
        let text = line.trim_start();
        &line[..line.len() - text.len()]
    });
    let mut scan = Scan::default();
    while let Some(line) = lines.next() {
        let own = line.strip_prefix(margin).filter(|_| scan.is_top_level());
        let Some(own) = own.filter(|own| is_command(own)) else {
            scan.read(line);
            continue;
        };
        if own.starts_with("%%") {
            // A cell magic rules over the rest: it is no Python.
            break;
        }
        let mut command = own.to_owned();
        while command.ends_with('\\')
            && let Some(next) = lines.next()
        {
            command.pop();
            command.push_str(next.trim());
        }
        found.extend(install(&command).unwrap_or_default());
    }
    found
}

/// Whether a line is for the notebook and not Python.
fn is_command(line: &str) -> bool {
    line.starts_with(['!', '%']) || after_installer(line).is_some()
}

/// What follows `pip install` in a line.
fn after_installer(line: &str) -> Option<&str> {
    let mut rest = line.trim_start_matches(['!', '%']).trim_start();
    let mut word = || {
        let (word, after) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
        rest = after.trim_start();
        word
    };
    let mut first = word();
    if first == "sudo" {
        first = word();
    }
    if is_versioned(first, "python") {
        if word() != "-m" {
            return None;
        }
        first = word();
    }
    if first == "uv" {
        first = word();
    }
    (is_versioned(first, "pip") && word() == "install").then_some(rest)
}

/// `pip`, `pip3`, `python3.11`.
fn is_versioned(word: &str, name: &str) -> bool {
    word.strip_prefix(name)
        .is_some_and(|rest| rest.chars().all(|letter| letter.is_ascii_digit() || letter == '.'))
}

/// The requirements of a command; `None` if it asks for something else than packages of a registry.
fn install(command: &str) -> Option<Vec<String>> {
    let words = words(after_installer(command)?)?;
    let mut found = Vec::new();
    for word in words {
        let is_redirect =
            ["1>", "2>", "&>", "> "].iter().any(|sign| word.starts_with(sign)) || word.starts_with('>');
        if word.starts_with('#') || is_redirect {
            break;
        }
        if word.starts_with('-') {
            if !IDLE_OPTIONS.contains(&word.as_str()) {
                return None;
            }
            continue;
        }
        asked::wanted(std::slice::from_ref(&word), "python").ok()?;
        found.push(word);
    }
    Some(found)
}

/// The words of a shell command. `None` if the shell would do more with it than split it.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let (mut is_inside, mut quote) = (false, None);
    for letter in text.chars() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                if !is_inside {
                    words.push(String::new());
                }
                is_inside = true;
            }
            (None, ' ' | '\t') => is_inside = false,
            (_, '$' | '`' | '{' | '}' | '\\') | (None, '|' | ';') => return None,
            _ => {
                if !is_inside {
                    words.push(String::new());
                }
                is_inside = true;
                words.last_mut()?.push(letter);
            }
        }
    }
    let is_joined = words.iter().any(|word| word == "&&" || word == "&");
    (quote.is_none() && !is_joined).then_some(words)
}

/// Follows strings, brackets and continued lines, so that a line inside of them is known as such.
#[derive(Default)]
struct Scan {
    /// The quotes that end the string.
    quote: Option<String>,
    brackets: usize,
    is_continued: bool,
}

impl Scan {
    fn is_top_level(&self) -> bool {
        self.quote.is_none() && self.brackets == 0 && !self.is_continued
    }

    fn read(&mut self, line: &str) {
        self.is_continued = false;
        let mut rest = line;
        while let Some(letter) = rest.chars().next() {
            let after = &rest[letter.len_utf8()..];
            match &self.quote {
                Some(quote) if rest.starts_with(quote.as_str()) => {
                    rest = &rest[quote.len()..];
                    self.quote = None;
                    continue;
                }
                Some(_) if letter == '\\' => {
                    let mut escaped = after.chars();
                    // A string of one line goes on after a backslash at the end.
                    self.is_continued = escaped.next().is_none();
                    rest = escaped.as_str();
                    continue;
                }
                Some(_) => {}
                None => match letter {
                    '#' => return,
                    '\'' | '"' => {
                        let triple = letter.to_string().repeat(3);
                        let is_triple = rest.starts_with(&triple);
                        self.quote = Some(if is_triple { triple } else { letter.to_string() });
                        rest = if is_triple { &rest[3..] } else { after };
                        continue;
                    }
                    '(' | '[' | '{' => self.brackets += 1,
                    ')' | ']' | '}' => self.brackets = self.brackets.saturating_sub(1),
                    '\\' if after.is_empty() => self.is_continued = true,
                    _ => {}
                },
            }
            rest = after;
        }
        if self.quote.as_ref().is_some_and(|quote| quote.len() == 1) && !self.is_continued {
            self.quote = None;
        }
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
