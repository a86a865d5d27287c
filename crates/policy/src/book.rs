//! The policies of a server, and which callers they bind.
//!
//! A binding names callers by a pattern of their label (`key:ci-*`, `local`, `*`) or of a claim about them
//! (`claim:groups=ops-*`). The policy that a caller's key names binds it first; otherwise the first binding that
//! matches counts. Without any of these, the user of the machine and the holder of the server's own token may do
//! everything, as before there were policies, and every other caller may do nothing.

use std::collections::HashMap;
use std::sync::Arc;

use crate::caller::Caller;
use crate::document::{Flaw, Syntax};
use crate::rules::{Rules, read_rules};

/// The policies that come with the program: name and text.
const SHIPPED: [(&str, &str); 5] = [
    ("open", include_str!("../policies/open.yaml")),
    ("ci", include_str!("../policies/ci.yaml")),
    ("team", include_str!("../policies/team.yaml")),
    ("locked-down", include_str!("../policies/locked-down.yaml")),
    ("ten-a-minute", include_str!("../policies/ten-a-minute.yaml")),
];

/// How a pattern begins that matches a claim.
const CLAIM: &str = "claim:";

/// A policy and its name.
#[derive(Debug)]
pub struct NamedRules {
    /// The name, which counters keep over changes of the file.
    pub name: String,
    /// The rules.
    pub rules: Rules,
}

/// Which callers a policy binds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The callers, by their label or by `claim:NAME=VALUE`; `*` stands for any characters.
    pub callers: String,
    /// The name of the policy.
    pub policy: String,
}

/// What the policies say about a caller.
#[derive(Debug, Clone)]
pub enum Bound {
    /// No policy: everything is allowed.
    Free,
    /// These rules.
    By(Arc<NamedRules>),
    /// No policy binds the caller, so nothing is allowed.
    Nothing,
}

/// All policies and bindings.
#[derive(Debug, Default)]
pub struct Book {
    policies: HashMap<String, Arc<NamedRules>>,
    bindings: Vec<Binding>,
}

/// Why a set of policies cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// A file is refused.
    #[error("{name}: {flaw}")]
    File {
        /// The policy.
        name: String,
        /// What is wrong with it.
        flaw: Flaw,
    },
    /// Two files have the same name.
    #[error("two files define the policy `{0}`")]
    Twice(String),
    /// A binding names a policy that does not exist.
    #[error("`{callers}` is bound to the policy `{policy}`, which does not exist; there are {known}")]
    Unknown {
        /// The callers.
        callers: String,
        /// The policy.
        policy: String,
        /// The policies that exist.
        known: String,
    },
}

impl Book {
    /// A book of these files (name, text, syntax) and bindings. A file replaces a shipped policy of its name.
    pub fn new(files: &[(String, String, Syntax)], bindings: Vec<Binding>) -> Result<Self, BookError> {
        let mut policies = HashMap::new();
        for (name, text, syntax) in files {
            let named = Arc::new(named(name, text, *syntax)?);
            if policies.insert(name.clone(), named).is_some() {
                return Err(BookError::Twice(name.clone()));
            }
        }
        for (name, text) in SHIPPED {
            if !policies.contains_key(name) {
                policies.insert(name.to_owned(), Arc::new(named(name, text, Syntax::Yaml)?));
            }
        }
        let book = Self { policies, bindings };
        match book.bindings.iter().find(|binding| !book.policies.contains_key(&binding.policy)) {
            None => Ok(book),
            Some(Binding { callers, policy }) => Err(BookError::Unknown {
                callers: callers.clone(),
                policy: policy.clone(),
                known: book.names().join(", "),
            }),
        }
    }

    /// The names of all policies, in order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.policies.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// The bindings, in order.
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }

    /// The policy of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<NamedRules>> {
        self.policies.get(name)
    }

    /// What binds a caller. A policy that does not exist, such as one that was removed after a key named it, allows
    /// nothing.
    pub fn of(&self, caller: &Caller) -> Bound {
        let named = match (&caller.policy, self.binding_of(caller)) {
            (Some(policy), _) => policy,
            (None, Some(place)) => self.bindings[place].policy.as_str(),
            (None, None) if caller.principal.is_owner() => return Bound::Free,
            (None, None) => return Bound::Nothing,
        };
        self.policies.get(named).map_or(Bound::Nothing, |rules| Bound::By(Arc::clone(rules)))
    }

    /// The place of the first binding that matches a caller.
    pub fn binding_of(&self, caller: &Caller) -> Option<usize> {
        self.bindings.iter().position(|binding| binding.is_for(caller))
    }
}

impl Binding {
    fn is_for(&self, caller: &Caller) -> bool {
        names(&self.callers, caller)
    }
}

/// Whether a pattern of callers names this one, by its label or by a claim.
pub(crate) fn names(callers: &str, caller: &Caller) -> bool {
    match callers.strip_prefix(CLAIM) {
        // A label never begins so, therefore a caller cannot be named like a claim.
        Some(claim) => claim
            .split_once('=')
            .is_some_and(|(name, value)| caller.claims.values(name).any(|held| matches(value, held))),
        None => matches(callers, &caller.label) && !caller.label.starts_with(CLAIM),
    }
}

fn named(name: &str, text: &str, syntax: Syntax) -> Result<NamedRules, BookError> {
    let rules = read_rules(text, syntax).map_err(|flaw| BookError::File { name: name.to_owned(), flaw })?;
    Ok(NamedRules { name: name.to_owned(), rules })
}

