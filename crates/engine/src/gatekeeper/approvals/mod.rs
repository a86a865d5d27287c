//! Approvals: a human is asked before a call has any effect, and each answer lets one call pass.
//!
//! ```text
//! asked -> pending -> approved -> consumed      by one conditional update, so by exactly one call
//!                  -> denied                    the same call is refused until the denial expires
//!   pending, approved -> expired                after the time of the policy, with its key, or by a restored backup
//! ```
//! [`super::Gatekeeper::admit`] asks and consumes. A human decides at the command line ([`ApprovalStore`], in its own
//! process), over the admin API ([`Approvals::decide`]), or at the client that calls. The database has a sync per write,
//! and every server of the state directory sees a decision within a second. An approval belongs to one fingerprint:
//! principal, tool, arguments in their final form, policy and rule. Every event passes [`note`].

mod decide;
mod error;
mod passing;
mod preview;
mod record;
mod store;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use policy::Principal;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

use self::decide::REASON_CHARACTERS_MAX;
pub use self::decide::{Approver, Choice};
pub use self::error::ApprovalError;
pub(super) use self::passing::{Question, UsedApproval};
pub use self::preview::{Fold, Shown, shown_arguments, visible};
use self::record::NewApproval;
pub use self::record::{Approval, ApprovalDecision, ApprovalId, ApprovalState, Listed};
pub use self::store::ApprovalStore;
pub(crate) use self::store::LAYOUT;
use super::desk::{Desk, Kept};
use crate::clock::unix_ms;

/// How often a call that waits looks for decisions of other processes.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// Calls that wait for a decision in one server; a further one is answered at once.
const WAITING_MAX: usize = 256;

/// What happened to an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Requested,
    Decided,
    Consumed,
}

/// Every event of an approval passes here, in the process that caused it, after it is on the disk.
pub(super) fn note(event: Event, approval: &Approval) {
    let name = match event {
        Event::Requested => "approval_asked",
        Event::Decided => "approval_decided",
        Event::Consumed => "approval_consumed",
    };
    tracing::info!(
        approval_id = approval.id.as_str(),
        principal = %approval.label,
        tool = approval.tool,
        rule = approval.rule,
        state = approval.state.name(),
        by = approval.decision.as_ref().map(|decision| decision.by.as_str()),
        "{name}"
    );
}

/// The approvals of a state directory, as a server uses them.
pub struct Approvals {
    desk: Arc<Desk<ApprovalStore>>,
    /// Told when this server changes one.
    changes: watch::Sender<u64>,
    waiting: AtomicUsize,
    seal_key: OnceCell<[u8; 32]>,
}

impl std::fmt::Debug for Approvals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Approvals").finish_non_exhaustive()
    }
}

/// A place among the calls that wait.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Kept for ApprovalStore {
    fn database(&self) -> &super::database::Database {
        self.database()
    }
}

impl Approvals {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self {
            desk: Arc::new(Desk::new(ApprovalStore::new(state_dir))),
            changes: watch::Sender::new(0),
            waiting: AtomicUsize::new(0),
            seal_key: OnceCell::new(),
        }
    }

    /// The approvals, the newest first.
    pub async fn list(&self, which: Listed) -> Result<Vec<Approval>, ApprovalError> {
        self.desk.ask(move |store| store.list(which, unix_ms())).await
    }

    /// An approval and the arguments of its call.
    pub async fn get(&self, id: &ApprovalId) -> Result<(Approval, serde_json::Value), ApprovalError> {
        let id = id.clone();
        self.desk.ask(move |store| store.get(&id, unix_ms())).await
    }

    /// Decides about a pending approval. Denying also takes back an approval that no call has used yet.
    pub async fn decide(
        &self,
        id: &ApprovalId,
        choice: Choice,
        approver: Approver,
        reason: Option<String>,
    ) -> Result<Approval, ApprovalError> {
        let id = id.clone();
        let decide =
            move |store: &ApprovalStore| store.decide(&id, choice, (&approver, reason.as_deref()), unix_ms());
        let decided = self.desk.ask(decide).await;
        self.tell();
        decided
    }

    /// Ends what waits for a principal: its key was revoked, replaced or has expired.
    pub async fn void_of(&self, principal: &Principal) -> Result<usize, ApprovalError> {
        let principal = principal.clone();
        let voided = self.desk.ask(move |store| store.void_of(&principal, unix_ms())).await;
        self.tell();
        voided
    }

    /// The state of an approval when it is not pending any more, or `Pending` when the patience is over. It may be
    /// dropped at any time.
    pub async fn until_decided(
        &self,
        id: &ApprovalId,
        patience: Duration,
    ) -> Result<Approval, ApprovalError> {
        let deadline = Instant::now() + patience;
        let place = self.take_place();
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            let asked = id.clone();
            let found = self.desk.ask(move |store| store.find_with_version(&asked, unix_ms())).await;
            let (approval, version) = found?;
            if approval.state != ApprovalState::Pending || place.is_none() {
                return Ok(approval);
            }
            if !self.until_changed(&mut changes, version, deadline).await {
                return Ok(approval);
            }
        }
    }

    /// Waits until an approval may have changed. Returns false at the deadline.
    async fn until_changed(
        &self,
        changes: &mut watch::Receiver<u64>,
        version: i64,
        deadline: Instant,
    ) -> bool {
        let began = Instant::now();
        loop {
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            tokio::select! {
                changed = changes.changed() => return changed.is_ok(),
                () = tokio::time::sleep_until(deadline.min(now + LOOK_PAUSE)) => {}
            }
            let found = self.desk.ask(ApprovalStore::version).await;
            // Its time may be over, which no write tells.
            let is_long = began.elapsed() >= 4 * LOOK_PAUSE;
            if is_long || found.is_ok_and(|found| found != version) {
                return true;
            }
        }
    }

    fn take_place(&self) -> Option<Waiting<'_>> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Waiting(&self.waiting);
        (before < WAITING_MAX).then_some(place)
    }

    /// Tells calls that wait here that an approval changed.
    fn tell(&self) {
        self.changes.send_modify(|number| *number = number.wrapping_add(1));
    }

    /// The key that seals the state of questions. All servers of the state directory have the same one.
    pub async fn seal_key(&self) -> Result<[u8; 32], ApprovalError> {
        let read = || async { self.desk.ask(ApprovalStore::seal_key).await };
        self.seal_key.get_or_try_init(read).await.copied()
    }

    async fn find(&self, fingerprint: [u8; 32]) -> Result<Option<Approval>, ApprovalError> {
        self.desk.ask(move |store| store.find(&fingerprint, unix_ms())).await
    }

    async fn ask(&self, new: NewApproval) -> Result<Approval, ApprovalError> {
        let asked = self.desk.ask(move |store| store.ask(&new, unix_ms())).await;
        self.tell();
        asked
    }

    async fn consume(&self, id: &ApprovalId) -> Result<Option<Approval>, ApprovalError> {
        let id = id.clone();
        let consumed = self.desk.ask(move |store| store.consume(&id, unix_ms())).await;
        self.tell();
        consumed
    }
}
