//! The audit of this process: a chain of entries in `state_dir/audit/INSTANCE`, in the form of the crate `audit`.
//!
//! The gatekeeper writes the decision about a call before the call has an effect, and its outcome afterwards. What cannot
//! be written stops the call. Arguments are in the chain as names and a digest with a key of the server, never as values.
//!
//! Entries are appended under a lock, on the thread of the caller: write(2) into the page cache costs microseconds. A
//! thread signs checkpoints, brings them to the disk, and removes what is too old. A killed process loses nothing that was
//! written; a power failure may cost what followed the last checkpoint.
//!
//! Each process has a chain of its own. Several servers share a state directory, and a chain with one writer needs no
//! agreement between them. The first entry of a chain names the last entry of the chain before it, so that a server's end
//! cannot be cut off once the next one has begun.

mod chain;
mod decision;
mod export;
mod files;
mod keys;
mod read;
mod retention;
mod run_proof;
mod verify;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub use audit::{ChainReport, ChainState, Flaw, Gap, KeyRing, PublicKey};
use serde_json::{Map, Value};

use self::chain::{Chain, Need, Written};
pub use self::decision::DecisionRef;
pub(crate) use self::decision::OpenCall;
pub use self::export::{ExportFormat, export, ocsf};
pub use self::files::folder;
use self::keys::{ArgumentsKey, KeyFolder};
pub use self::read::{Follower, ReadEntry, entries, entry_receipt, newest_checkpoint, tail};
pub use self::retention::AuditRetention;
pub(crate) use self::run_proof::RunInputs;
pub use self::run_proof::{RunProof, run_receipt};
pub use self::verify::{AuditReport, ReceiptReport, Verdict, VerifyRequest, verify, verify_receipt};
use crate::result::RunError;

/// The code of a call that was not made because it could not be recorded.
pub const AUDIT_UNAVAILABLE: &str = "audit_unavailable";
/// A checkpoint is signed after so many entries.
const CHECKPOINT_ENTRIES: u64 = 256;
/// A checkpoint is signed after this time, if something is new.
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(10);
/// How often a chain that could not be begun is tried again.
const BEGIN_PAUSE: Duration = Duration::from_secs(1);
const RETRY_MS: u64 = 1000;
/// The longest text of an event.
const EVENT_TEXT_BYTES_MAX: usize = 4096;
/// The most fields of an event.
const EVENT_FIELDS_MAX: usize = 32;

/// How the audit is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditConfig {
    /// After so many bytes another segment begins.
    pub segment_bytes_max: u64,
    /// What is removed.
    pub retention: AuditRetention,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { segment_bytes_max: 16 << 20, retention: AuditRetention::default() }
    }
}

/// Something besides calls that is recorded. The set of kinds is open.
#[derive(Debug, Clone)]
pub struct Event {
    kind: &'static str,
    fields: Map<String, Value>,
}

impl Event {
    /// An event of that kind: a plain name, such as `key_created`.
    pub fn new(kind: &'static str) -> Self {
        Self { kind, fields: Map::new() }
    }

    /// Adds a field. It must not be a secret. Long text is cut.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::String(text) => Value::String(cut(&text, EVENT_TEXT_BYTES_MAX).to_owned()),
            other => other,
        };
        if self.fields.len() < EVENT_FIELDS_MAX {
            self.fields.insert(name.to_owned(), value);
        }
        self
    }

    /// Adds who caused it.
    #[must_use]
    pub fn by(self, caller: &policy::Caller) -> Self {
        self.with("principal", caller.principal.as_str()).with("label", &*caller.label)
    }
}

/// The audit of this process. It records nothing until [`Self::begin`].
#[derive(Debug, Clone)]
pub struct Audit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    keys: KeyFolder,
    is_on: AtomicBool,
    /// What the process is, for the first entry.
    what: OnceLock<(String, AuditConfig)>,
    arguments: OnceLock<ArgumentsKey>,
    state: Mutex<State>,
    /// Told when a checkpoint is due and when the audit ends.
    bell: Condvar,
}

