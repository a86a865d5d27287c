//! Names for programs: an identifier in Python, JavaScript and TypeScript.

/// Words that are no identifiers in one of the languages, or that the API inside reserves.
const RESERVED: [&str; 78] = [
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "def",
    "default",
    "del",
    "delete",
    "do",
    "elif",
    "else",
    "enum",
    "except",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "from",
    "function",
    "global",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "is",
    "lambda",
    "let",
    "new",
    "nonlocal",
    "not",
    "null",
    "or",
    "package",
    "pass",
    "private",
    "protected",
    "public",
    "raise",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "yield",
    "arguments",
    "eval",
    "constructor",
    "prototype",
    "__proto__",
    "then",
    "later",
    "raw",
    "call",
    "apply",
    "bind",
    "toString",
];
const BASE_CHARACTERS_MAX: usize = 120;

/// The alias of a new tool. `is_taken` knows the aliases that were ever given, and the names of all other tools.
pub(super) fn choose(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let base = identifier(name);
    let mut alias = base.clone();
    let mut count = 1;
    while is_taken(&alias) {
        count += 1;
        alias = format!("{base}_{count}");
    }
    alias
}

fn identifier(name: &str) -> String {
    let plain = |one: char| if one.is_ascii_alphanumeric() || one == '_' { one } else { '_' };
    let mut text: String = name.chars().take(BASE_CHARACTERS_MAX).map(plain).collect();
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        text.insert(0, '_');
    }
    if RESERVED.contains(&text.as_str()) {
        text.push('_');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_identifiers_and_differ() {
        let none = |_: &str| false;
        assert_eq!(choose("list_issues", none), "list_issues");
        assert_eq!(choose("list-issues", none), "list_issues");
        assert_eq!(choose("2fa.check", none), "_2fa_check");
        assert_eq!(choose("import", none), "import_");
        assert_eq!(choose("größe", none), "gr__e");
        assert_eq!(choose("a-b", |taken| taken == "a_b" || taken == "a_b_2"), "a_b_3");
    }
}
