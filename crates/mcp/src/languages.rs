//! Names of languages as callers write them.
//!
//! Models and people use other names than the published ones: `py`, `node`, `C++`. The tools and the command
//! line accept them and continue with the published name. An unknown name is refused with the nearest one.

use engine::{RunError, runtimes};

use crate::arguments::{Arguments, Refusal, refusal};
use crate::suggest::nearest;

const ARGUMENT: &str = "language";
/// Number of characters of an unknown name that the error repeats.
const SHOWN_CHARS_MAX: usize = 64;

/// Other names, in lower case, and the published ones.
const ALIASES: [(&str, &str); 31] = [
    ("py", "python"),
    ("py3", "python"),
    ("python3", "python"),
    ("ipython", "python"),
    ("js", "javascript"),
    ("mjs", "javascript"),
    ("node", "javascript"),
    ("nodejs", "javascript"),
    ("node.js", "javascript"),
    ("ecmascript", "javascript"),
    ("ts", "typescript"),
    ("sh", "bash"),
    ("shell", "bash"),
    ("c++", "cpp"),
    ("cc", "cpp"),
    ("cxx", "cpp"),
    ("g++", "cpp"),
    ("gcc", "c"),
    ("cs", "csharp"),
    ("c#", "csharp"),
    ("c-sharp", "csharp"),
    ("golang", "go"),
    ("rs", "rust"),
    ("rustlang", "rust"),
    ("rb", "ruby"),
    ("pl", "perl"),
    ("php8", "php"),
    ("rlang", "r"),
    ("rscript", "r"),
    ("gawk", "awk"),
    ("tclsh", "tcl"),
];

/// The published name of a language, or an error with the nearest one.
pub fn canonical(name: &str) -> Result<&'static str, RunError> {
    let wanted = name.trim().to_lowercase();
    let published = runtimes::languages().find(|known| *known == wanted);
    let by_alias = || ALIASES.iter().find(|(alias, _)| *alias == wanted).map(|(_, language)| *language);
    published.or_else(by_alias).ok_or_else(|| unknown(name))
}

/// Takes the language of a tool's arguments.
pub(crate) fn take(arguments: &mut Arguments) -> Result<String, Refusal> {
    let Some(name) = arguments.text(ARGUMENT)? else {
        return Err(refusal(format!("`{ARGUMENT}` is missing"), format!("give one of {}", all())));
    };
    Ok(canonical(&name)?.to_owned())
}

fn unknown(name: &str) -> RunError {
    let aliases = ALIASES.iter().map(|(alias, _)| *alias);
    let near = nearest(name.trim(), runtimes::languages().chain(aliases));
    let meant = near.and_then(|near| canonical(near).ok());
    let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
    let message = format!("`{}` is not a language Palisade knows", shown.escape_debug());
    let asked = meant.map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
    RunError::new("language_unknown", message).remedy(format!("{asked}use one of {}", all()))
}

fn all() -> String {
    let mut names: Vec<&str> = runtimes::languages().collect();
    names.sort_unstable();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_are_understood() {
        for (name, language) in [
            ("python", "python"),
            ("Python", "python"),
            (" PY ", "python"),
            ("python3", "python"),
            ("js", "javascript"),
            ("Node", "javascript"),
            ("ts", "typescript"),
            ("sh", "bash"),
            ("C++", "cpp"),
            ("cs", "csharp"),
            ("golang", "go"),
            ("R", "r"),
        ] {
            assert_eq!(canonical(name), Ok(language), "{name}");
        }
    }

    #[test]
    fn every_other_name_leads_to_a_language_and_hides_none() {
        for (alias, language) in ALIASES {
            assert!(runtimes::languages().any(|known| known == language), "{language}");
            assert!(runtimes::languages().all(|known| known != alias), "{alias}");
            assert_eq!(alias, alias.to_lowercase());
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        for (name, meant) in [("pyton", "python"), ("javscript", "javascript"), ("typscript", "typescript")] {
            let error = canonical(name).unwrap_err();
            assert_eq!(error.code, "language_unknown");
            let remedy = error.remedy.unwrap();
            assert!(remedy.starts_with(&format!("did you mean {meant}? use one of awk, ")), "{remedy}");
        }
        for name in ["cobol", "", "../python", "python\n\0"] {
            let error = canonical(name).unwrap_err();
            assert!(error.remedy.unwrap().contains("python"), "{name}");
        }
        assert!(canonical(&"x".repeat(1 << 20)).unwrap_err().message.len() < 200);
    }
}
