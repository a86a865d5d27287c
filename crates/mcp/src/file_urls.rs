//! URLs at which a client can transfer a file without MCP.
//!
//! A transport that is reached by HTTP puts [`FileUrls`] into a request's extensions; the tools for files offer URLs
//! where it did. Only the transport knows how a URL is made and honoured.

use std::sync::Arc;

use engine::Principal;
use engine::workspace::FilePath;

/// The largest file that goes either way.
pub const TRANSFER_BYTES_MAX: u64 = 100 << 20;

/// What a URL allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAction {
    /// Read the file.
    Download,
    /// Create or replace the file.
    Upload,
}

/// A URL that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUrl {
    /// The whole address.
    pub url: String,
    /// Since the epoch.
    pub expires_ms: u64,
}

/// Makes URLs for one caller.
pub trait FileUrlMaker: Send + Sync {
    /// A URL for one action on one file, unless it cannot be expressed.
    fn make(
        &self,
        action: FileAction,
        principal: &Principal,
        sandbox_id: &str,
        path: &FilePath,
    ) -> Option<FileUrl>;
}

/// What a transport puts into the extensions of a request.
#[derive(Clone)]
pub struct FileUrls(Arc<dyn FileUrlMaker>);

impl FileUrls {
    /// URLs made by this maker.
    pub fn new(maker: impl FileUrlMaker + 'static) -> Self {
        Self(Arc::new(maker))
    }

    /// A URL for one action on one file, unless it cannot be expressed.
    pub fn make(
        &self,
        action: FileAction,
        principal: &Principal,
        sandbox_id: &str,
        path: &FilePath,
    ) -> Option<FileUrl> {
        self.0.make(action, principal, sandbox_id, path)
    }
}
