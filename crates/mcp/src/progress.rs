//! Progress notifications of a run, for a client that asked for them: new output, coalesced, at most ten
//! times a second.
//!
//! Output is accepted immediately, so a client that reads slowly never delays the run or its clock. Output
//! beyond the bound is dropped and counted. At most one notification is being sent at a time.

use std::time::Duration;

use engine::{RunEvent, RunId};
use rmcp::RoleServer;
use rmcp::model::{NotificationMetaObject, ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::render;

/// Minimum time between two notifications, and before the first.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval of notifications while the program is silent, for clients whose timeout is reset by progress.
const SILENCE: Duration = Duration::from_secs(5);
/// Maximum output in one notification.
const MESSAGE_BYTES_MAX: usize = 4096;
/// Metadata key with the run's id, so that a client can read the log or cancel the run while it goes on.
pub const RUN_ID_KEY: &str = "palisade/run_id";

/// Progress of one run.
pub(crate) struct Progress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    run_id: RunId,
    started: Instant,
    last: Instant,
    news: News,
    on_its_way: Option<JoinHandle<()>>,
}

impl Progress {
    /// The clock starts now.
    pub(crate) fn new(peer: Peer<RoleServer>, token: ProgressToken, run_id: RunId) -> Self {
        let now = Instant::now();
        Self { peer, token, run_id, started: now, last: now, news: News::default(), on_its_way: None }
    }

    /// Accepts an event; never waits.
    pub(crate) fn take(&mut self, event: &RunEvent, left_out_bytes: u64) {
        let RunEvent::Output { data, .. } = event else { return };
        self.news.add(data);
        self.news.left_out += usize::try_from(left_out_bytes).unwrap_or(usize::MAX);
    }

    /// Completes when a notification is due; safe to cancel.
    pub(crate) async fn due(&mut self) {
        let wait = if self.news.is_empty() { SILENCE } else { PAUSE };
        tokio::time::sleep_until(self.last + wait).await;
        self.finish().await;
    }

    /// Sends the pending output.
    pub(crate) fn tell(&mut self) {
        self.last = Instant::now();
        let elapsed = self.last.duration_since(self.started);
        let mut params = ProgressNotificationParam::new(self.token.clone(), elapsed.as_millis() as f64);
        params.message = match self.news.take() {
            Some(text) => Some(text),
            None if self.news.is_empty() => Some(format!("running for {} s", elapsed.as_secs())),
            None => return,
        };
        let mut meta = NotificationMetaObject::default();
        meta.insert(RUN_ID_KEY.to_owned(), serde_json::json!(self.run_id.as_str()));
        params.meta = Some(meta);
        let peer = self.peer.clone();
        // A disconnected client gets no progress; another mechanism ends its run.
        self.on_its_way = Some(tokio::spawn(async move { peer.notify_progress(params).await.unwrap_or(()) }));
    }

    /// Waits for the notification that is being sent, so that none arrives after the answer.
    pub(crate) async fn finish(&mut self) {
        if let Some(sending) = &mut self.on_its_way {
            sending.await.ok();
            self.on_its_way = None;
        }
    }
}

/// Output that was not sent yet: its last part, and the number of bytes dropped before it.
#[derive(Debug, Default)]
struct News {
    bytes: Vec<u8>,
    left_out: usize,
}

impl News {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn add(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        let surplus = self.bytes.len().saturating_sub(MESSAGE_BYTES_MAX);
        if surplus > 0 {
            self.bytes.drain(..surplus);
            self.left_out += surplus;
        }
    }

    /// The output as text. The bytes of an incomplete last character are kept for the next call.
    fn take(&mut self) -> Option<String> {
        let whole = render::whole_characters(&self.bytes);
        if whole == 0 {
            return None;
        }
        let rest = self.bytes.split_off(whole);
        let told = std::mem::replace(&mut self.bytes, rest);
        match std::mem::take(&mut self.left_out) {
            0 => Some(render::visible(&told)),
            bytes => {
                let told = render::visible(render::from_character(&told));
                Some(format!("[... {bytes} bytes left out ...]\n{told}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_characters_are_kept_for_the_next_time() {
        let mut news = News::default();
        news.add("a€".as_bytes().split_at(2).0);
        assert_eq!(news.take().as_deref(), Some("a"));
        assert_eq!(news.take(), None);
        news.add(&"€".as_bytes()[1..]);
        assert_eq!(news.take().as_deref(), Some("€"));
        assert!(news.is_empty());
    }

    #[test]
    fn a_flood_is_bounded_and_counted() {
        let mut news = News::default();
        for _ in 0..100 {
            news.add(&[b'x'; 1000]);
        }
        assert!(news.bytes.len() <= MESSAGE_BYTES_MAX);
        let text = news.take().unwrap();
        assert!(
            text.starts_with(&format!("[... {} bytes left out", 100_000 - MESSAGE_BYTES_MAX)),
            "{text:.60}"
        );
    }

    #[test]
    fn bytes_that_are_no_text_do_not_wait_forever() {
        let mut news = News::default();
        news.add(b"\xff\xfe");
        assert_eq!(news.take().as_deref(), Some("\\xff\\xfe"));
    }
}
