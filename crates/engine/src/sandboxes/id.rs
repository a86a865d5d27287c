//! The handle of a persistent sandbox. It is unguessable, and no other kind of handle parses as one.

crate::handle::handle! {
    /// `sbx_` and 32 hexadecimal digits.
    SandboxId, "sbx_"
}
