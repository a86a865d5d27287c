//! Reads JSON with positions. The usual reader keeps only the last of two equal keys and forgets places.

use super::{Budget, DEPTH_MAX, Entry, Flaw, Node, NodeValue, Position, bad_number, too_deep, unique};
use crate::decimal::Decimal;

pub(super) fn read(text: &str) -> Result<Node, Flaw> {
    let mut reader = Reader { rest: text, at: Position { line: 1, column: 1 }, budget: Budget::default() };
    reader.skip_space();
    let node = reader.value(0)?;
    reader.skip_space();
    match reader.rest.is_empty() {
        true => Ok(node),
        false => Err(reader.expected("the end of the file")),
    }
}

struct Reader<'t> {
    rest: &'t str,
    at: Position,
    budget: Budget,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn step(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        match next {
            '\n' => self.at = Position { line: self.at.line + 1, column: 1 },
            _ => self.at.column += 1,
        }
        Some(next)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.step();
        }
    }

    fn expected(&self, what: &str) -> Flaw {
        let found = match self.peek() {
            Some(next) => format!("`{}`", next.escape_debug()),
            None => "the end of the file".to_owned(),
        };
        Flaw::new(self.at, format!("expected {what}, found {found}"))
    }

    fn eat(&mut self, wanted: char) -> Result<(), Flaw> {
        match self.peek() == Some(wanted) {
            true => self.step().map(drop).ok_or_else(|| self.expected("more")),
            false => Err(self.expected(&format!("`{wanted}`"))),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Flaw> {
        let at = self.at;
        if depth > DEPTH_MAX {
            return Err(too_deep(at));
        }
        self.budget.take(at, 1)?;
        let value = match self.peek() {
            Some('{') => NodeValue::Map(self.map(depth)?),
            Some('[') => NodeValue::List(self.list(depth)?),
            Some('"') => NodeValue::Text(self.text()?),
            Some('-' | '0'..='9') => self.number()?,
            Some('t' | 'f' | 'n') => self.word()?,
            _ => return Err(self.expected("a value")),
        };
        Ok(Node { at, value })
    }

    fn map(&mut self, depth: usize) -> Result<Vec<Entry>, Flaw> {
        let mut map = Vec::new();
        self.eat('{')?;
        self.skip_space();
        while self.peek() != Some('}') {
            let at = self.at;
            if self.peek() != Some('"') {
                return Err(self.expected("a key in double quotes"));
            }
            let key = self.text()?;
            self.skip_space();
            self.eat(':')?;
            self.skip_space();
            let value = self.value(depth + 1)?;
            map.push(Entry { at, key, value });
            self.separator('}')?;
        }
        self.eat('}')?;
        unique(map)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Flaw> {
        let mut list = Vec::new();
        self.eat('[')?;
        self.skip_space();
        while self.peek() != Some(']') {
            list.push(self.value(depth + 1)?);
            self.separator(']')?;
        }
        self.eat(']')?;
        Ok(list)
    }

    /// A comma with something behind it, or the end of the list.
    fn separator(&mut self, end: char) -> Result<(), Flaw> {
        self.skip_space();
        if self.peek() == Some(end) {
            return Ok(());
        }
        if self.peek() != Some(',') {
            return Err(self.expected(&format!("`,` or `{end}`")));
        }
        self.step();
        self.skip_space();
        match self.peek() == Some(end) {
            true => Err(self.expected("a value behind the comma")),
            false => Ok(()),
        }
    }

    fn word(&mut self) -> Result<NodeValue, Flaw> {
        for (word, value) in
            [("true", NodeValue::Bool(true)), ("false", NodeValue::Bool(false)), ("null", NodeValue::Null)]
        {
            if self.rest.starts_with(word) {
                for _ in word.chars() {
                    self.step();
                }
                return Ok(value);
            }
        }
        Err(self.expected("a value"))
    }

    fn number(&mut self) -> Result<NodeValue, Flaw> {
        let at = self.at;
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let length = self.rest.find(|c: char| !is_part(c)).unwrap_or(self.rest.len());
        let text: &'t str = &self.rest[..length];
        let whole = text.trim_start_matches('-');
        if whole.len() > 1
            && whole.starts_with('0')
            && whole.as_bytes().get(1).is_some_and(u8::is_ascii_digit)
        {
            return Err(Flaw::new(at, "a number does not begin with 0"));
        }
        for _ in text.chars() {
            self.step();
        }
        Decimal::parse(text).map(NodeValue::Number).ok_or_else(|| bad_number(at, text))
    }

    fn text(&mut self) -> Result<String, Flaw> {
        self.eat('"')?;
        let mut text = String::new();
        loop {
            let at = self.at;
            match self.step() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape(at)?),
                Some(c) if c < ' ' => {
                    return Err(Flaw::new(at, "a control character in a text is written as an escape"));
                }
                Some(c) => text.push(c),
                None => return Err(Flaw::new(at, "the text has no closing quote")),
            }
        }
    }

    fn escape(&mut self, at: Position) -> Result<char, Flaw> {
        Ok(match self.step() {
            Some('"') => '"',
            Some('\\') => '\\',
            Some('/') => '/',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => self.unicode(at)?,
            _ => return Err(Flaw::new(at, "this escape is not one of JSON's")),
        })
    }

    fn unicode(&mut self, at: Position) -> Result<char, Flaw> {
        let first = self.hex(at)?;
        let code = match first {
            0xd800..=0xdbff => {
                let is_pair = self.step() == Some('\\') && self.step() == Some('u');
                let second = if is_pair { self.hex(at)? } else { 0 };
                match second {
                    0xdc00..=0xdfff => 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                    _ => return Err(Flaw::new(at, "half of a surrogate pair is no character")),
                }
            }
            other => other,
        };
        char::from_u32(code).ok_or_else(|| Flaw::new(at, "half of a surrogate pair is no character"))
    }

    fn hex(&mut self, at: Position) -> Result<u32, Flaw> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.step().and_then(|c| c.to_digit(16));
            code = code * 16 + digit.ok_or_else(|| Flaw::new(at, "`\\u` takes four hexadecimal digits"))?;
        }
        Ok(code)
    }
}
