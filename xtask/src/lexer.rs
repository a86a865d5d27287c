//! A small lexer for Rust source. It separates words and punctuation from comments, and drops literals.
//!
//! The rules of `tidy` ask whether a token occurs in code. A word inside a string, a character literal or a
//! comment must therefore never look like one. The lexer follows the Rust reference, chapter "Lexical
//! structure". It does not report malformed source, because the compiler does: an unterminated literal runs
//! to the end.

/// The kind of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or keyword; a raw identifier keeps its `r#`, so `r#unsafe` is not the keyword.
    Word(String),
    /// `::`
    PathSeparator,
    /// Any other single character.
    Punctuation(char),
    /// A number, string, character or lifetime, contents dropped.
    Literal,
}

/// A token of code and the line (from 1) where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

/// One line of a comment, markers included; a block comment gives one entry per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comment {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The tokens and comments of a source file.
#[derive(Debug, Default)]
pub(crate) struct Lexed {
    pub(crate) tokens: Vec<Token>,
    pub(crate) comments: Vec<Comment>,
}

impl Token {
    /// The text of this token if it is a word.
    pub(crate) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    pub(crate) fn is_punctuation(&self, character: char) -> bool {
        self.kind == Kind::Punctuation(character)
    }
}

/// Splits `source` into tokens and comments.
pub(crate) fn lex(source: &str) -> Lexed {
    let mut lexer = Lexer { rest: source.chars().collect(), at: 0, line: 1, out: Lexed::default() };
    while let Some(next) = lexer.peek(0) {
        lexer.step(next);
    }
    lexer.out
}

struct Lexer {
    rest: Vec<char>,
    at: usize,
    line: usize,
    out: Lexed,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    fn bump(&mut self) -> Option<char> {
        let character = self.peek(0)?;
        self.at += 1;
        if character == '\n' {
            self.line += 1;
        }
        Some(character)
    }

    fn push(&mut self, line: usize, kind: Kind) {
        self.out.tokens.push(Token { line, kind });
    }

    fn step(&mut self, next: char) {
        match (next, self.peek(1)) {
            ('/', Some('/')) => self.line_comment(),
            ('/', Some('*')) => self.block_comment(),
            ('"', _) => self.string(),
            ('\'', _) => self.quote(),
            (':', Some(':')) => {
                self.push(self.line, Kind::PathSeparator);
                self.at += 2;
            }
            (c, _) if c.is_whitespace() => {
                self.bump();
            }
            (c, _) if c.is_ascii_digit() => self.number(),
            (c, _) if is_word_start(c) => self.word_or_prefixed_literal(),
            (c, _) => {
                self.push(self.line, Kind::Punctuation(c));
                self.bump();
            }
        }
    }

    fn line_comment(&mut self) {
        let line = self.line;
        let mut text = String::new();
        while let Some(c) = self.peek(0).filter(|c| *c != '\n') {
            text.push(c);
            self.at += 1;
        }
        self.out.comments.push(Comment { line, text });
    }

    /// Block comments nest.
    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        let mut line = self.line;
        let mut text = String::new();
        while let Some(c) = self.peek(0) {
            let pair = (c, self.peek(1));
            if pair == ('/', Some('*')) || pair == ('*', Some('/')) {
                depth = if c == '/' { depth + 1 } else { depth - 1 };
                text.push(c);
                self.at += 1;
            }
            match self.bump() {
                Some('\n') => {
                    self.out.comments.push(Comment { line, text: std::mem::take(&mut text) });
                    line = self.line;
                }
                Some(other) => text.push(other),
                None => break,
            }
            if depth == 0 {
                break;
            }
        }
        self.out.comments.push(Comment { line, text });
    }

    /// From the opening `"` to after the closing one.
    fn string(&mut self) {
        self.push(self.line, Kind::Literal);
        self.bump();
        while let Some(c) = self.bump() {
            match c {
                '\\' => {
                    self.bump();
                }
                '"' => break,
                _ => {}
            }
        }
    }

    /// From the first `#` or `"` after the prefix to after the closing `"` with as many `#`.
    fn raw_string(&mut self) {
        self.push(self.line, Kind::Literal);
        let mut hashes = 0;
        while self.peek(0) == Some('#') {
            hashes += 1;
            self.at += 1;
        }
        self.bump();
        while let Some(c) = self.bump() {
            if c == '"' && (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                self.at += hashes;
                break;
            }
        }
    }

    /// A character literal or a lifetime: `'\` and `'x'` begin the first, everything else the second.
    fn quote(&mut self) {
        self.push(self.line, Kind::Literal);
        let is_character = self.peek(1) == Some('\\') || self.peek(2) == Some('\'');
        self.bump();
        if !is_character {
            while self.peek(0).is_some_and(|c| is_word_continue(c) || c == '#') {
                self.at += 1;
            }
            return;
        }
        if self.bump() == Some('\\') {
            self.bump();
        }
        while self.bump().is_some_and(|c| c != '\'') {}
    }

    /// Suffixes and hexadecimal digits belong to the number; `.` and signs are left as punctuation.
    fn number(&mut self) {
        self.push(self.line, Kind::Literal);
        while self.peek(0).is_some_and(is_word_continue) {
            self.at += 1;
        }
    }

    fn word_or_prefixed_literal(&mut self) {
        let line = self.line;
        let mut word = String::new();
        while let Some(c) = self.peek(0).filter(|c| is_word_continue(*c)) {
            word.push(c);
            self.at += 1;
        }
        match (word.as_str(), self.peek(0)) {
            ("b" | "c", Some('"')) => self.string(),
            ("b", Some('\'')) => self.quote(),
            ("r" | "br" | "cr", Some('"')) => self.raw_string(),
            ("r" | "br" | "cr", Some('#')) if self.hashes_open_a_string() => self.raw_string(),
            ("r", Some('#')) if self.peek(1).is_some_and(is_word_start) => {
                self.at += 1;
                word.push('#');
                while let Some(c) = self.peek(0).filter(|c| is_word_continue(*c)) {
                    word.push(c);
                    self.at += 1;
                }
                self.push(line, Kind::Word(word));
            }
            _ => self.push(line, Kind::Word(word)),
        }
    }

    fn hashes_open_a_string(&self) -> bool {
        let behind = self.rest.get(self.at..).unwrap_or_default().iter().find(|c| **c != '#');
        behind == Some(&'"')
    }
}

