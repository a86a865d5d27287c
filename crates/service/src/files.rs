//! `/files/{token}/{name}`: performs the action that a signed URL allows. The URL is the only proof that is
//! required.
//!
//! ```text
//! GET, HEAD  URL  -> workspace of its principal -> regular file -> pieces through a short queue -> out
//! PUT        URL  -> workspace of its principal -> draft <- pieces of the body -> renamed into place
//! ```
//! In both directions a transfer holds only a few pieces in memory, independent of the file's size. Every
//! invalid URL (forged, expired, for another action, or of a closed sandbox) gets the same answer.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use engine::Caller;
use engine::workspace::{FileError, OpenFile, Workspace, Workspaces};
use futures_util::stream;
use http_body_util::BodyExt;
use policy::{Scope, Scopes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::callers::{Callers, Credential, Identified, bounded};
use super::connection_slots::AllBusy;
use super::connections;
use super::disposition;
use super::metrics::{Counters, Refusal};
use super::range::{self, Ranged};
use mcp::file_urls::{FileAction, FileUrls};

use crate::file_urls::{FileUrlKey, Grant, ROUTE_PREFIX, SignedFileUrls};

/// Maximum number of concurrent transfers.
const TRANSFERS_MAX: usize = 64;
/// Size of a piece, and the number of pieces of a download that wait for the peer.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_MAX: usize = 2;
/// A transfer ends if the peer neither reads nor writes for this time.
const PAUSE_MAX: Duration = Duration::from_secs(60);
const UPLOAD_MAX: Duration = Duration::from_secs(30 * 60);
const SANDBOXED: &str = "sandbox; default-src 'none'";
const REFERRER_POLICY: &str = "no-referrer";

/// Serves file URLs.
pub(crate) struct Files {
    workspaces: Arc<dyn Workspaces>,
    key: Arc<FileUrlKey>,
    callers: Arc<Callers>,
    may_use: UrlJudge,
    transfers: Arc<Semaphore>,
    counters: Arc<Counters>,
}

/// Whether the policies in force allow a caller to use a URL.
pub(crate) type UrlJudge = Box<dyn Fn(&Caller, &Grant) -> bool + Send + Sync>;

impl Files {
    pub(crate) fn new(
        workspaces: Arc<dyn Workspaces>,
        key: Arc<FileUrlKey>,
        callers: Arc<Callers>,
        counters: Arc<Counters>,
        may_use: UrlJudge,
    ) -> Arc<Self> {
        Arc::new(Self {
            workspaces,
            key,
            callers,
            may_use,
            transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
            counters,
        })
    }

    /// The grant of the request's URL, its workspace, and the credential of the caller who asked for it.
    async fn allowed(&self, request: &Parts, action: FileAction) -> Result<Allowed, Response> {
        let path = request.uri.path().strip_prefix(ROUTE_PREFIX).unwrap_or_default();
        let token = path.split('/').next().unwrap_or_default();
        let grant = self.key.grant(token, SystemTime::now()).filter(|grant| grant.action == action);
        let Some(grant) = grant else { return Err(self.wrong()) };
        // The URL has the rights that its caller has now, not those of the time when it was made.
        let Some(Identified { caller, credential }) =
            self.callers.holder(&grant.principal, grant.made_s()).await
        else {
            return Err(self.wrong());
        };
        if !caller.may(Scope::Sandbox) || !(self.may_use)(&caller, &grant) {
            return Err(self.wrong());
        }
        let caller = Caller { scopes: Scopes::of(&[Scope::Sandbox]), ..caller };
        match self.workspaces.workspace(&caller, &grant.sandbox_id).await {
            // A valid URL proves as much as the token. The connection becomes proven, so that a new unproven
            // connection cannot interrupt the transfer.
            Ok(Some(workspace)) => match connections::prove(&request.extensions) {
                Ok(()) => Ok(Allowed { grant, workspace, credential }),
                Err(AllBusy) => {
                    self.counters.refused(Refusal::Connection);
                    Err(said(StatusCode::SERVICE_UNAVAILABLE, connections::ALL_BUSY))
                }
            },
            Ok(None) => Err(self.wrong()),
            Err(_) => Err(said(StatusCode::INTERNAL_SERVER_ERROR, "the sandbox could not be looked up")),
        }
    }

    fn wrong(&self) -> Response {
        self.counters.refused(Refusal::FileUrl);
        said(StatusCode::NOT_FOUND, "this link is not valid, or not any more: ask for a new one")
    }

    fn begin(&self) -> Result<OwnedSemaphorePermit, Response> {
        Arc::clone(&self.transfers).try_acquire_owned().map_err(|_| {
            let mut busy = said(StatusCode::SERVICE_UNAVAILABLE, "too many transfers at once");
            busy.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            busy
        })
    }
}

/// What a URL allows.
struct Allowed {
    grant: Grant,
    workspace: Arc<dyn Workspace>,
    credential: Credential,
}

/// The routes.
pub(crate) fn routes(files: Arc<Files>) -> Router {
    Router::new().route("/files/{token}/{name}", any(handle)).with_state(files)
}

async fn handle(State(files): State<Arc<Files>>, request: Request) -> Response {
    let (request, body) = request.into_parts();
    let handled = match request.method {
        Method::GET | Method::HEAD => download(&files, &request).await,
        Method::PUT => upload(&files, &request, body).await,
        _ => {
            let mut response = said(StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD or PUT");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, PUT"));
            Ok(response)
        }
    };
    handled.unwrap_or_else(|refusal| refusal)
}

