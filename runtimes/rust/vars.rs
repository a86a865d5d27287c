//! Variables of the run: `vars::name`. Their values are read before main begins. docs/LANGUAGES.md
#![allow(non_upper_case_globals, improper_ctypes, static_mut_refs, unused)]

pub use reading::Value;

unsafe extern "C" {
    // @declare@
}

/// Apart, so that no name of a variable is in scope.
mod reading {
    use std::fmt;
    use std::ops::Index;

// @define@

    /// Nested data. What is not there is null.
    #[derive(Debug, Clone, PartialEq)]
    pub enum Value {
        Null,
        Bool(bool),
        Int(i64),
        /// In decimal.
        Big(String),
        Float(f64),
        Text(String),
        List(Vec<Value>),
        Map(Vec<(String, Value)>),
    }

    impl Value {
        pub fn is_null(&self) -> bool {
            *self == Value::Null
        }
        pub fn as_bool(&self) -> Option<bool> {
            if let Value::Bool(it) = self { Some(*it) } else { None }
        }
        pub fn as_i64(&self) -> Option<i64> {
            if let Value::Int(it) = self { Some(*it) } else { None }
        }
        pub fn as_f64(&self) -> Option<f64> {
            match self {
                Value::Float(it) => Some(*it),
                Value::Int(it) => Some(*it as f64),
                _ => None,
            }
        }
        pub fn as_str(&self) -> Option<&str> {
            match self {
                Value::Text(it) | Value::Big(it) => Some(it),
                _ => None,
            }
        }
        pub fn as_array(&self) -> Option<&[Value]> {
            if let Value::List(it) = self { Some(it) } else { None }
        }
        pub fn as_object(&self) -> Option<&[(String, Value)]> {
            if let Value::Map(it) = self { Some(it) } else { None }
        }
        pub fn get(&self, key: &str) -> Option<&Value> {
            self.as_object()?.iter().find(|(name, _)| name == key).map(|(_, value)| value)
        }
        pub fn len(&self) -> usize {
            self.as_array().map_or(self.as_object().map_or(0, <[_]>::len), <[_]>::len)
        }
    }

    impl Index<&str> for Value {
        type Output = Value;
        fn index(&self, key: &str) -> &Value {
            self.get(key).unwrap_or(&Value::Null)
        }
    }

    impl Index<usize> for Value {
        type Output = Value;
        fn index(&self, at: usize) -> &Value {
            self.as_array().and_then(|list| list.get(at)).unwrap_or(&Value::Null)
        }
    }

    impl fmt::Display for Value {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Value::Null => f.write_str("null"),
                Value::Bool(it) => it.fmt(f),
                Value::Int(it) => it.fmt(f),
                Value::Float(it) => it.fmt(f),
                Value::Text(it) | Value::Big(it) => f.write_str(it),
                nested => write!(f, "{nested:?}"),
            }
        }
    }

    struct Input(&'static str);

    impl Input {
        fn line(&mut self) -> &'static str {
            let (line, rest) = self.0.split_once('\n').expect("palisade's values");
            self.0 = rest;
            line
        }
        fn count(line: &str) -> usize {
            line[1..].parse().expect("palisade's values")
        }
        fn text_of(&mut self, line: &str) -> &'static str {
            let (text, rest) = self.0.split_at(Self::count(line));
            self.0 = &rest[1..];
            text
        }
        fn text(&mut self) -> &'static str {
            let line = self.line();
            self.text_of(line)
        }
        fn word(&mut self) -> &'static str {
            &self.line()[1..]
        }
        fn boolean(&mut self) -> bool {
            self.line() == "t"
        }
        fn integer(&mut self) -> i64 {
            self.word().parse().expect("palisade's values")
        }
        fn float(&mut self) -> f64 {
            self.word().parse().expect("palisade's values")
        }
        fn list<T>(&mut self, read: fn(&mut Self) -> T) -> &'static [T] {
            let count = Self::count(self.line());
            (0..count).map(|_| read(self)).collect::<Vec<T>>().leak()
        }
        fn nested(&mut self) -> &'static Value {
            Box::leak(Box::new(self.value()))
        }
        fn value(&mut self) -> Value {
            let line = self.line();
            match line.as_bytes()[0] {
                b't' => Value::Bool(true),
                b'f' => Value::Bool(false),
                b'i' => Value::Int(line[1..].parse().expect("palisade's values")),
                b'I' => Value::Big(line[1..].to_owned()),
                b'd' => Value::Float(line[1..].parse().expect("palisade's values")),
                b's' => Value::Text(self.text_of(line).to_owned()),
                b'[' => Value::List((0..Self::count(line)).map(|_| self.value()).collect()),
                b'{' => Value::Map((0..Self::count(line)).map(|_| (self.text().to_owned(), self.value())).collect()),
                _ => Value::Null,
            }
        }
    }

    extern "C" fn bind() {
        let content = std::fs::read_to_string("/palisade/variables").expect("palisade's values");
        let mut input = Input(content.leak());
        unsafe {
        // @bind@
        }
    }

    /// Called before main.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static BIND: extern "C" fn() = bind;
}
