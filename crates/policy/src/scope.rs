//! Scopes: the actions that a key or token allows its caller.

/// One kind of action that a caller can be allowed to perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Run programs in fresh sandboxes, and query the server's abilities.
    Run,
    /// Open persistent sandboxes and use their files.
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
}