async fn download(files: &Files, request: &Parts) -> Result<Response, Response> {
    let Allowed { grant, workspace, credential } = files.allowed(request, FileAction::Download).await?;
    let file = workspace.file(&grant.path).await.map_err(|error| refused(&error))?;
    let file: Arc<dyn OpenFile> = file.into();
    let size = file.size_bytes();
    if size > grant.bytes_max {
        return Err(refused(&FileError::TooLarge { bytes_max: grant.bytes_max }));
    }
    let (status, from, length) = match range::asked(&request.headers, size) {
        Ranged::Whole => (StatusCode::OK, 0, size),
        Ranged::Part { from, length } => (StatusCode::PARTIAL_CONTENT, from, length),
        Ranged::Unsatisfiable => {
            let mut response = said(StatusCode::RANGE_NOT_SATISFIABLE, "the file does not reach that far");
            put(response.headers_mut(), header::CONTENT_RANGE, &format!("bytes */{size}"));
            return Err(response);
        }
    };
    let body = match request.method == Method::HEAD || length == 0 {
        true => Body::empty(),
        false => sent(Arc::clone(&file), from, length, files.begin()?),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    put(headers, header::CONTENT_TYPE, &content_type(file.media_type()));
    put(headers, header::CONTENT_LENGTH, &length.to_string());
    put(headers, header::CONTENT_DISPOSITION, &disposition::attachment(grant.path.name()));
    put(headers, header::ACCEPT_RANGES, "bytes");
    if status == StatusCode::PARTIAL_CONTENT {
        put(headers, header::CONTENT_RANGE, &format!("bytes {from}-{}/{size}", from + length - 1));
    }
    guarded(headers);
    Ok(bounded(response, credential))
}

/// The body of a download. The task that reads the file does not wait indefinitely for the peer.
fn sent(file: Arc<dyn OpenFile>, from: u64, length: u64, permit: OwnedSemaphorePermit) -> Body {
    let (pieces, waiting) = mpsc::channel::<Result<Bytes, FileError>>(PIECES_MAX);
    tokio::spawn(async move {
        let (mut offset, end) = (from, from + length);
        while offset < end {
            let wanted = usize::try_from(end - offset).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let piece = match file.read(offset, wanted).await {
                // The file is shorter than the announced length. Only an aborted connection tells the peer.
                Ok(part) if part.bytes.is_empty() => Err(FileError::Disturbed),
                Ok(part) => Ok(Bytes::from(part.bytes)),
                Err(error) => Err(error),
            };
            let is_last = piece.is_err();
            offset += piece.as_ref().map_or(0, |piece| piece.len() as u64);
            if pieces.send_timeout(piece, PAUSE_MAX).await.is_err() || is_last {
                break;
            }
        }
        drop(permit);
    });
    Body::from_stream(stream::unfold(waiting, |mut waiting| async move {
        let piece = waiting.recv().await?;
        Some((piece, waiting))
    }))
}

async fn upload(files: &Files, request: &Parts, body: Body) -> Result<Response, Response> {
    let Allowed { grant, workspace, credential } =
        files.allowed(request, FileAction::Upload).await.map_err(closing)?;
    let headers = &request.headers;
    let is_encoded = headers.get(header::CONTENT_ENCODING).is_some_and(|value| value != "identity");
    // The part would be stored as if it were the whole file (RFC 9110, section 14.5).
    if is_encoded || headers.contains_key(header::CONTENT_RANGE) {
        let reason = "send the whole file as it is: no Content-Encoding, no Content-Range";
        return Err(closing(said(StatusCode::BAD_REQUEST, reason)));
    }
    let _permit = files.begin().map_err(closing)?;
    let taking = taken(&grant, &*workspace, body);
    let size = tokio::select! {
        taken = tokio::time::timeout(UPLOAD_MAX, taking) => match taken {
            Ok(taken) => taken.map_err(closing)?,
            Err(_) => return Err(closing(too_slow())),
        },
        // Dropping the upload leaves the file as it was.
        () = credential.ended() => return Err(closing(files.wrong())),
    };
    let said = serde_json::json!({ "path": grant.path.as_str(), "size_bytes": size }).to_string() + "\n";
    let mut response = (StatusCode::CREATED, said).into_response();
    put(response.headers_mut(), header::CONTENT_TYPE, "application/json");
    guarded(response.headers_mut());
    Ok(response)
}

/// Writes the body into the file. The error is the response to a transfer that does not complete.
async fn taken(grant: &Grant, workspace: &dyn Workspace, mut body: Body) -> Result<u64, Response> {
    let announced = hyper::body::Body::size_hint(&body).lower();
    let begun = workspace.upload(&grant.path, grant.bytes_max, Some(announced)).await;
    let mut upload = begun.map_err(|error| refused(&error))?;
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    loop {
        let until = Instant::now() + PAUSE_MAX;
        let next = tokio::time::timeout_at(until, body.frame()).await.map_err(|_| too_slow())?;
        let Some(frame) = next else { break };
        let broken = |_| said(StatusCode::BAD_REQUEST, "the body broke off");
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        piece.extend_from_slice(&data);
        if piece.len() >= PIECE_BYTES {
            let full = std::mem::replace(&mut piece, Vec::with_capacity(PIECE_BYTES));
            upload.write(full).await.map_err(|error| refused(&error))?;
        }
    }
    upload.write(piece).await.map_err(|error| refused(&error))?;
    let written = upload.finish().await.map_err(|error| refused(&error))?;
    Ok(written.size_bytes)
}

/// Lets the tools make file URLs that lead back to this server.
pub(crate) struct FileUrlOffer {
    pub(crate) key: Arc<FileUrlKey>,
    /// The operator's setting; without it, the address that the caller used.
    pub(crate) public_url: Option<String>,
    pub(crate) scheme: &'static str,
}

/// The middleware; the gate has already checked the Host.
pub(crate) async fn offer(
    State(offer): State<Arc<FileUrlOffer>>,
    mut request: Request,
    next: Next,
) -> Response {
    let called = || {
        let named = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
        let authority = request.uri().authority().map(|authority| authority.as_str()).or(named);
        authority.map(|authority| format!("{}://{authority}", offer.scheme))
    };
    if let Some(base) = offer.public_url.clone().or_else(called) {
        let urls = FileUrls::new(SignedFileUrls::new(&offer.key, &base));
        request.extensions_mut().insert(urls);
    }
    next.run(request).await
}

fn refused(error: &FileError) -> Response {
    let status = match error {
        FileError::NotFound => StatusCode::NOT_FOUND,
        FileError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        FileError::DiskFull | FileError::QuotaExceeded { .. } | FileError::StateDiskFull => {
            StatusCode::INSUFFICIENT_STORAGE
        }
        FileError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        FileError::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    };
    said(status, &format!("{}: {error}", error.code()))
}

fn too_slow() -> Response {
    said(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")
}

fn said(status: StatusCode, reason: &str) -> Response {
    let mut response = (status, format!("{reason}\n")).into_response();
    guarded(response.headers_mut());
    response
}

/// The rest of the body stays unread, so the connection cannot be reused.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Prevents a browser from treating any file as a page of this server.
fn guarded(headers: &mut HeaderMap) {
    let fixed = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, SANDBOXED),
        (header::CACHE_CONTROL, "private, no-store"),
        (header::REFERRER_POLICY, REFERRER_POLICY),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn content_type(media_type: &str) -> String {
    match media_type.starts_with("text/") {
        true => format!("{media_type}; charset=utf-8"),
        false => media_type.to_owned(),
    }
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
