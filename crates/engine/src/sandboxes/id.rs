//! The handle of a sandbox that lasts: unguessable, and nothing else can be parsed as one.

crate::handle::handle! {
    /// `sbx_` and 32 hexadecimal digits.
    SandboxId, "sbx_"
}
