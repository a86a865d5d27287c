//! Allow and deny lists: which packages may be installed, by name.
//!
//! A rule is a name with `*` for any characters, for all ecosystems or one (`npm:left-*`). Names of Python packages are
//! compared in their normal form (PEP 503), so that no spelling passes a rule. A rule for a path of Go also covers what is
//! below it: other major versions (`/v2`), nested modules and packages.

use engine::packages::Ecosystem;

use crate::requirement::normal_name;

/// The longest pattern.
const PATTERN_BYTES_MAX: usize = 214;

/// A pattern for names of packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    ecosystem: Option<Ecosystem>,
    text: String,
}

impl Pattern {
    /// Parses `NAME`, `pypi:NAME`, `npm:NAME` or `go:PATH`; `*` stands for any characters.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (ecosystem, name) = match text.split_once(':') {
            Some((ecosystem, name)) => {
                let known = Ecosystem::named(ecosystem);
                (Some(known.ok_or_else(|| format!("`{ecosystem}` is none of {}", Ecosystem::names()))?), name)
            }
            None => (None, text),
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@/*~".contains(&byte);
        if name.is_empty() || name.len() > PATTERN_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err("a pattern is a name of letters, digits, `-`, `_`, `.`, `@`, `/` and `*`".to_owned());
        }
        Ok(Self { ecosystem, text: name.to_owned() })
    }

    fn covers(&self, ecosystem: Ecosystem, normal: &str) -> bool {
        if self.ecosystem.is_some_and(|own| own != ecosystem) {
            return false;
        }
        let own = normal_name(ecosystem, &self.text);
        let covers = |name: &str| matches(own.as_bytes(), name.as_bytes());
        let above = || normal.match_indices('/').any(|(end, _)| covers(&normal[..end]));
        covers(normal) || ecosystem == Ecosystem::Go && above()
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ecosystem {
            Some(ecosystem) => write!(f, "{}:{}", ecosystem.name(), self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Whether a pattern with `*` covers a text. Linear: on a mismatch only the last `*` takes one character more.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == text[from] => (at, from) = (at + 1, from + 1),
            _ => match star {
                Some((before, taken)) => {
                    star = Some((before, taken + 1));
                    (at, from) = (before + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Which packages may be installed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Only these, if there are some. Dependencies count too.
    pub allow: Vec<Pattern>,
    /// Never these.
    pub deny: Vec<Pattern>,
}

impl Rules {
    /// Why a package may not be installed.
    pub fn refusal(&self, ecosystem: Ecosystem, name: &str) -> Option<String> {
        let normal = normal_name(ecosystem, name);
        if let Some(rule) = self.deny.iter().find(|rule| rule.covers(ecosystem, &normal)) {
            return Some(format!("the deny list has `{rule}`"));
        }
        let is_restricted = self.allow.iter().any(|rule| rule.ecosystem.is_none_or(|own| own == ecosystem));
        let is_allowed = self.allow.iter().any(|rule| rule.covers(ecosystem, &normal));
        (is_restricted && !is_allowed).then(|| "the allow list does not have it".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> Rules {
        let list = |texts: &[&str]| texts.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        Rules { allow: list(allow), deny: list(deny) }
    }

    #[test]
    fn no_spelling_of_a_python_name_passes_a_deny_rule() {
        let rules = rules(&[], &["evil-name", "npm:left-*"]);
        for name in ["evil-name", "Evil_Name", "EVIL.name", "evil--_name"] {
            assert!(rules.refusal(Ecosystem::Pypi, name).is_some(), "{name}");
        }
        assert!(rules.refusal(Ecosystem::Npm, "left-pad").is_some());
        assert!(rules.refusal(Ecosystem::Pypi, "left-pad").is_none());
    }

    #[test]
    fn a_rule_for_a_path_of_go_covers_what_is_below_it_in_every_spelling() {
        let denied = rules(&[], &["go:github.com/evil/module"]);
        for path in ["github.com/evil/module", "github.com/Evil/Module", "github.com/evil/module/v2/part"] {
            assert!(denied.refusal(Ecosystem::Go, path).is_some(), "{path}");
        }
        assert!(denied.refusal(Ecosystem::Go, "github.com/evil/modules").is_none());
        let allowed = rules(&["go:golang.org/x/*"], &[]);
        assert!(allowed.refusal(Ecosystem::Go, "golang.org/x/text/cases").is_none());
        assert!(allowed.refusal(Ecosystem::Go, "golang.org/x").is_some());
        assert!(allowed.refusal(Ecosystem::Npm, "lodash").is_none());
    }

    #[test]
    fn an_allow_list_restricts_its_own_ecosystem_only() {
        let rules = rules(&["pypi:num*", "pypi:six"], &["numba"]);
        assert!(rules.refusal(Ecosystem::Pypi, "numpy").is_none());
        assert!(rules.refusal(Ecosystem::Pypi, "numba").is_some(), "deny goes before allow");
        assert!(rules.refusal(Ecosystem::Pypi, "pandas").is_some());
        assert!(rules.refusal(Ecosystem::Npm, "lodash").is_none());
    }

    #[test]
    fn many_stars_cost_no_exponential_time() {
        let pattern = "*a".repeat(100);
        assert!(!matches(pattern.as_bytes(), "b".repeat(20_000).as_bytes()));
        assert!(matches(b"a*b*c", b"axxbyyc") && !matches(b"a*b*c", b"axxbyy") && matches(b"*", b""));
    }
}
