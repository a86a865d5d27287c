//! Connections that are kept for the next request to the same host.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper::client::conn::http1::SendRequest;

/// One end of a connection.
pub(super) type Sender = SendRequest<Empty<Bytes>>;

/// The most connections that are kept for one host.
const KEPT_MAX: usize = 16;
/// How long a connection is kept.
const KEPT: Duration = Duration::from_secs(30);

/// Scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) is_tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Origin {
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let is_tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        Some(Self { is_tls, host, port: uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 }) })
    }
}

/// The kept connections.
#[derive(Default)]
pub(super) struct Pool(Mutex<HashMap<Origin, Vec<(Instant, Sender)>>>);

impl Pool {
    /// A kept connection that is not known to be closed.
    pub(super) fn take(&self, origin: &Origin) -> Option<Sender> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = kept.get_mut(origin)?;
        while let Some((since, sender)) = list.pop() {
            if since.elapsed() < KEPT && sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    pub(super) fn put(&self, origin: Origin, sender: Sender) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = kept.entry(origin).or_default();
        if list.len() < KEPT_MAX && !sender.is_closed() {
            list.push((Instant::now(), sender));
        }
    }
}
