//! URLs at which a client can transfer a file without MCP.
//!
//! An HTTP transport puts [`FileUrls`] into a request's extensions. The file tools offer URLs when it is
//! present. Only the transport knows how a URL is made and verified.

use std::sync::Arc;

use engine::Principal;
use engine::workspace::FilePath;

/// The largest file that can be transferred in either direction.
pub const TRANSFER_BYTES_MAX: u64 = 100 << 20;

/// The action that a URL allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAction {
    /// Read the file.
    Download,
    /// Create or replace the file.
    Upload,
}

/// A URL and its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUrl {
    /// The whole address.
    pub url: String,
    /// Milliseconds since the epoch.
    pub expires_ms: u64,
}

/// Makes URLs for one caller.
pub trait FileUrlMaker: Send + Sync {
    /// A URL for one action on one file, or `None` if the transport cannot express it.
    fn make(
        &self,
        action: FileAction,
        principal: &Principal,
        sandbox_id: &str,
        path: &FilePath,
    ) -> Option<FileUrl>;
}

/// The extension that a transport puts into a request.
#[derive(Clone)]
pub struct FileUrls(Arc<dyn FileUrlMaker>);

impl FileUrls {
    /// Wraps a maker of URLs.
    pub fn new(maker: impl FileUrlMaker + 'static) -> Self {
        Self(Arc::new(maker))
    }

    /// A URL for one action on one file, or `None` if the transport cannot express it.
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