fn is_word_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn is_word_continue(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        lex(source).tokens.iter().filter_map(Token::word).map(String::from).collect()
    }

    #[test]
    fn words_in_comments_are_not_code() {
        assert_eq!(words("a // unsafe\nb /* unsafe /* unsafe */ unsafe */ c"), ["a", "b", "c"]);
        assert_eq!(words("//! unsafe\n/// unsafe\nd"), ["d"]);
    }

    #[test]
    fn words_in_strings_are_not_code() {
        assert_eq!(words(r#"a("unsafe \" unsafe", b"unsafe", c"unsafe") b"#), ["a", "b"]);
        assert_eq!(words("\"one \\\\\" after"), ["after"]);
    }

    #[test]
    fn words_in_raw_strings_are_not_code() {
        assert_eq!(
            words(r###"a r"unsafe\" b r#"x " unsafe"# c br##"y "# unsafe"## d"###),
            ["a", "b", "c", "d"]
        );
    }

    #[test]
    fn comment_markers_in_strings_do_not_hide_code() {
        assert_eq!(words(r#"a "//" b "/*" c"#), ["a", "b", "c"]);
    }

    #[test]
    fn quotes_in_character_literals_do_not_open_strings() {
        assert_eq!(words(r#"a '"' b '\'' c b'"' d '\\' e '\u{41}' f"#), ["a", "b", "c", "d", "e", "f"]);
    }

    #[test]
    fn lifetimes_do_not_open_character_literals() {
        assert_eq!(words("fn f<'a>(x: &'a str, y: &'static str) {}"), ["fn", "f", "x", "str", "y", "str"]);
        assert_eq!(words("loop { break 'outer; } unsafe"), ["loop", "break", "unsafe"]);
    }

    #[test]
    fn raw_identifiers_are_not_keywords() {
        assert_eq!(words("r#unsafe r#type"), ["r#unsafe", "r#type"]);
    }

    #[test]
    fn lines_are_counted_through_every_kind_of_token() {
        let lexed = lex("\"a\nb\" /* c\nd */ r\"\n\" 'x' last");
        assert_eq!(lexed.tokens.last(), Some(&Token { line: 4, kind: Kind::Word("last".into()) }));
        let lines: Vec<usize> = lexed.comments.iter().map(|comment| comment.line).collect();
        assert_eq!(lines, [2, 3]);
    }

    #[test]
    fn path_separators_are_one_token() {
        let kinds: Vec<Kind> = lex("a::b: c").tokens.into_iter().map(|token| token.kind).collect();
        let word = |w: &str| Kind::Word(w.into());
        assert_eq!(kinds, [word("a"), Kind::PathSeparator, word("b"), Kind::Punctuation(':'), word("c")]);
    }

    #[test]
    fn unterminated_literals_run_to_the_end() {
        assert_eq!(words("a \"unsafe"), ["a"]);
        assert_eq!(words("a r#\"unsafe\""), ["a"]);
        assert_eq!(words("a /* unsafe"), ["a"]);
        assert!(words("'").is_empty());
    }
}
