//! Persistent sandboxes of all principals: listed and closed by operators. Their files are not shown.

use policy::Principal;
use serde::Serialize;

use super::{Operator, Page, PageAsk, newest_first};
use crate::result::RunError;
use crate::sandboxes::{SandboxId, SandboxInfo, Sandboxes};

/// A sandbox in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxView {
    /// Its handle.
    pub sandbox_id: String,
    /// Whose it is.
    pub principal: String,
    /// A name for people to read.
    pub name: String,
    /// The wall that it is behind.
    pub wall: String,
    /// When it was opened, in milliseconds since the epoch.
    pub created_ms: u64,
    /// When it was last used.
    pub used_ms: u64,
    /// When it is closed unless it is used before.
    pub expires_ms: u64,
    /// The number of runs so far.
    pub runs: u64,
    /// The interpreters that are awake in this server.
    pub awake: Vec<String>,
    /// The size of its files, as last measured.
    pub disk_bytes: u64,
}

impl SandboxView {
    fn new(principal: &Principal, wall: &str, info: SandboxInfo) -> Self {
        Self {
            sandbox_id: info.id.as_str().to_owned(),
            principal: principal.as_str().to_owned(),
            name: info.name,
            wall: wall.to_owned(),
            created_ms: info.created_ms,
            used_ms: info.used_ms,
            expires_ms: info.expires_ms,
            runs: info.runs,
            awake: info.awake,
            disk_bytes: info.disk_bytes,
        }
    }

    fn order(&self) -> String {
        newest_first(self.created_ms, &self.sandbox_id)
    }
}

impl Sandboxes {
    /// Sandboxes of all principals or of one, newest first.
    pub async fn list_across(
        &self,
        _operator: &Operator,
        ask: &PageAsk,
    ) -> Result<Page<SandboxView>, RunError> {
        let listed = self.info_across(ask.principal.as_ref()).await?;
        let views =
            listed.into_iter().map(|(record, info)| SandboxView::new(&record.principal, &record.wall, info));
        Ok(Page::of(views, ask, SandboxView::order))
    }

    /// Closes a sandbox of any principal and removes everything in it. Returns whether it existed.
    pub async fn close_across(&self, operator: &Operator, id: &SandboxId) -> Result<bool, RunError> {
        let closed = self.close_any(id).await?;
        if closed {
            tracing::info!(sandbox_id = id.as_str(), principal = %operator.caller(), "sandbox_closed_by_operator");
        }
        Ok(closed)
    }
}
