//! Scopes: what a caller may do, as keys and tokens name it.

/// One kind of action that a caller can be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Run programs in fresh sandboxes, and ask what the server can do.
    Run,
    /// Open persistent sandboxes and use their files. Includes [`Scope::Run`].
    Sandbox,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 2] = [Self::Run, Self::Sandbox];

    /// The name in keys and tokens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Sandbox => "sandbox",
        }
    }

    fn bit(self) -> u8 {
        match self {
            Self::Run => 1,
            Self::Sandbox => 2,
        }
    }

    /// This scope and those that it includes.
    fn bits(self) -> u8 {
        match self {
            Self::Run => self.bit(),
            Self::Sandbox => self.bit() | Self::Run.bit(),
        }
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
        Self(scopes.iter().fold(0, |bits, scope| bits | scope.bits()))
    }

    /// Whether a scope is among them.
    pub fn contain(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
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
        assert!(!Scopes::default().contain(Scope::Run));
    }
}
