//! Assembles lines into programs: decides when a program needs more lines.
//!
//! ```text
//! one line, complete                        -> runs at once
//! ends in `:` (or `do`, `then`, `else` ...) -> more, until an empty line
//! an open bracket, text or here-document    -> more, until it is closed, or an empty line from a terminal
//! ends in `\`                               -> more
//! ```
//! The decision uses only characters and no grammar. If it is wrong, an empty line at a terminal ends the
//! program, and Ctrl-C discards it.

/// The lexical family of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Python,
    /// JavaScript and similar languages: `//`, `/* */`, backquotes.
    Braces,
    /// Bash and other languages with `#` comments.
    Script,
}

fn family(language: &str) -> Family {
    match language {
        "python" => Family::Python,
        "javascript" | "typescript" | "php" | "go" | "rust" | "c" | "cpp" | "csharp" | "java" => {
            Family::Braces
        }
        _ => Family::Script,
    }
}

/// Words at the end of a line that begin a block; only an empty line ends it.
const OPENING_WORDS: [&str; 4] = ["do", "then", "else", "repeat"];

/// First character of shell commands.
pub(super) const COMMAND_SIGN: char = '%';

/// Whether an edited text can be run: its last line completes the program.
pub(super) fn is_whole(language: &str, text: &str) -> bool {
    let mut block = Block::new(Origin::Terminal);
    for line in text.split('\n') {
        let is_command = block.is_empty() && line.trim_start().starts_with(COMMAND_SIGN);
        if !is_command {
            block.add(language, line);
        }
    }
    block.is_empty()
}

/// The source of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Terminal,
    Pipe,
}

/// The program so far.
#[derive(Debug)]
pub(super) struct Block {
    origin: Origin,
    text: String,
    /// A line began a block that only an empty line ends.
    is_until_empty: bool,
}

impl Block {
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, text: String::new(), is_until_empty: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.text.len()
    }

    /// Takes the lines so far, possibly none; the next line begins a new program.
    pub(super) fn take(&mut self) -> String {
        self.is_until_empty = false;
        std::mem::take(&mut self.text)
    }

    /// Adds a line. Returns the program once it is complete.
    pub(super) fn add(&mut self, language: &str, line: &str) -> Option<String> {
        let is_blank = line.trim().is_empty();
        if is_blank && self.text.is_empty() {
            return None;
        }
        self.text.push_str(line);
        self.text.push('\n');
        let end = End::of(family(language), &self.text);
        if is_blank && (self.origin == Origin::Terminal || end == End::Whole) {
            return Some(self.take());
        }
        self.is_until_empty |= end == End::Whole && opens_block(language, line);
        (end == End::Whole && !self.is_until_empty).then(|| self.take())
    }
}

fn opens_block(language: &str, line: &str) -> bool {
    let code = line.split(" #").next().unwrap_or(line).trim_end();
    match family(language) {
        // A decorator belongs to the following lines.
        Family::Python => code.ends_with(':') || code.trim_start().starts_with('@'),
        Family::Braces => false,
        Family::Script => {
            let last = code.split([' ', '\t', ';']).next_back().unwrap_or_default();
            OPENING_WORDS.contains(&last) || code.ends_with("&&") || code.ends_with('|')
        }
    }
}

/// The open construct at the end of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Open,
}

impl End {
    fn of(family: Family, text: &str) -> Self {
        let mut scan = Scan { family, rest: text, depth: 0 };
        loop {
            match scan.step() {
                Step::On => {}
                Step::Over if scan.depth > 0 || text.ends_with("\\\n") => return Self::Open,
                Step::Over | Step::Broken => return Self::Whole,
                Step::Unclosed => return Self::Open,
            }
        }
    }
}

enum Step {
    On,
    Over,
    /// A string or a here-document is not closed.
    Unclosed,
    /// A string should have ended on its line. The language itself reports the error.
    Broken,
}

struct Scan<'a> {
    family: Family,
    rest: &'a str,
    depth: usize,
}

