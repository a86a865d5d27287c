//! Fetches documents and files of mirrors: HTTP/1.1 over TLS, bounded in size, time and connections.
//!
//! Connections are kept for reuse. Everything runs on threads of its own, so that an installation does not delay runs.
//! Mirrors are named by the operator and may have any address. An answer may send the client on, but only to the
//! mirror itself or to a host that the operator named.

mod connect;
mod hosts;
mod pool;

use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, ETAG, HOST, IF_NONE_MATCH, LOCATION, USER_AGENT,
};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::connect::Connector;
use self::pool::{Origin, Pool, Sender};
use crate::settings::{Mirror, PackagesConfig, Patience};

/// The most requests at once.
const REQUESTS_MAX: usize = 16;
/// The most of them that are files. Large ones take minutes, and documents must not wait for them.
const FILES_MAX: usize = REQUESTS_MAX - 4;
/// How often an answer may send the client on.
const REDIRECTS_MAX: usize = 3;
/// How often a request is repeated after a failure that may pass.
const TRIES_MAX: usize = 3;
/// The threads that fetch.
const THREADS: usize = 2;
/// The longest entity tag that is kept.
const ETAG_BYTES_MAX: usize = 256;

/// Why something could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("the mirror does not have it")]
    NotFound,
    #[error("the mirror answered with status {0}")]
    Status(u16),
    #[error("the mirror cannot be reached: {0}")]
    Unreachable(String),
    #[error("the mirror did not answer in time")]
    Slow,
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the packages need too many others")]
    Endless,
    #[error("it is on the host {0}, which is neither the mirror nor in packages.file_hosts")]
    Elsewhere(String),
    #[error("the answer of the mirror cannot be read: {0}")]
    Malformed(String),
    #[error("its content differs from the digest in the index")]
    Mismatch,
    #[error("it cannot be stored: {0}")]
    Disk(String),
}

impl FetchError {
    /// Whether another attempt may succeed.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Slow => true,
            Self::Status(status) => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}

/// Whether a mirror answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorHealth {
    /// How long the answer took, or why there is none.
    pub answer: Result<Duration, String>,
}

/// A document of an index.
pub(crate) enum Document {
    /// The mirror's version is the one that the caller has.
    NotModified,
    /// Its content.
    Body { bytes: Vec<u8>, etag: Option<String>, is_json: bool },
}

/// A request for a document.
pub(crate) struct DocumentRequest<'a> {
    pub(crate) mirror: &'a Mirror,
    pub(crate) url: &'a str,
    pub(crate) accept: &'static str,
    pub(crate) etag: Option<&'a str>,
    pub(crate) bytes_max: usize,
}

/// Takes the parts of a file.
pub(crate) type PartTaker<'a> = &'a mut (dyn FnMut(&[u8]) -> io::Result<()> + Send);

/// A client for mirrors.
pub(crate) struct Fetcher {
    connector: Connector,
    pool: Pool,
    slots: Semaphore,
    file_slots: Semaphore,
    patience: Patience,
    file_hosts: Vec<String>,
    threads: Threads,
}

impl Fetcher {
    pub(crate) fn new(config: &PackagesConfig) -> Self {
        Self {
            connector: Connector::new(config),
            pool: Pool::default(),
            slots: Semaphore::new(REQUESTS_MAX),
            file_slots: Semaphore::new(FILES_MAX),
            patience: config.patience,
            file_hosts: config.file_hosts.clone(),
            threads: Threads::default(),
        }
    }

    /// Executes a future on the threads that fetch.
    pub(crate) async fn aside<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, FetchError> {
        let ended = |error: &dyn std::fmt::Display| FetchError::Unreachable(error.to_string());
        let handle = self.threads.handle().map_err(|error| ended(&error))?;
        handle.spawn(work).await.map_err(|error| ended(&error))
    }

    /// Fetches a document.
    pub(crate) async fn document(&self, request: &DocumentRequest<'_>) -> Result<Document, FetchError> {
        let fetched = timeout(self.patience.document, self.document_tried(request)).await;
        fetched.unwrap_or(Err(FetchError::Slow))
    }

    async fn document_tried(&self, asked: &DocumentRequest<'_>) -> Result<Document, FetchError> {
        let mut tries = 1;
        loop {
            match self.document_once(asked).await {
                Err(error) if error.is_passing() && tries < TRIES_MAX => tries += 1,
                fetched => return fetched,
            }
        }
    }

