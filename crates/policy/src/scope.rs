//! Scopes: what a caller may do, as keys and tokens name it.

use std::fmt;
use std::str::FromStr;

/// Prefix of a scope's name in an OAuth token: `palisade:run`.
const OAUTH_PREFIX: &str = "palisade:";

/// One kind of action that a caller can be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Run programs in fresh sandboxes, and ask what the server can do.
    Run,
    /// Open persistent sandboxes and use their files. Includes [`Scope::Run`].
    Sandbox,
    /// Reach hosts outside of the sandbox.
    Access,
    /// Install packages.
    Packages,
    /// Approve or deny the calls of other callers.
    Approve,
    /// Read the audit trail, the metrics and the state of the server.
    Audit,
    /// Administer the server. Includes every scope.
    Admin,
}

/// A name that is no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scope; the scopes are run, sandbox, access, packages, approve, audit and admin")]
pub struct UnknownScope(pub String);

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 7] =
        [Self::Run, Self::Sandbox, Self::Access, Self::Packages, Self::Approve, Self::Audit, Self::Admin];

    /// The name in keys: `run`.
    pub fn name(self) -> &'static str {
        self.oauth_name().strip_prefix(OAUTH_PREFIX).unwrap_or_default()
    }

    /// The name in OAuth tokens: `palisade:run`.
    pub fn oauth_name(self) -> &'static str {
        match self {
            Self::Run => "palisade:run",
            Self::Sandbox => "palisade:sandbox",
            Self::Access => "palisade:access",
            Self::Packages => "palisade:packages",
            Self::Approve => "palisade:approve",
            Self::Audit => "palisade:audit",
            Self::Admin => "palisade:admin",
        }
    }

    /// The scope of that name in an OAuth token. A name without the prefix belongs to another resource.
    pub fn from_oauth_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.oauth_name() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// This scope and those that it includes.
    fn bits(self) -> u8 {
        match self {
            Self::Sandbox => self.bit() | Self::Run.bit(),
            Self::Admin => Self::ALL.into_iter().fold(0, |bits, scope| bits | scope.bit()),
            _ => self.bit(),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads both forms, `run` and `palisade:run`.
impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        let name = text.strip_prefix(OAUTH_PREFIX).unwrap_or(text);
        Self::ALL
            .into_iter()
            .find(|scope| scope.name() == name)
            .ok_or_else(|| UnknownScope(text.chars().take(64).collect()))
    }
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Scopes(u8);

impl Scopes {
    /// Every scope.
    pub fn all() -> Self {
        Self::of(&Scope::ALL)
    }

    /// These scopes and those that they include.
    pub fn of(scopes: &[Scope]) -> Self {
        scopes.iter().copied().collect()
    }

    /// Whether a scope is among them.
    pub fn contain(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// The scopes, in their order. Included ones are among them.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contain(*scope))
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bits()))
    }
}

/// Names apart by spaces, as OAuth writes them (RFC 6749, section 3.3), without the prefix.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Scope::name).collect();
        f.write_str(&names.join(" "))
    }
}

/// Reads names of both forms apart by spaces.
impl FromStr for Scopes {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        text.split_ascii_whitespace().map(str::parse::<Scope>).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_scope_includes_runs() {
        let sandbox = Scopes::of(&[Scope::Sandbox]);
        assert!(sandbox.contain(Scope::Run) && sandbox.contain(Scope::Sandbox));
        assert!(!Scopes::of(&[Scope::Run]).contain(Scope::Sandbox));
        assert!(!Scopes::default().contain(Scope::Run) && Scopes::default().is_empty());
    }

    #[test]
    fn only_the_admin_scope_includes_every_scope() {
        assert_eq!(Scopes::of(&[Scope::Admin]), Scopes::all());
        assert_eq!(Scopes::all().iter().count(), 7);
        for scope in Scope::ALL.into_iter().filter(|scope| *scope != Scope::Admin) {
            assert!(!Scopes::of(&[scope]).contain(Scope::Admin), "{scope}");
        }
    }

    #[test]
    fn names_are_read_in_both_forms_and_written_back() {
        for scope in Scope::ALL {
            assert_eq!(scope.name().parse(), Ok(scope));
            assert_eq!(scope.oauth_name().parse(), Ok(scope));
            assert_eq!(Scope::from_oauth_name(scope.oauth_name()), Some(scope));
            assert_eq!(Scope::from_oauth_name(scope.name()), None);
        }
        let scopes: Scopes = "approve  palisade:sandbox".parse().unwrap();
        assert_eq!(scopes.to_string(), "run sandbox approve");
        assert_eq!(scopes.to_string().parse(), Ok(scopes));
        for wrong in ["Run", "runs", "palisade:", "palisade:palisade:run", "other:run", "run,sandbox", "rün"]
        {
            assert_eq!(wrong.parse::<Scopes>(), Err(UnknownScope(wrong.to_owned())), "{wrong}");
        }
    }
}
