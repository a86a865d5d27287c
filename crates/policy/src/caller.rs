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

/// Who asks for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The owner of what the caller makes; every lookup takes it.
    pub principal: Principal,
    /// What the caller may do.
    pub scopes: Scopes,
    /// A name for people, in logs and in the audit trail.
    pub label: Arc<str>,
}

impl Caller {
    /// A caller with every scope, labelled by its principal.
    pub fn owner(principal: Principal) -> Self {
        let label = principal.to_string().into();
        Self { principal, scopes: Scopes::all(), label }
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
}
