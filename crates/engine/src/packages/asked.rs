//! Requirements as callers write them: `pandas>=2`, `npm:lodash@4`, `go:github.com/google/uuid@v1.6.0`.
//!
//! The tools and the command line read them here, before policy judges the call. The book that prepares them reads them
//! again, with the grammar of their ecosystem.

use super::{Ecosystem, REQUIREMENT_BYTES_MAX, REQUIREMENTS_MAX, Wanted};
use crate::result::RunError;

/// The error of a requirement that no registry can serve.
pub const BAD_PACKAGE: &str = "bad_package";
/// Number of characters of a requirement that an error repeats.
const SHOWN_CHARS_MAX: usize = 80;

/// Reads requirements, sorted and without duplicates. A prefix (`npm:`, `pypi:`, `go:`) chooses the ecosystem; without one it is
/// that of the language.
pub fn wanted(texts: &[String], language: &str) -> Result<Vec<Wanted>, RunError> {
    if texts.len() > REQUIREMENTS_MAX {
        let message = format!("{} packages were asked for, and {REQUIREMENTS_MAX} is the most", texts.len());
        return Err(bad(message, "ask for those that the program imports; what they need comes with them"));
    }
    let mut wanted = texts.iter().map(|text| one(text, language)).collect::<Result<Vec<_>, _>>()?;
    wanted.sort();
    wanted.dedup();
    Ok(wanted)
}

fn one(text: &str, language: &str) -> Result<Wanted, RunError> {
    let text = text.trim();
    let prefixed = text.split_once(':').and_then(|(prefix, rest)| Some((Ecosystem::named(prefix)?, rest)));
    let (ecosystem, requirement) = match prefixed {
        Some(known) => known,
        None => match Ecosystem::of_language(language) {
            Some(ecosystem) => (ecosystem, text),
            None => return Err(no_ecosystem(text, language)),
        },
    };
    let requirement = requirement.trim();
    match broken_rule(requirement) {
        None => Ok(Wanted { ecosystem, requirement: requirement.to_owned() }),
        Some(rule) => {
            let message = format!("`{}` cannot be a package: {rule}", shown(text));
            let example = match ecosystem {
                Ecosystem::Pypi => "pandas>=2",
                Ecosystem::Npm => "lodash@4",
                Ecosystem::Go => "github.com/google/uuid@v1.6.0",
            };
            Err(bad(
                message,
                &format!("give the name of a package, with its versions if they matter: {example}"),
            ))
        }
    }
}

/// The rule that a requirement breaks in every ecosystem.
fn broken_rule(text: &str) -> Option<&'static str> {
    let is_path = text.starts_with(['.', '/', '~']) || text.ends_with(".whl") || text.ends_with(".tgz");
    match text {
        "" => Some("it is empty"),
        _ if text.len() > REQUIREMENT_BYTES_MAX => Some("it is too long"),
        _ if text.starts_with('-') => Some("options are not taken"),
        _ if text.contains("://") || text.contains("git+") => {
            Some("only registries serve packages, not addresses")
        }
        _ if is_path => Some("it is a path"),
        _ if text.chars().any(char::is_control) => Some("it has control characters"),
        _ => None,
    }
}

fn no_ecosystem(text: &str, language: &str) -> RunError {
    let message = format!("`{}` cannot be installed: {language} has no packages here", shown(text));
    bad(
        message,
        "use what comes with the language, or write the program in Python, JavaScript or Go; pypi:, npm: and go: choose their registries",
    )
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect::<String>().escape_debug().to_string()
}

fn bad(message: String, remedy: &str) -> RunError {
    RunError::new(BAD_PACKAGE, message).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str], language: &str) -> Result<Vec<Wanted>, RunError> {
        wanted(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(), language)
    }

    #[test]
    fn a_prefix_chooses_the_ecosystem_and_otherwise_the_language_does() {
        let found =
            read(&["pandas >= 2", "npm:@scope/x@1", " pandas >= 2", "requests[socks]"], "python").unwrap();
        let names: Vec<_> = found.iter().map(|one| (one.ecosystem, one.requirement.as_str())).collect();
        assert_eq!(
            names,
            [
                (Ecosystem::Pypi, "pandas >= 2"),
                (Ecosystem::Pypi, "requests[socks]"),
                (Ecosystem::Npm, "@scope/x@1")
            ]
        );
        assert_eq!(read(&["lodash"], "typescript").unwrap()[0].ecosystem, Ecosystem::Npm);
        assert_eq!(read(&["pypi:numpy"], "bash").unwrap()[0].ecosystem, Ecosystem::Pypi);
    }

    #[test]
    fn what_no_registry_serves_is_refused_by_name() {
        let long = "x".repeat(REQUIREMENT_BYTES_MAX + 1);
        for text in ["", "-r x.txt", "https://a/b.whl", "git+ssh://x", "./x", "/x", "x.whl", "a\nb", &long] {
            let error = read(&[text], "python").unwrap_err();
            assert_eq!(error.code, BAD_PACKAGE, "{text}");
            assert!(error.message.len() < 200 && error.remedy.is_some(), "{}", error.message);
        }
        assert!(read(&["json"], "ruby").unwrap_err().message.contains("ruby has no packages here"));
        assert_eq!(read(&vec!["a"; REQUIREMENTS_MAX + 1], "python").unwrap_err().code, BAD_PACKAGE);
    }
}
