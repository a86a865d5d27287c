//! Leases that admitted calls hold for the runs that they will start.
//!
//! A call that starts a run is counted once, in one transaction with the limits of its policy. The run is started later
//! and elsewhere, and takes a lease of its caller from here. Leases of one principal are alike, so it does not matter
//! which of its calls made the one that a run takes: each call puts one in, and takes back what no run took.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use policy::Principal;

use super::leases::RunLease;

/// The leases of all principals.
#[derive(Debug, Default)]
pub(super) struct Prepaid(Mutex<HashMap<Principal, Vec<Arc<Ticket>>>>);

/// One lease, until a run takes it.
#[derive(Debug)]
struct Ticket(Mutex<Option<RunLease>>);

impl Ticket {
    fn take(&self) -> Option<RunLease> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A call's own lease. Dropping it ends the lease, if no run took it.
#[derive(Debug)]
pub(super) struct Deposit {
    prepaid: Arc<Prepaid>,
    principal: Principal,
    ticket: Arc<Ticket>,
}

impl Prepaid {
    /// Keeps a lease for the next run of the principal.
    pub(super) fn put(self: &Arc<Self>, principal: &Principal, lease: RunLease) -> Deposit {
        let ticket = Arc::new(Ticket(Mutex::new(Some(lease))));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(principal.clone()).or_default().push(Arc::clone(&ticket));
        Deposit { prepaid: Arc::clone(self), principal: principal.clone(), ticket }
    }

    /// The lease for a run of the principal, if a call made one.
    pub(super) fn take(&self, principal: &Principal) -> Option<RunLease> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tickets = all.get_mut(principal)?;
        let taken = std::iter::from_fn(|| tickets.pop()).find_map(|ticket| ticket.take());
        if tickets.is_empty() {
            all.remove(principal);
        }
        taken
    }
}

impl Drop for Deposit {
    fn drop(&mut self) {
        let mut all = self.prepaid.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tickets) = all.get_mut(&self.principal) {
            tickets.retain(|ticket| !Arc::ptr_eq(ticket, &self.ticket));
            if tickets.is_empty() {
                all.remove(&self.principal);
            }
        }
        drop(all);
        if let Some(lease) = self.ticket.take() {
            lease.end(0, true);
        }
    }
}

#[cfg(test)]
#[path = "prepaid_tests.rs"]
mod tests;
