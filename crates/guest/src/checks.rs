//! What must hold for everything that a host can send, however hostile. Called by the seeded test of `files` and by the fuzz
//! targets (`fuzz/`), so that both assert the same; absent from the product.

use wire::PATH_BYTES_MAX;

use crate::files::checked;

/// A path that is accepted leads beneath the workspace.
pub fn file_path(text: &str) {
    if checked(text).is_err() {
        return;
    }
    assert!(!text.is_empty() && text.len() <= PATH_BYTES_MAX, "{text:?}");
    assert!(!text.starts_with('/') && !text.contains('\0'), "{text:?}");
    assert!(text.split('/').all(|part| part != ".."), "{text:?}");
}
