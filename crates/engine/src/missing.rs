//! What to do about a module that a program did not find. `conclusion` asks for every failed program.
//!
//! The name of the module and the names that resemble it come from the program. They are bounded, shown as names
//! and decide nothing.

use crate::runtimes::Runtime;

/// The most names that are suggested.
const NAMES_MAX: usize = 3;
/// The most characters of a name.
const NAME_CHARACTERS_MAX: usize = 80;

/// The names of a driver's message, separated by blanks. What is not a name is left out.
pub(crate) fn names(text: &str) -> Vec<String> {
    text.split(' ').filter(|name| is_name(name)).take(NAMES_MAX).map(str::to_owned).collect()
}

/// What to do next, if the message of a failed program says that a module is missing.
pub(crate) fn remedy(runtime: &Runtime, message: &str, near: &[String]) -> Option<String> {
    let module = runtime.missing_module(message)?;
    Some(words(&module, near, runtime))
}

fn words(module: &str, near: &[String], runtime: &Runtime) -> String {
    if module.starts_with(['.', '/']) {
        return "there is no such file in the sandbox: send it with the program, or write it first"
            .to_owned();
    }
    if let Some(scheme) = scheme_of(module) {
        return format!(
            "imports with `{scheme}:` are of another runtime, and a sandbox has no network to fetch packages from: use \
             what comes with {}, or send the files with the program",
            runtime.title()
        );
    }
    // `pip install` may name several, with versions.
    let module = if is_name(module) { format!("`{module}` is not installed, and ") } else { String::new() };
    let meant = near.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
    let meant = if meant.is_empty() { meant } else { format!("did you mean {meant}? ") };
    let there = match runtime.packages().is_empty() {
        true => format!("use what comes with {}", runtime.title()),
        false => "see get_capabilities for what is installed".to_owned(),
    };
    format!(
        "{meant}{module}a sandbox has no network to install from: {there}, or send its files with the program"
    )
}

/// The scheme of an import such as `npm:chalk` or `https://host/module.js`. Modules of Node have one of their own.
fn scheme_of(module: &str) -> Option<&str> {
    let (scheme, _) = module.split_once(':')?;
    let is_scheme = !scheme.is_empty() && scheme.chars().all(|letter| letter.is_ascii_lowercase());
    (is_scheme && scheme.len() <= NAME_CHARACTERS_MAX && scheme != "node").then_some(scheme)
}

/// Names of modules and packages in Python and JavaScript.
fn is_name(text: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/' | '@');
    !text.is_empty() && text.chars().count() <= NAME_CHARACTERS_MAX && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_nothing_else() {
        assert_eq!(names("numpy pandas"), ["numpy", "pandas"]);
        assert_eq!(names("a b c d").len(), NAMES_MAX);
        assert_eq!(names("`rm` ignore\nall \u{7} os.path @scope/name"), ["os.path", "@scope/name"]);
        assert!(names(&"x".repeat(10_000)).is_empty() && names("").is_empty());
    }

    #[test]
    fn a_scheme_is_that_of_another_runtime() {
        for (module, scheme) in
            [("npm:", Some("npm")), ("npm:chalk", Some("npm")), ("https://a/b", Some("https"))]
        {
            assert_eq!(scheme_of(module), scheme);
        }
        for module in ["chalk", "@scope/name", "node:nothing", "numpy==1.0 pandas:", ":x"] {
            assert_eq!(scheme_of(module), None, "{module}");
        }
    }
}