#[derive(Debug)]
enum State {
    NotBegun { tried_at: Option<Instant> },
    Open(Box<Chain>),
    Ended,
}

impl Audit {
    pub(crate) fn new(state_dir: &Path) -> Self {
        let folder = folder(state_dir);
        Self(Arc::new(Shared {
            keys: KeyFolder::new(&folder),
            folder,
            is_on: AtomicBool::new(false),
            what: OnceLock::new(),
            arguments: OnceLock::new(),
            state: Mutex::new(State::NotBegun { tried_at: None }),
            bell: Condvar::new(),
        }))
    }

    /// Begins to record. A chain that cannot be begun now is tried again with each call, which is refused until then.
    pub fn begin(&self, what: &str, config: AuditConfig) -> io::Result<()> {
        self.0.what.get_or_init(|| (what.to_owned(), config));
        self.0.is_on.store(true, Ordering::Release);
        let shared = Arc::clone(&self.0);
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || shared.tend()).map(drop)
    }

    /// Whether something is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Acquire)
    }

    /// The name of this process's chain, once it has begun.
    pub fn instance(&self) -> Option<String> {
        match &*self.0.state() {
            State::Open(chain) => Some(chain.instance().to_owned()),
            _ => None,
        }
    }

    /// Records what has happened. If the disk has no room, the entry waits.
    pub fn note(&self, event: Event) {
        if self.is_on() {
            let Event { kind, fields } = event;
            self.0.tell(kind, Value::Object(fields).to_string());
        }
    }

    /// Records what is about to happen. It must not happen if this fails.
    pub fn note_before(&self, event: Event) -> Result<(), RunError> {
        if !self.is_on() {
            return Ok(());
        }
        let Event { kind, fields } = event;
        let written = self.0.append(kind, Value::Object(fields).to_string(), Need::BeforeEffect);
        written.map(drop).map_err(|error| unavailable(&error))
    }

    /// Signs what was recorded so far.
    pub fn checkpoint(&self) -> io::Result<()> {
        let mut state = self.0.state();
        match &mut *state {
            State::Open(chain) => chain.checkpoint(&self.0.keys),
            _ => Ok(()),
        }
    }

    /// Ends the chain: the last entry, the last checkpoint. Calls are refused from now on, if they were recorded before.
    pub fn end(&self) {
        let ended = std::mem::replace(&mut *self.0.state(), State::Ended);
        self.0.bell.notify_all();
        if let State::Open(mut chain) = ended
            && let Err(error) = chain.end(&self.0.keys)
        {
            tracing::error!(reason = %error, "audit_not_ended");
        }
    }

    #[cfg(test)]
    pub(crate) fn fill_disk(&self, room: Option<u64>) {
        if let State::Open(chain) = &mut *self.0.state() {
            chain.room = room;
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an entry; begins the chain if it has not begun.
    fn append(&self, kind: &'static str, data: String, need: Need) -> io::Result<Written> {
        let mut state = self.state();
        let chain = self.open(&mut state)?;
        let written = chain.append(kind, data, need);
        if chain.unsigned() >= CHECKPOINT_ENTRIES {
            self.bell.notify_one();
        }
        written
    }

    /// Appends an entry about what has happened. A failure is logged: the next call is refused.
    fn tell(&self, kind: &'static str, data: String) -> Option<Written> {
        self.append(kind, data, Need::AfterEffect)
            .inspect_err(|error| {
                tracing::error!(reason = %error, kind, "audit_entry_waits");
            })
            .ok()
    }

    fn open<'s>(&self, state: &'s mut State) -> io::Result<&'s mut Chain> {
        if let State::NotBegun { tried_at } = state {
            if tried_at.is_some_and(|at| at.elapsed() < BEGIN_PAUSE) {
                return Err(io::Error::other("the chain could not be begun a moment ago"));
            }
            let (what, config) = self.what.get().ok_or(io::ErrorKind::NotConnected)?;
            match Chain::begin(&self.folder, config.segment_bytes_max, what) {
                Ok(mut chain) => {
                    if let Err(error) = chain.restore() {
                        tracing::error!(reason = %error, "audit_reserve_not_taken");
                    }
                    *state = State::Open(Box::new(chain));
                }
                Err(error) => {
                    *tried_at = Some(Instant::now());
                    tracing::error!(reason = %error, "audit_not_begun");
                    return Err(error);
                }
            }
        }
        match state {
            State::Open(chain) => Ok(chain),
            _ => Err(io::Error::other("the audit has ended")),
        }
    }

    fn arguments_key(&self) -> io::Result<&ArgumentsKey> {
        if self.arguments.get().is_none() {
            let key = self.keys.arguments()?;
            // Another thread may have read it first.
            drop(self.arguments.set(key));
        }
        self.arguments.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The thread: begins the chain, signs checkpoints, removes what is too old.
    fn tend(&self) {
        if let Err(error) = self.arguments_key() {
            tracing::error!(reason = %error, "audit_key_not_usable");
        }
        // A failure is logged there, and the next call tries again.
        self.open(&mut self.state()).map(drop).ok();
        self.retire();
        loop {
            let mut state = self.state();
            let is_due = |state: &mut State| match state {
                State::Open(chain) => chain.unsigned() < CHECKPOINT_ENTRIES,
                State::NotBegun { .. } => true,
                State::Ended => false,
            };
            let (held, _) = self
                .bell
                .wait_timeout_while(state, CHECKPOINT_PAUSE, is_due)
                .unwrap_or_else(PoisonError::into_inner);
            state = held;
            let (signed, segment) = match &mut *state {
                State::Ended => return,
                State::NotBegun { .. } => continue,
                State::Open(chain) => {
                    let segment = chain.segment();
                    (chain.checkpoint(&self.keys).and_then(|()| chain.to_sync()), segment)
                }
            };
            drop(state);
            if let Err(error) = signed.and_then(|file| file.sync_data()) {
                tracing::error!(reason = %error, "audit_checkpoint_not_written");
                // Not at once again, if the disk is full.
                std::thread::sleep(BEGIN_PAUSE);
            }
            if segment > 1 {
                self.retire();
            }
        }
    }

    fn retire(&self) {
        let Some((_, config)) = self.what.get() else { return };
        match retention::retire(&self.folder, &self.keys, config.retention) {
            Ok(None) => {}
            Ok(Some(removed)) => drop(self.tell(audit::kind::RETENTION, removed.to_string())),
            Err(error) => tracing::warn!(reason = %error, "audit_retention_failed"),
        }
    }
}

