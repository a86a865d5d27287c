//! Exports spans to an OpenTelemetry collector: OTLP as JSON over HTTP.
//!
//! ```text
//! a span closes -> bounded queue -> a separate thread -> POST <endpoint>/v1/traces, several hundred spans at a time
//!                  full: counted, logged once            fails: counted, logged once, not sent again
//! ```
//! A run never waits for the export. Only fields in [`ATTRIBUTES`] are sent, so that a new field of a span
//! must be reviewed before it is sent. The protocol: <https://opentelemetry.io/docs/specs/otlp/#otlphttp>.

mod encode;
mod post;

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sandbox::{FailureKind, Failures};
use serde_json::Value;

use self::post::Collector;
use super::fields::Fields;

/// Maximum number of queued spans; each has a few hundred bytes.
const QUEUE_MAX: usize = 4096;
/// Maximum number of spans per request.
const BATCH_MAX: usize = 512;
/// How long the first span of a batch waits for more spans.
const GATHER: Duration = Duration::from_secs(1);
/// How long the server's shutdown waits for the last spans.
const FINISH_PATIENCE: Duration = Duration::from_secs(2);
/// The fields of a span that are sent.
const ATTRIBUTES: [&str; 9] =
    ["error", "is_spare", "language", "outcome", "principal", "purpose", "run_id", "sandbox_id", "spare"];
/// Names of the queue and the collector in failure reports.
const QUEUE: &str = "queue";
const COLLECTOR: &str = "collector";

/// The ids of an open span.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traced {
    trace: [u8; 16],
    span: [u8; 8],
    parent: Option<[u8; 8]>,
    start: SystemTime,
}

/// A closed span.
#[derive(Debug)]
pub(super) struct EndedSpan {
    traced: Traced,
    end: SystemTime,
    name: &'static str,
    attributes: Vec<(&'static str, Value)>,
}

impl Traced {
    /// Starts a span in its parent's trace, or in a new trace. Returns `None` if the kernel provides no
    /// random bytes.
    pub(super) fn begin(parent: Option<Self>) -> Option<Self> {
        let mut bytes = [0_u8; 24];
        let given = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
        let (trace, span) = bytes.split_first_chunk::<16>().filter(|_| given == 24)?;
        Some(Self {
            trace: parent.map_or(*trace, |parent| parent.trace),
            span: *span.first_chunk()?,
            parent: parent.map(|parent| parent.span),
            start: SystemTime::now(),
        })
    }

    pub(super) fn end(self, name: &'static str, fields: Fields) -> EndedSpan {
        let mut attributes = fields.values;
        attributes.retain(|(name, _)| ATTRIBUTES.contains(name));
        EndedSpan { traced: self, end: SystemTime::now(), name, attributes }
    }
}

/// Queues spans and sends them.
pub(super) struct Exporter {
    /// `None` after [`Self::finish`].
    queue: Mutex<Option<SyncSender<EndedSpan>>>,
    /// Closed when the thread has ended.
    done: Mutex<Receiver<()>>,
    failures: Arc<Failures>,
}

impl Exporter {
    /// Starts a thread that sends spans to that address.
    pub(super) fn start(endpoint: &str, failures: Arc<Failures>) -> io::Result<Self> {
        let collector = Collector::new(endpoint)?;
        let (queue, spans) = sync_channel(QUEUE_MAX);
        let (alive, done) = sync_channel(1);
        let told = Arc::clone(&failures);
        std::thread::Builder::new().name("palisade-otlp".to_owned()).spawn(move || {
            send_all(&spans, &collector, &told);
            drop(alive);
        })?;
        Ok(Self { queue: Mutex::new(Some(queue)), done: Mutex::new(done), failures })
    }

    /// Queues a span; never waits.
    pub(super) fn send(&self, span: EndedSpan) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &*queue else { return };
        if let Err(TrySendError::Full(_)) = sender.try_send(span) {
            self.failures.report_text(FailureKind::Export, QUEUE, "more spans end than can be sent", None);
        }
    }

    /// Sends the queued spans, within a short time.
    pub(super) fn finish(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(RecvTimeoutError::Timeout) = done.recv_timeout(FINISH_PATIENCE) {
            tracing::warn!(
                reason = "the collector did not take the last spans in time",
                "shutdown_incomplete"
            );
        }
    }
}

/// Runs until the queue is closed.
fn send_all(spans: &Receiver<EndedSpan>, collector: &Collector, failures: &Failures) {
    while let Ok(first) = spans.recv() {
        let batch = gather(spans, first);
        match collector.post(encode::batch(&batch).as_bytes()) {
            Ok(()) => [QUEUE, COLLECTOR].iter().for_each(|it| failures.recovered(FailureKind::Export, it)),
            Err(error) => failures.report(FailureKind::Export, COLLECTOR, &error),
        }
    }
}

fn gather(spans: &Receiver<EndedSpan>, first: EndedSpan) -> Vec<EndedSpan> {
    let deadline = Instant::now() + GATHER;
    let mut batch = vec![first];
    while batch.len() < BATCH_MAX {
        let Ok(span) = spans.recv_timeout(deadline.saturating_duration_since(Instant::now())) else { break };
        batch.push(span);
    }
    batch
}

fn nanos(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

#[cfg(test)]
mod tests;
