//! A call that the gatekeeper admitted, and how it is settled.

use std::sync::Arc;

use sandbox::Outcome;

use super::approvals::UsedApproval;
use super::desk::Desk;
use super::ledger::{Ledger, NotReserved, Reserved};
use super::prepaid::Deposit;
use crate::audit::{DecisionRef, OpenCall};

/// A call that may happen. Dropping it leaves its reservations counted.
#[must_use]
#[derive(Debug, Default)]
pub struct Admitted {
    pub(super) reserved: Option<(Arc<Desk<Ledger>>, Reserved)>,
    /// The place of the run that the call starts; free again if no run took it.
    pub(super) deposit: Option<Deposit>,
    /// The approval that the call has used.
    pub(super) approval: Option<UsedApproval>,
    /// The approval that let the call pass, and the rule that asked for it.
    pub(super) passed: Option<(String, String)>,
    /// Its entry in the audit.
    pub(super) audited: Option<OpenCall>,
    /// The lists of walls that its programs must keep to.
    pub(super) wall_lists: Vec<Vec<String>>,
}

impl Admitted {
    /// The decision in the audit, for the receipt of the run that the call starts.
    pub fn decision(&self) -> Option<Arc<DecisionRef>> {
        self.audited.as_ref().map(|audited| Arc::clone(audited.decision()))
    }

    /// The lists of walls that the programs of the call must keep to.
    pub fn wall_lists(&self) -> Vec<Vec<String>> {
        self.wall_lists.clone()
    }

    /// Tells how the call ended. What was refused, or was not possible, is not counted.
    pub async fn settle(mut self, outcome: Option<Outcome>) {
        if let Some(audited) = self.audited.take() {
            audited.end(outcome);
        }
        if let Some(used) = self.approval {
            used.settle(outcome).await;
        }
        let Some((desk, reserved)) = self.reserved else { return };
        // The place of a run that was not started is free before the answer.
        drop(self.deposit);
        if !matches!(outcome, Some(Outcome::Refused | Outcome::Unavailable)) {
            return;
        }
        let returned = desk.ask(move |ledger| ledger.give_back(&reserved)).await;
        if let Err(NotReserved::Failed(error)) = returned {
            // The counter stays too high, which allows nothing.
            tracing::warn!(reason = %error, "reservation_not_returned");
        }
    }
}
