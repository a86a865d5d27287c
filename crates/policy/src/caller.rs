//! A caller: who asks, and what the caller may do.
//!
//! The component that authenticates a request makes one and is the only one that does: `service/gate` for HTTP,
//! `service/file_urls` for a signed address, the transport for standard input and output, the command line for its user
//! (also for checks of the machine). Everything behind it takes the caller as it is. A caller never contains a
//! credential.

use std::fmt;
use std::sync::Arc;

use crate::principal::Principal;
use crate::scope::{Scope, Scopes};

/// The label of the holder of the server's own token.
const OWNER_LABEL: &str = "owner";
/// The most claims that a caller carries.
pub const CLAIMS_MAX: usize = 64;

/// What an identity provider says about a caller: names and values, in order. A name can have several values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims(Option<Arc<[Claim]>>);

/// A name and a value.
type Claim = (Box<str>, Box<str>);

impl Claims {
    /// These claims; none if there are more than [`CLAIMS_MAX`], because a part of them could mean another caller.
    pub fn new<N: Into<Box<str>>, V: Into<Box<str>>>(claims: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut all: Vec<_> = claims.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        all.sort_unstable();
        all.dedup();
        match all.len() {
            0 => Self(None),
            count if count > CLAIMS_MAX => Self(None),
            _ => Self(Some(all.into())),
        }
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|all| all.iter()).map(|(name, value)| (&**name, &**value))
    }

    /// The values of a claim.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Who asks for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The owner of what the caller makes; every lookup takes it.
    pub principal: Principal,
    /// What the caller may do.
    pub scopes: Scopes,
    /// A name for people, in logs and in the audit trail; bindings of policies match it.
    pub label: Arc<str>,
    /// What an identity provider says about the caller; none for keys.
    pub claims: Claims,
    /// The policy that the caller's key names. It binds the caller before every other binding.
    pub policy: Option<Arc<str>>,
    /// When the secret of the caller's key was last replaced, in milliseconds since 1970; zero for the first one, and for
    /// other credentials. What an earlier secret began ends when a key is rotated.
    pub secret_ms: u64,
}

impl Caller {
    /// A caller with every scope, labelled by its principal.
    pub fn owner(principal: Principal) -> Self {
        let label = principal.to_string().into();
        Self {
            principal,
            scopes: Scopes::all(),
            label,
            claims: Claims::default(),
            policy: None,
            secret_ms: 0,
        }
    }

    /// The holder of the server's own token.
    pub fn token_holder() -> Self {
        Self { label: OWNER_LABEL.into(), ..Self::owner(Principal::token_holder()) }
    }

    /// The user of this machine, over standard input and output or the command line.
    pub fn local() -> Self {
        Self::owner(Principal::local())
    }

    /// Whether the caller may do what needs this scope.
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contain(scope)
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.label.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_may_do_everything_and_another_caller_only_what_its_scopes_say() {
        assert!(Scope::ALL.into_iter().all(|scope| Caller::local().may(scope)));
        let runner = Caller { scopes: Scopes::of(&[Scope::Run]), ..Caller::local() };
        assert!(runner.may(Scope::Run) && !runner.may(Scope::Sandbox));
    }

    #[test]
    fn claims_are_sorted_and_a_list_that_is_too_long_counts_as_none() {
        let claims = Claims::new([("groups", "ops"), ("email", "a@example.com"), ("groups", "dev")]);
        assert_eq!(claims.values("groups").collect::<Vec<_>>(), ["dev", "ops"]);
        assert_eq!(claims, Claims::new(claims.iter()));
        let many = (0..=CLAIMS_MAX).map(|number| ("groups", number.to_string()));
        assert!(Claims::new(many).is_empty());
    }
}
