//! Lookups across principals, for operators (`crate::admin`).

use super::entry::{SandboxEntry, SandboxRecord};
use super::{SandboxId, SandboxInfo, Sandboxes, info};
use crate::Principal;
use crate::result::RunError;

impl Sandboxes {
    /// The sandboxes of one principal or of all, with their records.
    pub(crate) async fn info_across(
        &self,
        principal: Option<&Principal>,
    ) -> Result<Vec<(SandboxRecord, SandboxInfo)>, RunError> {
        let records = self.store.list_sandboxes(principal).await.map_err(|error| error.to_run_error())?;
        let entries = self.entries();
        let known = |record: SandboxRecord| match entries.get(&record.id) {
            Some(entry) => (record, info(entry)),
            None => (record.clone(), info(&SandboxEntry::new(record))),
        };
        Ok(records.into_iter().map(known).collect())
    }

    /// Closes a sandbox of any principal.
    pub(crate) async fn close_any(&self, id: &SandboxId) -> Result<bool, RunError> {
        let found = self.store.find_sandbox(id).await.map_err(|error| error.to_run_error())?;
        match found {
            Some(record) => self.close_of(&record.principal, id).await,
            None => Ok(false),
        }
    }

    /// Closes a sandbox of that principal.
    pub(super) async fn close_of(&self, principal: &Principal, id: &SandboxId) -> Result<bool, RunError> {
        let Some(entry) = self.entry(principal, id).await? else { return Ok(false) };
        entry.set_closing(true);
        let slot = entry.last_turn().await;
        let ended = self.end(&entry, slot).await;
        // A sandbox that could not be closed can be used and closed later.
        entry.set_closing(ended.is_ok());
        ended.map(|()| true)
    }
}
