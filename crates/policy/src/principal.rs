//! The owner of a handle: a name from the component that authenticated the caller, never a credential.
//!
//! Every lookup of a run takes a principal. The run of another principal is answered like a run that never
//! existed.

use std::fmt;
use std::sync::Arc;

/// The longest name.
pub const PRINCIPAL_BYTES_MAX: usize = 128;
const KEY_KIND: &str = "key:";
/// How many characters after the kind are shown.
const SHOWN_CHARACTERS_MAX: usize = 12;

/// The principal of a request: `local`, `uid:1000`, `token:<id>`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal(Arc<str>);

impl Principal {
    /// Creates a principal from a name of at most [`PRINCIPAL_BYTES_MAX`] visible ASCII characters.
    pub fn new(name: &str) -> Option<Self> {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic());
        let is_bounded = (1..=PRINCIPAL_BYTES_MAX).contains(&name.len());
        (is_plain && is_bounded).then(|| Self(name.into()))
    }

    /// The user of this machine, over standard input and output.
    pub fn local() -> Self {
        Self("local".into())
    }

    /// Any client of a server that requires no token.
    pub fn anonymous() -> Self {
        Self("anonymous".into())
    }

    /// A client that presented the server's token.
    pub fn token_holder() -> Self {
        Self("token".into())
    }

    /// The holder of the key with that id. Characters that no id has are left out.
    pub fn of_key(id: &str) -> Self {
        let plain: String =
            id.chars().filter(char::is_ascii_alphanumeric).take(PRINCIPAL_BYTES_MAX / 2).collect();
        Self(format!("{KEY_KIND}{plain}").into())
    }

    /// The id of the key, if this is the holder of one.
    pub fn key_id(&self) -> Option<&str> {
        self.0.strip_prefix(KEY_KIND)
    }

    /// Whether this is the server's owner: the user of the machine, the holder of its token, or anybody on a server
    /// that asks for none.
    pub fn is_owner(&self) -> bool {
        [Self::local(), Self::anonymous(), Self::token_holder()].contains(self)
    }

    /// The complete name, for the store and for comparisons. Do not show it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Shows the kind and the beginning of the rest. If a name ever contains a secret, it is not printed whole.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, rest) = self.0.split_at(self.0.find(':').map_or(0, |colon| colon + 1));
        let shown = &rest[..rest.len().min(SHOWN_CHARACTERS_MAX)];
        let more = if shown.len() < rest.len() { "…" } else { "" };
        write!(f, "{kind}{shown}{more}")
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_plain_names_are_principals() {
        for good in ["local", "uid:1000", "token:4f2a"] {
            assert_eq!(Principal::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a\n", "é", &"x".repeat(PRINCIPAL_BYTES_MAX + 1)] {
            assert!(Principal::new(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_long_name_is_not_shown_whole() {
        let principal = Principal::new("token:0123456789abcdef0123456789abcdef").unwrap();
        assert_eq!(principal.to_string(), "token:0123456789ab…");
        assert_eq!(format!("{principal:?}"), "Principal(token:0123456789ab…)");
        assert_eq!(Principal::local().to_string(), "local");
    }
}
