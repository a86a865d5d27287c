//! Changes to a source text that never move a line.
//!
//! Whatever is taken out is replaced by blanks, whatever is put in keeps the line breaks it covers. So a line of
//! the product is the same line of the source; where a column differs, a [`Shift`] says by how much.

use oxc_span::Span;
use serde::Serialize;

/// Line of the product, column behind something put in, by how much columns are larger from there on, and how many
/// columns before it were put in. Columns are 0-based, in UTF-16 units, as V8 counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Shift(pub(crate) u32, pub(crate) u32, pub(crate) i64, pub(crate) i64);

struct Edit {
    start: usize,
    end: usize,
    text: String,
}

/// Changes to one text.
pub(crate) struct Edits<'a> {
    source: &'a str,
    edits: Vec<Edit>,
}

impl<'a> Edits<'a> {
    pub(crate) fn new(source: &'a str) -> Self {
        Self { source, edits: Vec::new() }
    }

    pub(crate) fn source(&self) -> &'a str {
        self.source
    }

    /// The text between two places.
    pub(crate) fn text(&self, start: u32, end: u32) -> &'a str {
        self.source.get(start as usize..end as usize).unwrap_or_default()
    }

    pub(crate) fn insert(&mut self, at: u32, text: impl Into<String>) {
        self.edits.push(Edit { start: at as usize, end: at as usize, text: text.into() });
    }

    /// Puts text in the place of a range; line breaks of the range follow it.
    pub(crate) fn replace(&mut self, start: u32, end: u32, text: impl Into<String>) {
        let mut text = text.into();
        text.extend(self.text(start, end).chars().filter(|letter| *letter == '\n'));
        self.edits.push(Edit { start: start as usize, end: end as usize, text });
    }

    /// Takes a range out.
    pub(crate) fn blank(&mut self, start: u32, end: u32) {
        if start < end {
            let text = blanks(self.text(start, end));
            self.edits.push(Edit { start: start as usize, end: end as usize, text });
        }
    }

    /// Takes a statement out; the semicolon keeps its neighbours apart.
    pub(crate) fn erase(&mut self, span: Span) {
        self.blank(span.start, span.end);
        self.end_with_semicolon_at(self.edits.len().saturating_sub(1));
    }

    /// How many there are: a mark for [`Edits::close_statement`].
    pub(crate) fn mark(&self) -> usize {
        self.edits.len()
    }

    /// A statement that ended in something taken out since `mark` now ends with a semicolon there: without it the
    /// next line might be read as its continuation.
    pub(crate) fn close_statement(&mut self, mark: usize, end: u32) {
        let is_last =
            |edit: &Edit| edit.end == end as usize && edit.end > edit.start && edit.text.starts_with(' ');
        if let Some(index) = (mark..self.edits.len()).find(|index| is_last(&self.edits[*index])) {
            self.end_with_semicolon_at(index);
        }
    }

    fn end_with_semicolon_at(&mut self, index: usize) {
        if let Some(edit) = self.edits.get_mut(index).filter(|edit| edit.text.starts_with(' ')) {
            edit.text.replace_range(0..1, ";");
        }
    }

    /// The changed text, and where its columns differ.
    pub(crate) fn apply(mut self) -> (String, Vec<Shift>) {
        self.edits.sort_by_key(|edit| (edit.start, edit.end));
        let mut product =
            Product { text: String::with_capacity(self.source.len() + 256), ..Product::default() };
        let mut at = 0;
        for edit in &self.edits {
            // A change within something taken out has no meaning any more.
            if edit.start < at {
                continue;
            }
            product.copy(&self.source[at..edit.start]);
            product.put(&edit.text, &self.source[edit.start..edit.end]);
            at = edit.end;
        }
        product.copy(&self.source[at..]);
        (product.text, product.shifts)
    }
}

#[derive(Default)]
struct Product {
    text: String,
    shifts: Vec<Shift>,
    line: u32,
    column: i64,
    source_column: i64,
    by: i64,
}

impl Product {
    fn copy(&mut self, text: &str) {
        self.text.push_str(text);
        match text.rfind('\n') {
            Some(last) => {
                self.line += newlines(text);
                self.column = width(&text[last + 1..]);
                self.source_column = self.column;
                self.by = 0;
            }
            None => {
                self.column += width(text);
                self.source_column += width(text);
            }
        }
    }

    fn put(&mut self, text: &str, instead_of: &str) {
        self.text.push_str(text);
        self.line += newlines(text);
        self.column = column_after(self.column, text);
        self.source_column = column_after(self.source_column, instead_of);
        if newlines(text) > 0 {
            self.by = 0;
        }
        let by = self.column - self.source_column;
        if by != self.by {
            self.by = by;
            let put = column_after(0, text);
            self.shifts.push(Shift(self.line + 1, u32::try_from(self.column).unwrap_or(0), by, put));
        }
    }
}

fn column_after(column: i64, text: &str) -> i64 {
    match text.rfind('\n') {
        Some(last) => width(&text[last + 1..]),
        None => column + width(text),
    }
}

fn newlines(text: &str) -> u32 {
    u32::try_from(text.bytes().filter(|byte| *byte == b'\n').count()).unwrap_or(u32::MAX)
}

fn width(text: &str) -> i64 {
    i64::try_from(text.chars().map(char::len_utf16).sum::<usize>()).unwrap_or(i64::MAX)
}

fn blanks(text: &str) -> String {
    let mut blank = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => blank.push('\n'),
            _ => (0..letter.len_utf16()).for_each(|_| blank.push(' ')),
        }
    }
    blank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_leaves_every_column_in_place() {
        let mut edits = Edits::new("let x: \"🐍\" = 1;\nnext");
        edits.blank(5, 13);
        assert_eq!(edits.apply(), ("let x       = 1;\nnext".to_owned(), vec![]));
    }

    #[test]
    fn what_is_put_in_shifts_the_rest_of_its_line() {
        let mut edits = Edits::new("a; b\nc");
        edits.insert(2, "XX");
        edits.replace(3, 4, "bbb");
        assert_eq!(edits.apply(), ("a;XX bbb\nc".to_owned(), vec![Shift(1, 4, 2, 2), Shift(1, 8, 4, 3)]));
    }

    #[test]
    fn lines_never_move() {
        let mut edits = Edits::new("one {\n two\n} three");
        edits.replace(0, 12, "X");
        let (text, shifts) = edits.apply();
        assert_eq!(text, "X\n\n three");
        assert_eq!(shifts, [Shift(3, 0, -1, 0)]);
    }

    #[test]
    fn a_statement_that_lost_its_end_is_closed() {
        let mut edits = Edits::new("let x: T\n(y)");
        edits.blank(5, 8);
        edits.close_statement(0, 8);
        assert_eq!(edits.apply().0, "let x;  \n(y)");
    }
}
