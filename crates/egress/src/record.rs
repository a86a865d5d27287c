//! Counts of what one run reached. Each connection has an entry that is told when it ends, also when its task is dropped.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::Caller;
use engine::access::{ALLOWED, AccessRecord, ReachEvent, ReachLog, Reached, Redactor, Stage};

use crate::budget::Way;
use crate::refusal::Refusal;

/// The most entries that are kept of a run. Connections to further hosts are recorded and not told in the result.
const ENTRIES_MAX: usize = 256;

/// What one run reached.
pub(crate) struct Record {
    caller: Caller,
    run_id: Option<String>,
    log: Arc<ReachLog>,
    /// Takes the secrets of the run out of the names of hosts, of which a program chooses labels.
    redactor: Option<Arc<Redactor>>,
    /// By host and verdict.
    entries: Mutex<BTreeMap<(String, String), Reached>>,
}

impl Record {
    pub(crate) fn new(
        caller: Caller,
        run_id: Option<String>,
        log: Arc<ReachLog>,
        redactor: Option<Arc<Redactor>>,
    ) -> Self {
        Self { caller, run_id, log, redactor, entries: Mutex::default() }
    }

    /// The place as it is recorded.
    fn shown(&self, place: &str) -> String {
        let mut place = place.to_owned();
        if let Some(redactor) = &self.redactor {
            redactor.redact_text(&mut place);
        }
        place
    }

    /// Notes a connection that was refused before it was counted.
    pub(crate) fn refused(&self, place: &str, refusal: Refusal) {
        let reached = Reached {
            host: self.shown(place),
            address: None,
            connections: 1,
            bytes_out: 0,
            bytes_in: 0,
            verdict: refusal.code().to_owned(),
        };
        self.end(&reached, None);
    }

    /// Records a decision. One that cannot be recorded must have no effect.
    fn tell(&self, stage: Stage, access: Option<&str>, reached: &Reached) -> Result<(), Refusal> {
        let (caller, run_id) = (&self.caller, self.run_id.as_deref());
        let noted = self.log.note(&ReachEvent { caller, run_id, access, stage, reached });
        noted.map_err(|_| Refusal::Unrecorded)
    }

    fn end(&self, reached: &Reached, access: Option<&str>) {
        // The end of a connection is told by the audit itself if it cannot be written.
        self.tell(Stage::Ended, access, reached).ok();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (reached.host.clone(), reached.verdict.clone());
        if entries.len() >= ENTRIES_MAX && !entries.contains_key(&key) {
            return;
        }
        let entry = entries.entry(key).or_insert_with(|| Reached {
            connections: 0,
            bytes_out: 0,
            bytes_in: 0,
            ..reached.clone()
        });
        entry.connections += 1;
        entry.bytes_out += reached.bytes_out;
        entry.bytes_in += reached.bytes_in;
        entry.address.clone_from(&reached.address);
    }
}

impl AccessRecord for Record {
    fn reached(&self) -> Vec<Reached> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.values().cloned().collect()
    }
}

/// One connection to an allowed host. Dropping it ends its entry.
pub(crate) struct Connection {
    record: Arc<Record>,
    access: String,
    place: String,
    address: Option<String>,
    out: AtomicU64,
    into: AtomicU64,
    verdict: Mutex<Option<Refusal>>,
}

impl Connection {
    /// A connection that is about to be dialled. The decision is told before its effect.
    pub(crate) fn decided(
        record: &Arc<Record>,
        access: &str,
        place: &str,
        address: Option<IpAddr>,
    ) -> Result<Self, Refusal> {
        let (address, place) = (address.map(|address| address.to_string()), record.shown(place));
        let decided = Reached {
            host: place.clone(),
            address: address.clone(),
            connections: 1,
            bytes_out: 0,
            bytes_in: 0,
            verdict: ALLOWED.to_owned(),
        };
        record.tell(Stage::Decided, Some(access), &decided)?;
        Ok(Self {
            record: Arc::clone(record),
            access: access.to_owned(),
            place,
            address,
            out: AtomicU64::new(0),
            into: AtomicU64::new(0),
            verdict: Mutex::default(),
        })
    }

    /// Counts bytes.
    pub(crate) fn count(&self, way: Way, bytes: usize) {
        let counter = match way {
            Way::Out => &self.out,
            Way::In => &self.into,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Ends the connection with a refusal.
    pub(crate) fn refuse(&self, refusal: Refusal) {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(refusal);
    }

    fn reached(&self) -> Reached {
        let verdict = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        Reached {
            host: self.place.clone(),
            address: self.address.clone(),
            connections: 1,
            bytes_out: self.out.load(Ordering::Relaxed),
            bytes_in: self.into.load(Ordering::Relaxed),
            verdict: verdict.map_or(ALLOWED, Refusal::code).to_owned(),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.record.end(&self.reached(), Some(&self.access));
    }
}

#[cfg(test)]
mod tests {
    use engine::Secret;

    use super::*;

    #[test]
    fn a_secret_in_the_name_of_a_host_is_not_recorded() {
        let folder = harness::TestFolder::new();
        let secret = Secret::new("0123456789ABCDEF".to_owned());
        let redactor = Redactor::new([("KEY", &secret)].into_iter()).unwrap().map(Arc::new);
        let log = Arc::new(ReachLog::new(folder.path()));
        let record = Arc::new(Record::new(Caller::local(), None, log, redactor));
        record.refused("0123456789abcdef.evil.example:443", Refusal::HostDenied);
        drop(Connection::decided(&record, "web", "0123456789abcdef.api.example:443", None).unwrap());
        let logged = ReachLog::read(folder.path(), 9).unwrap();
        let hosts: Vec<&str> = logged.iter().map(|line| line.reached.host.as_str()).collect();
        assert_eq!(hosts, ["[redacted:KEY].evil.example:443", "[redacted:KEY].api.example:443"]);
        let told: Vec<String> = record.reached().into_iter().map(|reached| reached.host).collect();
        assert!(told.iter().all(|host| host.starts_with("[redacted:KEY].")), "{told:?}");
    }
}