    async fn document_once(&self, asked: &DocumentRequest<'_>) -> Result<Document, FetchError> {
        let mut headers = HeaderMap::new();
        put(&mut headers, ACCEPT, asked.accept);
        put(&mut headers, ACCEPT_ENCODING, "gzip");
        if let Some(etag) = asked.etag {
            put(&mut headers, IF_NONE_MATCH, etag);
        }
        let mut answer = self.follow(asked.mirror, asked.url, &headers).await?;
        if answer.response.status() == StatusCode::NOT_MODIFIED {
            self.read(&mut answer, 0, &mut |_| Ok(())).await?;
            self.park(answer);
            return Ok(Document::NotModified);
        }
        let head = answer.response.headers();
        let text = |name| head.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        let is_gzip = text(CONTENT_ENCODING).is_some_and(|coding| coding.eq_ignore_ascii_case("gzip"));
        let is_json = text(http::header::CONTENT_TYPE).is_some_and(|kind| kind.contains("json"));
        let etag = text(ETAG).filter(|etag| etag.len() <= ETAG_BYTES_MAX).map(str::to_owned);
        let mut bytes = Vec::new();
        let take: PartTaker<'_> = &mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        };
        self.read(&mut answer, asked.bytes_max as u64, take).await?;
        self.park(answer);
        if is_gzip {
            bytes = unzipped(&bytes, asked.bytes_max)?;
        }
        Ok(Document::Body { bytes, etag, is_json })
    }

    /// Fetches a file and gives its parts to `take`. It is not repeated, because parts may have been taken.
    pub(crate) async fn file(
        &self,
        mirror: &Mirror,
        url: &str,
        bytes_max: u64,
        take: PartTaker<'_>,
    ) -> Result<(), FetchError> {
        let answer = timeout(self.patience.install, async {
            let _slot = self.file_slots.acquire().await.map_err(|_| FetchError::Slow)?;
            let mut headers = HeaderMap::new();
            // A file is compared with its digest as it is.
            put(&mut headers, ACCEPT_ENCODING, "identity");
            let mut answer = self.follow(mirror, url, &headers).await?;
            self.read(&mut answer, bytes_max, take).await?;
            Ok(answer)
        });
        self.park(answer.await.unwrap_or(Err(FetchError::Slow))?);
        Ok(())
    }

    /// Whether a mirror answers at all, with any status.
    pub(crate) async fn health(&self, mirror: &Mirror) -> MirrorHealth {
        let started = Instant::now();
        let url = mirror.below("");
        let answer = timeout(self.patience.connect, self.send(mirror, &url, &HeaderMap::new())).await;
        MirrorHealth {
            answer: match answer {
                Ok(Ok(_)) => Ok(started.elapsed()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(FetchError::Slow.to_string()),
            },
        }
    }

    /// Sends a request, and follows where the answer sends the client on.
    async fn follow(
        &self,
        mirror: &Mirror,
        url: &str,
        headers: &HeaderMap,
    ) -> Result<Answer<'_>, FetchError> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.send(mirror, &url, headers).await?;
            let status = answer.response.status();
            if status == StatusCode::OK || status == StatusCode::NOT_MODIFIED {
                return Ok(answer);
            }
            if status == StatusCode::NOT_FOUND || status == StatusCode::GONE {
                return Err(FetchError::NotFound);
            }
            if !status.is_redirection() {
                return Err(FetchError::Status(status.as_u16()));
            }
            let to = answer.response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let to = to.ok_or_else(|| FetchError::Malformed("a redirect without an address".to_owned()))?;
            url = crate::index::join(&url, to)
                .ok_or_else(|| FetchError::Malformed("a bad address".to_owned()))?;
        }
        Err(FetchError::Malformed("too many redirects".to_owned()))
    }

    async fn send(&self, mirror: &Mirror, url: &str, headers: &HeaderMap) -> Result<Answer<'_>, FetchError> {
        let uri: Uri = url.parse().map_err(|_| FetchError::Malformed("a bad address".to_owned()))?;
        self.check_host(mirror, &uri)?;
        let origin = Origin::of(&uri).ok_or_else(|| FetchError::Malformed("a bad address".to_owned()))?;
        let slot = self.slots.acquire().await.map_err(|_| FetchError::Slow)?;
        let request = |is_own: bool| {
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            let mut request = Request::get(path).body(Empty::<Bytes>::new()).ok()?;
            let head = request.headers_mut();
            head.extend(headers.clone());
            put(head, HOST, uri.authority()?.as_str());
            put(head, USER_AGENT, concat!("palisade/", env!("CARGO_PKG_VERSION")));
            if let Some(authorization) = mirror.authorization.as_deref().filter(|_| is_own) {
                put(head, AUTHORIZATION, authorization);
            }
            Some(request)
        };
        let is_own = Origin::of(&mirror.base).as_ref() == Some(&origin);
        let wrong = || FetchError::Malformed("a bad request".to_owned());
        // A kept connection may have been closed by the other side meanwhile.
        while let Some(mut sender) = self.pool.take(&origin) {
            let sent =
                timeout(self.patience.idle, sender.send_request(request(is_own).ok_or_else(wrong)?)).await;
            match sent {
                Ok(Ok(response)) => return Ok(Answer { response, sender, origin, _slot: slot }),
                Ok(Err(_)) => {}
                Err(_) => return Err(FetchError::Slow),
            }
        }
        let connected = timeout(self.patience.connect, self.connector.connect(&origin)).await;
        let mut sender: Sender = connected
            .map_err(|_| FetchError::Slow)?
            .map_err(|error| FetchError::Unreachable(error.to_string()))?;
        let sent = timeout(self.patience.idle, sender.send_request(request(is_own).ok_or_else(wrong)?)).await;
        let response = sent
            .map_err(|_| FetchError::Slow)?
            .map_err(|error| FetchError::Unreachable(error.to_string()))?;
        Ok(Answer { response, sender, origin, _slot: slot })
    }

    fn check_host(&self, mirror: &Mirror, uri: &Uri) -> Result<(), FetchError> {
        match hosts::is_allowed(&mirror.base, &self.file_hosts, uri) {
            true => Ok(()),
            false => Err(FetchError::Elsewhere(uri.host().unwrap_or_default().to_owned())),
        }
    }

    /// Whether a file of that address would be fetched.
    pub(crate) fn would_fetch(&self, mirror: &Mirror, url: &str) -> bool {
        url.parse::<Uri>().is_ok_and(|uri| self.check_host(mirror, &uri).is_ok())
    }

    async fn read(
        &self,
        answer: &mut Answer<'_>,
        bytes_max: u64,
        take: PartTaker<'_>,
    ) -> Result<(), FetchError> {
        let mut count = 0_u64;
        loop {
            let frame = timeout(self.patience.idle, answer.response.frame()).await;
            let Some(frame) = frame.map_err(|_| FetchError::Slow)? else { return Ok(()) };
            let frame = frame.map_err(|error| FetchError::Unreachable(error.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            count = count.saturating_add(data.len() as u64);
            if count > bytes_max {
                return Err(FetchError::TooLarge(bytes_max));
            }
            take(&data).map_err(|error| FetchError::Disk(error.to_string()))?;
        }
    }

    /// Keeps a connection whose answer was read to its end.
    fn park(&self, answer: Answer<'_>) {
        self.pool.put(answer.origin, answer.sender);
    }
}

/// An answer whose body has not been read.
struct Answer<'a> {
    response: Response<Incoming>,
    sender: Sender,
    origin: Origin,
    _slot: tokio::sync::SemaphorePermit<'a>,
}

