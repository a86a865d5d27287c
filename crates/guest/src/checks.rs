//! Properties that must hold for everything that a host can send, including a hostile one.
//!
//! The seeded test of `files` and the fuzz targets (`fuzz/`) call this module, so that both assert the same.
//! It is absent from the product.

use wire::PATH_BYTES_MAX;

use crate::files::checked;

/// An accepted path stays beneath the workspace.
pub fn file_path(text: &str) {
    if checked(text).is_err() {
        return;
    }
    assert!(!text.is_empty() && text.len() <= PATH_BYTES_MAX, "{text:?}");
    assert!(!text.starts_with('/') && !text.contains('\0'), "{text:?}");
    assert!(text.split('/').all(|part| part != ".."), "{text:?}");
}
