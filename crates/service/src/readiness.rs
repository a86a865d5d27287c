//! `/readyz`: whether runs work, checked by a canary run of every language through the whole path.
//!
//! The findings are kept for a while. Later requests renew them in the background, so frequent requests cost
//! nothing. The server is not ready if its disk is full, its store cannot write, the wall cannot be built, or
//! an offered language does not run. Findings from before the wall was lost or regained are discarded. A
//! caller with the token sees the reasons; other callers see only the names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, watch};

use mcp::Server;

/// Findings are fresh for this time.
const FRESH: Duration = Duration::from_secs(60);
/// Older findings are not used while new ones are made.
const STALE: Duration = Duration::from_secs(300);
/// How long a request waits for the first findings.
const PATIENCE: Duration = Duration::from_secs(20);
/// Minimum free space on the state directory's disk, for a run's inputs and the store.
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// The findings of one check.
#[derive(Debug, Clone)]
pub(crate) struct Findings {
    begun: Instant,
    made: Instant,
    /// The parts that do not work, and the reasons.
    broken: Vec<(String, String)>,
    working: Vec<String>,
}

/// Checks the server, and keeps and renews the findings.
pub(crate) struct Readiness {
    state_dir: std::path::PathBuf,
    known: watch::Sender<Option<Findings>>,
    /// Held during a check, so that only one runs at a time.
    looking: Arc<Mutex<()>>,
}

impl Readiness {
    pub(crate) fn new(state_dir: std::path::PathBuf) -> Arc<Self> {
        Arc::new(Self { state_dir, known: watch::Sender::new(None), looking: Arc::default() })
    }

    /// The current findings; `None` if a check did not complete in time.
    pub(crate) async fn findings(self: &Arc<Self>, server: &Arc<Server>) -> Option<Findings> {
        // Findings from a time when no sandbox could be built are obsolete.
        let regained_at = server.runs().engine().wall_regained_at();
        let is_believed = |known: &Findings| regained_at.is_none_or(|at| known.begun >= at);
        let known = self.known.borrow().clone().filter(is_believed);
        let age = known.as_ref().map_or(Duration::MAX, |known| known.made.elapsed());
        if age < FRESH {
            return known;
        }
        let mut news = self.known.subscribe();
        self.look_again(server);
        if age < STALE {
            return known;
        }
        let found = async {
            loop {
                news.changed().await.ok()?;
                let found = news.borrow_and_update().clone();
                if found.as_ref().is_some_and(is_believed) {
                    return found;
                }
                self.look_again(server);
            }
        };
        tokio::time::timeout(PATIENCE, found).await.ok()?
    }

    fn look_again(self: &Arc<Self>, server: &Arc<Server>) {
        let Ok(turn) = Arc::clone(&self.looking).try_lock_owned() else { return };
        let (own, server) = (Arc::clone(self), Arc::clone(server));
        tokio::spawn(async move {
            let findings = own.look(&server).await;
            // A receiver of the findings may start the next check immediately.
            drop(turn);
            own.known.send_replace(Some(findings));
        });
    }

    async fn look(&self, server: &Server) -> Findings {
        let begun = Instant::now();
        let mut broken = Vec::new();
        let mut working = Vec::new();
        let mut note = |name: String, found: Result<(), String>| match found {
            Ok(()) => working.push(name),
            Err(reason) => broken.push((name, reason)),
        };
        note("disk".to_owned(), self.look_at_disk());
        let store = server.runs().store().flush().await.map_err(|error| error.to_string());
        note("store".to_owned(), store);
        for (name, found) in server.canaries().await {
            note(name, found);
        }
        Findings { begun, made: Instant::now(), broken, working }
    }

    fn look_at_disk(&self) -> Result<(), String> {
        let found = rustix::fs::statvfs(&self.state_dir).map_err(|error| error.to_string())?;
        if found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return Err("the disk of the state directory is mounted read-only".to_owned());
        }
        let room = found.f_bavail.saturating_mul(found.f_frsize);
        if room < ROOM_BYTES_MIN || (found.f_files > 0 && found.f_favail == 0) {
            return Err(format!("the disk of the state directory is full: {} MB are left", room >> 20));
        }
        Ok(())
    }
}

impl Findings {
    pub(crate) fn is_ready(&self) -> bool {
        self.broken.is_empty()
    }

    /// The findings as JSON, with the reasons if the caller may see them.
    pub(crate) fn page(&self, with_reasons: bool) -> Value {
        let broken: Map<String, Value> = self
            .broken
            .iter()
            .map(|(name, reason)| (name.clone(), if with_reasons { json!(reason) } else { json!(true) }))
            .collect();
        json!({
            "ready": self.is_ready(),
            "broken": broken,
            "working": self.working,
            "age_ms": u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }
}
