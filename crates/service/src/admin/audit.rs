//! The audit: its newest entries, an export, its verification, its public keys, checkpoints and receipts.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use engine::RunId;
use engine::audit::{self, ExportFormat, VerifyRequest};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Admin;
use super::answer::{Answer, Answering, Refusal};
use super::ask::Ask;
use super::keys::Empty;

/// How many requests read the whole audit at once.
pub(super) const AT_ONCE_MAX: usize = 2;
/// Bytes of an export that are sent together, and such pieces that wait for a slow reader.
const PIECE_BYTES: usize = 64 << 10;
const PIECES_MAX: usize = 4;

/// `GET /audit/entries`.
pub(super) fn tail(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let limit = ask.page()?.limit;
        let found = read(&admin, move |folder| audit::tail(folder, limit)).await?;
        let entry = |entry: &audit::ReadEntry| {
            let audit::ReadEntry { ms, instance, seq, kind, .. } = entry;
            json!({ "ms": ms, "instance": instance, "seq": seq, "kind": kind, "data": entry.data() })
        };
        Answer::ok(&json!({ "items": found.iter().map(entry).collect::<Vec<Value>>() }))
    })
}

/// `GET /audit/export`.
pub(super) fn export(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let format = match ask.parameter("format") {
            None | Some("jsonl") => ExportFormat::Jsonl,
            Some("ocsf") => ExportFormat::Ocsf,
            Some(_) => {
                let message = "the parameter `format` has no such value";
                return Err(Refusal::bad("bad_query", message, "give jsonl or ocsf"));
            }
        };
        let since_ms = match ask.parameter("since_ms").map(str::parse::<u64>) {
            None => 0,
            Some(Ok(since)) => since,
            Some(Err(_)) => {
                let message = "the parameter `since_ms` has no such value";
                return Err(Refusal::bad("bad_query", message, "give milliseconds since the epoch"));
            }
        };
        let place = Arc::clone(&admin.audit_places).try_acquire_owned().map_err(|_| busy())?;
        let (pieces, coming) = mpsc::channel::<io::Result<Bytes>>(PIECES_MAX);
        let folder = folder(&admin);
        tokio::task::spawn_blocking(move || {
            let _place = place;
            let mut to = Pieces { pieces, held: Vec::with_capacity(PIECE_BYTES) };
            // A reader that is gone ends the export; another failure breaks the answer off, so it is not taken for whole.
            if let Err(error) = audit::export(&folder, since_ms, format, &mut to).and_then(|()| to.flush()) {
                tracing::warn!(reason = %error, "audit_export_ended");
                to.pieces.blocking_send(Err(error)).ok();
            }
        });
        let lines = stream::unfold(coming, |mut coming| async move { Some((coming.recv().await?, coming)) });
        Ok(Answer::Lines(Body::from_stream(lines)))
    })
}

/// `POST /audit/verify`.
pub(super) fn verify(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let Empty {} = ask.body()?;
        let _place = Arc::clone(&admin.audit_places).try_acquire_owned().map_err(|_| busy())?;
        let state_dir = admin.state_dir.clone();
        let report = read(&admin, move |folder| {
            let keys = audit::KeyRing::new(audit::public_keys(&state_dir)?);
            audit::verify(VerifyRequest { folder, keys, receipts: Vec::new(), checkpoints: Vec::new() })
        });
        Answer::ok(&report.await?.to_json())
    })
}

/// `GET /audit/keys`.
pub(super) fn keys(admin: Arc<Admin>, _ask: Ask) -> Answering {
    Box::pin(async move {
        let state_dir = admin.state_dir.clone();
        let keys = read(&admin, move |_| audit::public_keys(&state_dir)).await?;
        Answer::ok(&json!({ "keys": keys.iter().map(ToString::to_string).collect::<Vec<_>>() }))
    })
}

/// `GET /audit/checkpoint`.
pub(super) fn checkpoint(admin: Arc<Admin>, _ask: Ask) -> Answering {
    Box::pin(async move { Answer::ok(&json!({ "note": read(&admin, audit::newest_checkpoint).await? })) })
}

/// `GET /audit/receipts/{run_id}`.
pub(super) fn receipt(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let unknown = || {
            let message = "there is no ended run with this run_id that the audit has";
            Refusal::not_found("unknown_run", message, "see GET /admin/v1/runs")
        };
        let id = RunId::parse(ask.id()).ok_or_else(unknown)?;
        let (state_dir, wanted) = (admin.state_dir.clone(), id.clone());
        let made = tokio::task::spawn_blocking(move || audit::run_receipt(&state_dir, &wanted)).await;
        let receipt = made.map_err(|_| Refusal::own("the receipt could not be made"))??;
        Answer::ok(&json!({ "run_id": id.as_str(), "receipt": receipt.ok_or_else(unknown)? }))
    })
}

fn folder(admin: &Admin) -> PathBuf {
    audit::folder(&admin.state_dir)
}

/// Reads files of the audit away from the runtime.
async fn read<T: Send + 'static>(
    admin: &Admin,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    let folder = folder(admin);
    let done = tokio::task::spawn_blocking(move || work(&folder)).await;
    done.map_err(|_| Refusal::own("the audit could not be read"))?.map_err(|error| {
        tracing::error!(reason = %error, "audit_not_read");
        let (code, message) = ("audit_unavailable", "the audit cannot be read");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, code, message, "see the log of the server")
    })
}

fn busy() -> Refusal {
    let message = "other requests read the whole audit now";
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message, "try again later")
}

/// Collects lines and sends them in pieces. A slow reader holds up the export.
struct Pieces {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    held: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        if self.held.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.held));
        self.pieces.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