impl Scan<'_> {
    fn step(&mut self) -> Step {
        let Some(next) = self.rest.chars().next() else { return Step::Over };
        if let Some(end) = self.comment_end() {
            return self.skip_past(end, Step::Over);
        }
        if self.family == Family::Script && self.rest.starts_with("<<") {
            return self.skip_document();
        }
        match next {
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            '\\' => {
                let count = self.rest.chars().take(2).map(char::len_utf8).sum();
                self.rest = &self.rest[count..];
                return Step::On;
            }
            '"' | '\'' | '`' => return self.skip_text(next),
            _ => {}
        }
        self.rest = &self.rest[next.len_utf8()..];
        Step::On
    }

    /// The end marker of the comment that begins here, if one does.
    fn comment_end(&self) -> Option<&'static str> {
        let rest = self.rest;
        match self.family {
            Family::Python | Family::Script => rest.starts_with('#').then_some("\n"),
            Family::Braces if rest.starts_with("//") => Some("\n"),
            Family::Braces => rest.starts_with("/*").then_some("*/"),
        }
    }

    fn skip_past(&mut self, end: &str, otherwise: Step) -> Step {
        match self.rest.find(end) {
            Some(place) => {
                self.rest = &self.rest[place + end.len()..];
                Step::On
            }
            None => {
                self.rest = "";
                otherwise
            }
        }
    }

    fn skip_text(&mut self, quote: char) -> Step {
        let triple: String = [quote; 3].iter().collect();
        let is_triple = self.family == Family::Python && self.rest.starts_with(&triple);
        let end = if is_triple { triple } else { quote.to_string() };
        let is_one_line = match self.family {
            Family::Python => !is_triple,
            Family::Braces => quote != '`',
            Family::Script => false,
        };
        let is_raw = self.family == Family::Script && quote == '\'';
        self.rest = &self.rest[end.len()..];
        while let Some(next) = self.rest.chars().next() {
            if self.rest.starts_with(&end) {
                self.rest = &self.rest[end.len()..];
                return Step::On;
            }
            if next == '\n' && is_one_line {
                return Step::Broken;
            }
            let count = if next == '\\' && !is_raw { 2 } else { 1 };
            let skipped = self.rest.chars().take(count).map(char::len_utf8).sum();
            self.rest = &self.rest[skipped..];
        }
        Step::Unclosed
    }

    /// `<<WORD`, `<<-WORD`, `<<'WORD'`: until a line that equals the word. `<<<` is not a here-document.
    fn skip_document(&mut self) -> Step {
        let behind = &self.rest[2..];
        let word = behind.trim_start_matches(['-', '~']).trim_start_matches([' ', '\'', '"']);
        let length = word.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(word.len());
        let word = &word[..length];
        if behind.starts_with('<') || word.is_empty() || word.starts_with(|c: char| c.is_ascii_digit()) {
            self.rest = behind.trim_start_matches('<');
            return Step::On;
        }
        let Some((_, body)) = behind.split_once('\n') else { return Step::Unclosed };
        let mut rest = body;
        while let Some((line, behind)) = rest.split_once('\n') {
            rest = behind;
            if line.trim() == word {
                self.rest = rest;
                return Step::On;
            }
        }
        Step::Unclosed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The programs that result from these lines.
    fn programs(origin: Origin, language: &str, lines: &str) -> Vec<String> {
        let mut block = Block::new(origin);
        let mut all: Vec<String> = lines.lines().filter_map(|line| block.add(language, line)).collect();
        let rest = block.take();
        all.extend((!rest.is_empty()).then_some(rest));
        all
    }

    fn count(language: &str, lines: &str) -> usize {
        programs(Origin::Pipe, language, lines).len()
    }

    #[test]
    fn complete_lines_run_one_by_one() {
        assert_eq!(programs(Origin::Pipe, "python", "x = 1\n\n\nprint(x)"), ["x = 1\n", "print(x)\n"]);
        assert_eq!(count("bash", "x=1\necho \"$x\""), 2);
        assert_eq!(count("javascript", "let x = 1\nx + 1 // ( {"), 2);
    }

    #[test]
    fn a_colon_wants_more_until_an_empty_line() {
        let lines = "def f(a):  # a colon: here\n    if a:\n        return 1\n    return 2\n\nf(1)";
        assert_eq!(count("python", lines), 2);
        assert_eq!(count("python", "@cache\ndef f():\n    return 1\n\nf()"), 2);
        assert_eq!(count("bash", "for i in 1 2; do\necho $i\ndone\n\necho end"), 2);
    }

    #[test]
    fn brackets_texts_and_documents_want_more_until_they_are_closed() {
        assert_eq!(count("python", "f(\n  [1,\n\n  2],\n)\nx"), 2);
        assert_eq!(count("python", "s = \"\"\"a\n\nb: (\n\"\"\"\ns"), 2);
        assert_eq!(count("javascript", "function f() {\n\n  return `a\n{`\n}\nf()"), 2);
        assert_eq!(count("bash", "cat <<EOF\na (\n\nb\nEOF\necho 'a\nb'\necho $((1 << 2))"), 3);
        assert_eq!(count("bash", "cat <<-'END'\n\tx\n\tEND\ncat <<< word"), 2);
        assert_eq!(count("bash", "echo a \\\n  b\necho c"), 2);
    }

    #[test]
    fn brackets_within_texts_and_comments_do_not_count() {
        assert_eq!(count("python", "print('(')\nprint(\"it's [\")\nx = 1 # {\ny"), 4);
        assert_eq!(count("javascript", "let a = '(' /* [ */\nlet b = \"\\\"(\"\nb"), 3);
    }

    #[test]
    fn an_empty_line_at_a_terminal_ends_whatever_is_open() {
        assert_eq!(programs(Origin::Terminal, "python", "f(\n\nx"), ["f(\n\n", "x\n"]);
    }

    #[test]
    fn an_edited_text_is_whole_when_its_last_line_ends_what_was_begun() {
        for text in ["", "x = 1", "f(\n1)", "def f():\n    return 1\n", "%lang (", "a\n\nb", "x = (\n"] {
            assert!(is_whole("python", text), "{text:?}");
        }
        for text in ["f(", "def f():", "def f():\n    return 1", "s = \"\"\"a", "a\nf(", "%lang x\nf("] {
            assert!(!is_whole("python", text), "{text:?}");
        }
    }

    #[test]
    fn a_mistake_in_a_text_is_left_to_the_language() {
        assert_eq!(count("python", "print('a\nx"), 2);
        assert_eq!(count("python", "a)]}\nx"), 2);
    }
}
