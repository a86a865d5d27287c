//! Scopes: what a caller may do, as keys and tokens name it.

/// One kind of action that a caller can be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Run programs in fresh sandboxes, and ask what the server can do.
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