fn put(headers: &mut HeaderMap, name: http::HeaderName, value: &str) {
    if let Ok(value) = http::HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn unzipped(bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, FetchError> {
    let mut plain = Vec::new();
    let mut reader = GzDecoder::new(bytes).take(bytes_max as u64 + 1);
    reader.read_to_end(&mut plain).map_err(|error| FetchError::Malformed(error.to_string()))?;
    if plain.len() > bytes_max { Err(FetchError::TooLarge(bytes_max as u64)) } else { Ok(plain) }
}

/// The threads that fetch. They start at the first use.
#[derive(Default)]
struct Threads(OnceLock<Option<Runtime>>);

impl Threads {
    fn handle(&self) -> io::Result<&Handle> {
        let runtime = self.0.get_or_init(|| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(THREADS).thread_name("packages").enable_all().build().ok()
        });
        let missing = || io::Error::other("no thread can be started");
        runtime.as_ref().map(Runtime::handle).ok_or_else(missing)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(Some(runtime)) = self.0.take() {
            // Dropping a runtime inside another one is not allowed.
            runtime.shutdown_background();
        }
    }
}

/// A fetcher that tasks share.
pub(crate) type SharedFetcher = Arc<Fetcher>;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn documents_are_fetched_while_many_large_files_are() {
        let asked = Arc::new(Semaphore::new(0));
        let noted = Arc::clone(&asked);
        let address = crate::test_mirror::serve(move |path| {
            if path.starts_with("/file") {
                noted.add_permits(1);
                loop {
                    // A file without an end.
                    std::thread::park();
                }
            }
            Ok(b"document".to_vec())
        });
        let fetcher = Arc::new(Fetcher::new(&PackagesConfig::new(std::path::PathBuf::new())));
        let mirror = Mirror::parse(&address).unwrap();
        let files: Vec<_> = (0..2 * REQUESTS_MAX)
            .map(|number| {
                let (fetcher, mirror, url) =
                    (fetcher.clone(), mirror.clone(), format!("{address}/file{number}"));
                tokio::spawn(async move { fetcher.file(&mirror, &url, 1, &mut |_| Ok(())).await })
            })
            .collect();
        asked.acquire_many(u32::try_from(FILES_MAX).unwrap()).await.unwrap().forget();
        let url = format!("{address}/document");
        let request =
            DocumentRequest { mirror: &mirror, url: &url, accept: "*/*", etag: None, bytes_max: 100 };
        let fetched = fetcher.document(&request).await;
        assert!(matches!(fetched, Ok(Document::Body { .. })), "{:?}", fetched.err());
        assert_eq!(asked.available_permits(), 0, "no more files at once");
        files.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
