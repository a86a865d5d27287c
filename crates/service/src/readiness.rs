//! `/readyz`: whether runs work, found out by running a canary of every language through the whole path.
//!
//! The findings are kept for a while and made anew in the background when somebody asks after that, so that
//! asking often costs nothing. Not ready is: a disk without room, a store that does not write, a wall that
//! cannot be built, or a language that was offered and does not run. What was found before the wall was lost or regained
//! is not believed any more. Whoever shows the token learns the reasons;
//! anybody else only the names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, watch};

use mcp::Server;

/// For so long findings are believed.
const FRESH: Duration = Duration::from_secs(60);
/// Older ones are worth nothing while new ones are made.
const STALE: Duration = Duration::from_secs(300);
/// How long an answer waits for the first findings.
const PATIENCE: Duration = Duration::from_secs(20);
/// Less room than this on the state's disk is none: a run's inputs and the store need some.
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// What was found.
#[derive(Debug, Clone)]
pub(crate) struct Findings {
    begun: Instant,
    made: Instant,
    /// What is broken, and why.
    broken: Vec<(String, String)>,
    working: Vec<String>,
}

/// Finds out, keeps, finds out again.
pub(crate) struct Readiness {
    state_dir: std::path::PathBuf,
    known: watch::Sender<Option<Findings>>,
    /// One look at a time.
    looking: Arc<Mutex<()>>,
}

impl Readiness {
    pub(crate) fn new(state_dir: std::path::PathBuf) -> Arc<Self> {
        Arc::new(Self { state_dir, known: watch::Sender::new(None), looking: Arc::default() })
    }

    /// What is known; nothing when it could not be found out in time.
    pub(crate) async fn findings(self: &Arc<Self>, server: &Arc<Server>) -> Option<Findings> {
        // What was found while no sandbox could be built says nothing any more.
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
            // Whoever hears of it may look again at once.
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

    /// As JSON, with reasons for whoever may know them.
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