/// The refusal of a call that cannot be recorded.
fn unavailable(error: &io::Error) -> RunError {
    tracing::error!(reason = %error, "audit_unavailable");
    let mut refusal = RunError::new(
        AUDIT_UNAVAILABLE,
        "the call was not made, because the server cannot write its audit",
    )
    .remedy("tell the operator: the log of the server names the cause, such as a full disk; then try again");
    refusal.cause = Some(error.kind().to_string());
    refusal.retryable = true;
    refusal.retry_after_ms = Some(RETRY_MS);
    refusal
}

/// Records an event of a command, in a chain of its own. Nothing is written if the audit is off.
pub fn note_once(
    state_dir: &Path,
    what: &str,
    config: Option<AuditConfig>,
    event: Event,
) -> Result<(), RunError> {
    let Some(config) = config else { return Ok(()) };
    let audit = Audit::new(state_dir);
    audit.0.what.get_or_init(|| (what.to_owned(), config));
    audit.0.is_on.store(true, Ordering::Release);
    audit.note_before(event)?;
    audit.end();
    Ok(())
}

/// The public keys of the audit of a state directory, the newest last. The first use makes the key.
pub fn public_keys(state_dir: &Path) -> io::Result<Vec<PublicKey>> {
    let keys = KeyFolder::new(&folder(state_dir));
    keys.signing()?;
    keys.public()
}

/// Replaces the audit key. Servers notice it with their next checkpoint.
pub fn rotate_key(state_dir: &Path) -> io::Result<PublicKey> {
    KeyFolder::new(&folder(state_dir)).rotate()
}

/// The beginning of a text, up to so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests;
