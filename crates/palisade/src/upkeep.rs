//! Upkeep of the gate while a server runs: changed policies and quotas are put in force, and the record of decisions is written.
//!
//! ```text
//! every 250 ms -> files changed and settled, or SIGHUP -> usable: in force from the next call -> `reloaded`
//!                                                       -> not usable: the old ones stay      -> `reload_failed`
//! every second -> decisions since the last time -> the ledger's database
//! ```
//! It has a thread, because reading files and databases may block.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::Engine;

use crate::config::policies::{Reloaded, Watch};

const PAUSE: Duration = Duration::from_millis(250);
/// Looks between two writes of the record.
const LOOKS_PER_WRITE: u32 = 4;

/// The upkeep of an engine. Dropping it ends the thread, which writes the record a last time.
pub(crate) struct Upkeep {
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Upkeep {
    /// Begins the upkeep, and the record.
    pub(crate) fn start(engine: Arc<Engine>, watch: Watch) -> io::Result<Self> {
        engine.gatekeeper().record().begin();
        let (end, ended) = sync_channel(0);
        let thread = std::thread::Builder::new()
            .name("upkeep".to_owned())
            .spawn(move || tend(&engine, watch, &ended))?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            thread.join().ok();
        }
    }
}

fn tend(engine: &Engine, mut watch: Watch, ended: &Receiver<()>) {
    let mut looks = 0u32;
    while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        look(engine, &mut watch);
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS_PER_WRITE) {
            write_record(engine);
        }
    }
    write_record(engine);
}

fn look(engine: &Engine, watch: &mut Watch) {
    let gatekeeper = engine.gatekeeper();
    match watch.poll(gatekeeper.take_reload_wish()) {
        None => {}
        Some(Ok(Reloaded { book, quotas })) => {
            gatekeeper.replace_quotas(quotas);
            gatekeeper.replace(book);
            tracing::info!(what = "policies", "reloaded");
        }
        Some(Err(reason)) => {
            tracing::error!(what = "policies", reason, "reload_failed");
            gatekeeper.keep(reason);
        }
    }
}

fn write_record(engine: &Engine) {
    if let Err(error) = engine.gatekeeper().record().write() {
        tracing::warn!(reason = %error, "decisions_not_recorded");
    }
}