/// The text of a policy that comes with the program.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Whether a label matches a pattern in which `*` stands for any characters.
pub fn matches_label(pattern: &str, label: &str) -> bool {
    matches(pattern, label)
}

fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(place) => rest = &rest[place + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Principal;

    fn caller(label: &str) -> Caller {
        let principal = match label {
            "local" => Principal::local(),
            _ => Principal::new(label).unwrap(),
        };
        Caller { label: label.into(), ..Caller::owner(principal) }
    }

    fn bind(callers: &str, policy: &str) -> Binding {
        Binding { callers: callers.to_owned(), policy: policy.to_owned() }
    }

    fn name(bound: Bound) -> String {
        match bound {
            Bound::Free => "free".to_owned(),
            Bound::By(rules) => rules.name.clone(),
            Bound::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn shipped_policies_are_sound_and_their_examples_come_true() {
        let book = Book::new(&[], Vec::new()).unwrap();
        assert_eq!(book.names(), ["ci", "locked-down", "open", "team", "ten-a-minute"]);
        assert!(SHIPPED.iter().all(|(_, text)| text.contains("examples:")));
    }

    #[test]
    fn the_first_binding_that_matches_counts() {
        let bindings =
            vec![bind("key:ci-*", "ci"), bind("key:*", "team"), bind("oauth:*@example.com", "open")];
        let book = Book::new(&[], bindings).unwrap();
        for (label, expected) in [
            ("key:ci-main", "ci"),
            ("key:ci-", "ci"),
            ("key:build", "team"),
            ("oauth:ann@example.com", "open"),
            ("oauth:ann@example.com.evil", "nothing"),
            ("xkey:ci-main", "nothing"),
            ("local", "free"),
        ] {
            assert_eq!(name(book.of(&caller(label))), expected, "{label}");
        }
    }

    #[test]
    fn a_claim_binds_a_caller_and_a_label_cannot_pretend_to_be_one() {
        let book = Book::new(&[], vec![bind("claim:groups=ops-*", "team"), bind("oauth:*", "ci")]).unwrap();
        let with = |label: &str, claims: &[(&str, &str)]| Caller {
            claims: crate::Claims::new(claims.iter().copied()),
            ..caller(label)
        };
        assert_eq!(name(book.of(&with("oauth:a", &[("groups", "ops-eu"), ("groups", "dev")]))), "team");
        assert_eq!(name(book.of(&with("oauth:a", &[("groups", "dev")]))), "ci");
        assert_eq!(name(book.of(&with("oauth:a", &[("group", "ops-eu"), ("x", "groups=ops-eu")]))), "ci");
        assert_eq!(name(book.of(&with("claim:groups=ops-eu", &[]))), "nothing");
        let all = Book::new(&[], vec![bind("*", "open")]).unwrap();
        assert_eq!(name(all.of(&with("claim:x", &[]))), "nothing");
    }

    #[test]
    fn the_policy_of_a_key_binds_it_before_every_binding() {
        let book = Book::new(&[], vec![bind("*", "open")]).unwrap();
        let keyed = |policy: &str| Caller { policy: Some(policy.into()), ..caller("key:x") };
        assert_eq!(name(book.of(&keyed("ci"))), "ci");
        assert_eq!(name(book.of(&keyed("removed"))), "nothing", "not the next binding");
    }

    #[test]
    fn without_bindings_only_the_owner_is_free() {
        let book = Book::default();
        assert_eq!(name(book.of(&Caller::local())), "free");
        assert_eq!(name(book.of(&Caller::owner(Principal::token_holder()))), "free");
        assert_eq!(name(book.of(&Caller::owner(Principal::anonymous()))), "free");
        assert_eq!(name(book.of(&caller("key:x"))), "nothing");
        let bound = Book::new(&[], vec![bind("*", "locked-down")]).unwrap();
        assert_eq!(name(bound.of(&Caller::local())), "locked-down", "the owner can be bound too");
    }

    #[test]
    fn patterns_match_whole_labels() {
        for (pattern, text) in
            [("*", ""), ("a*c", "abc"), ("a*c", "ac"), ("a*b*c", "aXbYc"), ("a", "a"), ("**", "x")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("a*c", "acd"), ("a*a", "a"), ("", "x"), ("a*b*c", "acb")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_book_with_a_mistake_is_refused_whole() {
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned(), Syntax::Yaml);
        let sound = "version: '1'\ndefault: allow\n";
        let bad = Book::new(&[file("a", sound), file("b", "version: '1'\ndefault: maybe\n")], Vec::new());
        assert_eq!(bad.unwrap_err().to_string(), "b: line 2, column 10: `default` is \"allow\" or \"deny\"");
        let twice = Book::new(&[file("a", sound), file("a", sound)], Vec::new());
        assert_eq!(twice.unwrap_err(), BookError::Twice("a".to_owned()));
        let unknown = Book::new(&[], vec![bind("*", "nowhere")]).unwrap_err();
        assert!(unknown.to_string().contains("there are ci, locked-down"), "{unknown}");
        let own = Book::new(&[file("ci", "version: '1'\ndefault: deny\n")], vec![bind("*", "ci")]).unwrap();
        assert!(own.get("ci").unwrap().rules.description.is_none(), "a file replaces a shipped policy");
    }
}
