//! Ends what programs left in the sandboxes of a caller whose credential has ended.

use std::sync::Arc;
use std::time::Duration;

use super::{SandboxEntry, Sandboxes};
use crate::Principal;

/// Time for runs that were cancelled to leave the sandboxes.
const SLEEP_PATIENCE: Duration = Duration::from_secs(10);
const SLEEP_STEP: Duration = Duration::from_millis(20);

impl Sandboxes {
    /// Ends every process in the sandboxes of a principal. Their files stay. The runs in them have been cancelled, so a
    /// sandbox that is still in use is free soon.
    pub async fn sleep_of(&self, principal: &Principal) {
        let all: Vec<Arc<SandboxEntry>> = self.entries().values().cloned().collect();
        let deadline = tokio::time::Instant::now() + SLEEP_PATIENCE;
        for entry in all.into_iter().filter(|entry| entry.record.principal == *principal) {
            let mut slot = loop {
                match entry.turn_now() {
                    Some(slot) => break slot,
                    None if tokio::time::Instant::now() >= deadline => {
                        tracing::warn!(sandbox_id = entry.record.id.as_str(), "sandbox_not_put_to_sleep");
                        return;
                    }
                    None => tokio::time::sleep(SLEEP_STEP).await,
                }
            };
            entry.tell_sleep("the credential of its owner has ended");
            drop(slot.sleep("the credential of the sandbox's owner ended, and the interpreter with it"));
            entry.note_awake(&slot);
            entry.let_go(&mut slot);
        }
    }
}
