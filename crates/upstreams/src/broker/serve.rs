//! One link of a program: reads lines, answers each of them, in any order.
//!
//! A request holds one of the run's places until its answer is written, so a program that does not read its answers
//! stops its own requests and holds a bounded amount of memory.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::links::RunPause;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::call::{CallError, CallTies, Wanted, unknown_tool};
use super::request::{Memory, Request, RequestLine, parse};
use super::session::{Session, Shared, names_of};
use super::shelf::{Document, Shelf, ShelfError};
use super::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, SMALL_REQUEST_BYTES_MAX};
use crate::{FindQuery, ServerInfo, ServerState, Viewer};

const READ_BYTES: usize = 16 << 10;
/// Answers that wait together are written together up to this length.
const BATCH_BYTES: usize = 32 << 10;
/// The answers of one link that wait to be written: as many as calls can be in flight.
const ANSWERS_WAITING_MAX: usize = super::IN_FLIGHT_MAX;
/// How long a link rests before each answer that says that its principal asks too often.
const LIMITED_PAUSE: Duration = Duration::from_millis(20);
/// The code of a shelf without room.
const FULL: &str = "full";
/// The libraries of languages, which their drivers ask for at the first use.
const PYTHON: &str = include_str!("../../../../runtimes/python/tools.py");
const JAVASCRIPT: &str = include_str!("../../../../runtimes/javascript/tools.js");

/// An answer, and the places that its request holds until it is written.
struct Answer {
    line: Vec<u8>,
    _places: Places,
}

/// What a request holds.
struct Places {
    _open: Option<OwnedSemaphorePermit>,
    _large: Option<OwnedSemaphorePermit>,
}

/// The calls of one link that can be cancelled, by the text of their id.
type Calls = Arc<Mutex<HashMap<String, CancellationToken>>>;

/// Serves a link until it ends.
pub(super) async fn serve<S>(session: Arc<Session>, stream: S, pause: Arc<RunPause>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send,
{
    let (reader, mut writer) = tokio::io::split(stream);
    let (answers, mut waiting) = mpsc::channel::<Answer>(ANSWERS_WAITING_MAX);
    // Cancels the calls of this link when this function is left or dropped.
    let ended = CancellationToken::new();
    let _guard = ended.clone().drop_guard();
    let server = LinkServer { session, pause, ended, calls: Calls::default(), answers };
    let write = async {
        while let Some(mut answer) = waiting.recv().await {
            // The places of the answers that go together are held until all of them are written.
            let mut places = Vec::new();
            while answer.line.len() < BATCH_BYTES
                && let Ok(next) = waiting.try_recv()
            {
                answer.line.extend_from_slice(&next.line);
                places.push(next._places);
            }
            writer.write_all(&answer.line).await?;
        }
        writer.shutdown().await
    };
    tokio::try_join!(server.read(reader), write).map(|_| ())
}

/// The reading side of a link.
struct LinkServer {
    session: Arc<Session>,
    pause: Arc<RunPause>,
    ended: CancellationToken,
    calls: Calls,
    answers: mpsc::Sender<Answer>,
}

impl LinkServer {
    async fn read<R: AsyncRead + Unpin>(self, mut reader: R) -> io::Result<()> {
        let (mut line, mut chunk) = (Vec::new(), vec![0; READ_BYTES]);
        let mut large: Option<OwnedSemaphorePermit> = None;
        loop {
            let count = reader.read(&mut chunk).await?;
            if count == 0 {
                // A half line at the end is no request.
                return Ok(());
            }
            let mut rest = &chunk[..count];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                line.extend_from_slice(&rest[..end]);
                rest = &rest[end + 1..];
                let whole = std::mem::take(&mut line);
                if !whole.trim_ascii().is_empty() {
                    self.take(whole, large.take()).await?;
                }
                large = None;
            }
            line.extend_from_slice(rest);
            if line.len() > REQUEST_BYTES_MAX {
                let error = CallError::failed("request_too_large", "a request has at most 4 MB")
                    .remedy("pass less data in one call");
                // The end of this line is not known, so nothing behind it can be read.
                return self.answer(refusal(&Value::Null, &error, None), Places::none()).await;
            }
            if line.len() > SMALL_REQUEST_BYTES_MAX && large.is_none() {
                large = Some(Arc::clone(&self.session.large).acquire_owned().await.map_err(closed)?);
            }
        }
    }

    /// Takes one request. Calls are answered later, everything that changes nothing outside as well.
    async fn take(&self, line: Vec<u8>, large: Option<OwnedSemaphorePermit>) -> io::Result<()> {
        let RequestLine { id, request } = parse(&line);
        drop(line);
        if let Ok(Request::Cancel(of)) = &request {
            let token = self.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&of.to_string());
            token.iter().for_each(CancellationToken::cancel);
            let answer = done(&id, &json!({ "cancelled": token.is_some() }));
            return self.answer(answer, Places::none()).await;
        }
        let open = Arc::clone(&self.session.open).acquire_owned().await.map_err(closed)?;
        let places = Places { _open: Some(open), _large: large };
        if let Err(limited) = self.session.count_request() {
            // A program that asks on and on gets few answers: each one costs time of the server.
            tokio::time::sleep(LIMITED_PAUSE).await;
            return self.answer(refusal(&id, &limited, None), places).await;
        }
        let request = match request {
            Ok(request) => request,
            Err(error) => return self.answer(refusal(&id, &error, None), places).await,
        };
        let token = self.ended.child_token();
        let key = id.to_string();
        if !self.register(&key, &token) {
            let error = CallError::bad("an earlier request with this id has no answer yet");
            return self.answer(refusal(&id, &error, None), places).await;
        }
        let ties = CallTies { cancel: token, pause: Arc::clone(&self.pause) };
        let (session, calls, answers) =
            (Arc::clone(&self.session), Arc::clone(&self.calls), self.answers.clone());
        // A task of its own: a call that was sent is followed to its end, so that it is counted and settled.
        tokio::spawn(async move {
            let (pending, line) = answered(&session, &id, request, &ties).await;
            calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            if answers.send(Answer { line, _places: places }).await.is_ok()
                && let Some(pending) = pending
            {
                pending.answered();
            }
        });
        Ok(())
    }

    /// Remembers a call by its id. Returns whether the id is free.
    fn register(&self, key: &str, token: &CancellationToken) -> bool {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = !calls.contains_key(key);
        if is_free {
            calls.insert(key.to_owned(), token.clone());
        }
        is_free
    }

    async fn answer(&self, line: Vec<u8>, places: Places) -> io::Result<()> {
        let sent = self.answers.send(Answer { line, _places: places }).await;
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Places {
    fn none() -> Self {
        Self { _open: None, _large: None }
    }
}

fn closed(_: tokio::sync::AcquireError) -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// A line with a result.
fn done(id: &Value, result: &Value) -> Vec<u8> {
    // Written as it is: `json!` would copy a large result first.
    let mut line = format!("{{\"id\":{id},\"ok\":").into_bytes();
    if serde_json::to_writer(&mut line, result).is_err() {
        let error = CallError::failed("internal", "the answer cannot be written");
        return refusal(id, &error, None);
    }
    line.extend_from_slice(b"}\n");
    if line.len() > ANSWER_BYTES_MAX {
        let error = CallError::failed("answer_too_large", "the answer has more than 12 MB");
        return refusal(id, &error.remedy("ask for less"), None);
    }
    line
}

/// A line with an error.
fn refusal(id: &Value, error: &CallError, tool: Option<(&str, &str)>) -> Vec<u8> {
    let mut line = json!({ "id": id, "error": error.to_json(tool) }).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// The answer to one request.
async fn answered<'s>(
    session: &'s Session,
    id: &Value,
    request: Request,
    ties: &CallTies,
) -> (Option<super::session::Pending<'s>>, Vec<u8>) {
    let (pending, result, tool) = match request {
        Request::Call { server, tool, arguments, timeout_ms } => {
            let named = (server.clone(), tool.clone());
            let wanted = Wanted { server, tool, arguments, timeout_ms };
            let (pending, called) = session.call(wanted, ties).await;
            (pending, called, Some(named))
        }
        Request::Read { server, uri } => {
            let (pending, read) = session.read((&server, &uri), ties).await;
            (pending, read, Some((server, uri)))
        }
        other => (None, session.answer(other).await, None),
    };
    let named = tool.as_ref().map(|(server, tool)| (server.as_str(), tool.as_str()));
    let line = match result {
        Ok(result) => done(id, &result),
        Err(error) => refusal(id, &error, named),
    };
    (pending, line)
}

impl Session {
    /// Answers what needs no server, or only what is known of one.
    async fn answer(&self, request: Request) -> Result<Value, CallError> {
        let (host, principal) = (&self.shared.host, &self.caller.principal);
        match request {
            Request::Find { words, servers, dialect, limit } => {
                let servers = match servers {
                    None => self.servers().to_vec(),
                    Some(named) => named
                        .iter()
                        .map(|name| self.server(name).map(str::to_owned))
                        .collect::<Result<_, _>>()?,
                };
                let hides = self.hides();
                let viewer = Viewer { principal, is_hidden: hides.as_deref() };
                let query = FindQuery { viewer, words: &words, servers: Some(&servers), dialect, limit };
                let found = host.find(query).await;
                // Why a server failed may be told in its own words.
                if !found.failed.is_empty() {
                    let is_failed =
                        |info: &ServerInfo| found.failed.iter().any(|(name, _)| *name == info.name);
                    self.mark(self.labels_of(is_failed)).await?;
                }
                Ok(serde_json::to_value(found).unwrap_or_default())
            }
            Request::Describe { server, tool } => {
                let server_name = self.server(&server)?;
                let described = match host.describe(principal, server_name, &tool).await {
                    Ok(described) => described,
                    Err(error) => {
                        let name = format!("{server}.{tool}");
                        return Err(self.server_failed((server_name, &name), error).await);
                    }
                };
                let names = names_of(&described.server, &described.tool, &described.alias);
                if self.is_hidden(&names) {
                    return Err(unknown_tool(&format!("{server}.{tool}")));
                }
                Ok(serde_json::to_value(described).unwrap_or_default())
            }
            Request::Servers => {
                let hides = self.hides();
                let known = host.servers(Viewer { principal, is_hidden: hides.as_deref() });
                let granted: Vec<_> =
                    known.iter().filter(|info| self.servers().contains(&info.name)).collect();
                let failed = granted.iter().filter(|info| matches!(info.state, ServerState::Failed { .. }));
                self.mark(failed.flat_map(|info| info.labels.iter().cloned()).collect()).await?;
                Ok(Value::Array(
                    granted.iter().map(|info| serde_json::to_value(info).unwrap_or_default()).collect(),
                ))
            }
            saved @ (Request::Save { .. } | Request::Saved(_)) => self.saved(saved).await,
            Request::Memory(memory) => self.remember(memory).await,
            Request::Left(names) => {
                self.note_left(names);
                Ok(Value::Null)
            }
            Request::Client(language) if language == "python" => Ok(PYTHON.into()),
            Request::Client(language) if language == "javascript" => Ok(JAVASCRIPT.into()),
            Request::Client(_) | Request::Call { .. } | Request::Read { .. } | Request::Cancel(_) => {
                Err(CallError::bad("there is no library for that language"))
            }
        }
    }

    /// Answers what is about saved functions.
    async fn saved(&self, request: Request) -> Result<Value, CallError> {
        let shared = Arc::clone(&self.shared);
        match request {
            Request::Save { name, about, language, source } => {
                let value = json!({ "name": name, "about": about, "language": language, "source": source });
                let document = Document { key: name, value, labels: self.labels() };
                let put = self.on_disk(move |principal| shared.saved.put(principal, &document)).await;
                self.told_by(|shared| &shared.saved, put).await
            }
            Request::Saved(None) => {
                let list = move |principal: &policy::Principal| {
                    Ok((shared.saved.list(principal)?, shared.saved.marks(principal)?))
                };
                let (found, marks) = self.on_disk(list).await?;
                self.mark_all(&found, marks).await?;
                let about = |document: &Document| {
                    let field = |name: &str| document.value.get(name).cloned().unwrap_or_default();
                    json!({ "name": document.key, "about": field("about"), "language": field("language") })
                };
                Ok(Value::Array(found.iter().map(about).collect()))
            }
            Request::Saved(Some(name)) => {
                let get = move |principal: &policy::Principal| {
                    Ok((shared.saved.get(principal, &name)?, shared.saved.marks(principal)?))
                };
                let Some(Document { value, labels, .. }) = self.marked_by(get).await? else {
                    return Err(CallError::failed(
                        "unknown_function",
                        "there is no saved function of that name",
                    ));
                };
                self.mark(labels).await?;
                Ok(value)
            }
            _ => Err(CallError::bad("it is not about saved functions")),
        }
    }

    async fn remember(&self, memory: Memory) -> Result<Value, CallError> {
        let shared = Arc::clone(&self.shared);
        match memory {
            Memory::Get(key) => {
                let get = move |principal: &policy::Principal| {
                    Ok((shared.memory.get(principal, &key)?, shared.memory.marks(principal)?))
                };
                let found = self.marked_by(get).await?;
                let Some(Document { value, labels, .. }) = found else { return Ok(json!({})) };
                self.mark(labels).await?;
                Ok(json!({ "value": value }))
            }
            Memory::Set(key, value) => {
                let document = Document { key, value, labels: self.labels() };
                let put = self.on_disk(move |principal| shared.memory.put(principal, &document)).await;
                self.told_by(|shared| &shared.memory, put).await
            }
            Memory::Delete(key) => {
                let labels = self.labels();
                let removed = self.on_disk(move |principal| {
                    let document = shared.memory.get(principal, &key).ok().flatten();
                    let marks = shared.memory.marks(principal)?;
                    Ok((shared.memory.remove(principal, &key, &labels)?, document, marks))
                });
                let (is_removed, document, marks) = removed.await?;
                self.mark_all(document.as_slice(), marks).await?;
                Ok(Value::Bool(is_removed))
            }
            Memory::List => {
                let list = move |principal: &policy::Principal| {
                    Ok((shared.memory.list(principal)?, shared.memory.marks(principal)?))
                };
                let (found, marks) = self.on_disk(list).await?;
                self.mark_all(&found, marks).await?;
                Ok(found.into_iter().map(|document| document.key).collect::<Vec<_>>().into())
            }
        }
    }

    /// Marks the run with the labels of documents that it is told about: names and descriptions may hold what was read.
    /// Which documents there are says what marked runs did.
    async fn mark_all(&self, documents: &[Document], marks: BTreeSet<String>) -> Result<(), CallError> {
        let of_documents = documents.iter().flat_map(|document| document.labels.iter().cloned());
        self.mark(of_documents.chain(marks).collect()).await
    }

    /// One document, if it is there. That it is not there marks the run with what marked runs did.
    async fn marked_by(
        &self,
        get: impl FnOnce(&policy::Principal) -> Result<(Option<Document>, BTreeSet<String>), ShelfError>
        + Send
        + 'static,
    ) -> Result<Option<Document>, CallError> {
        let (found, marks) = self.on_disk(get).await?;
        if found.is_none() {
            self.mark(marks).await?;
        }
        Ok(found)
    }

    /// The answer to a document that was put. That there is no room marks the run with what marked runs did.
    async fn told_by(
        &self,
        shelf: impl FnOnce(&Shared) -> &Shelf + Send + 'static,
        put: Result<(), CallError>,
    ) -> Result<Value, CallError> {
        if put.as_ref().is_err_and(|error| error.code == FULL) {
            let shared = Arc::clone(&self.shared);
            self.mark(self.on_disk(move |principal| shelf(&shared).marks(principal)).await?).await?;
        }
        put.map(|()| Value::Bool(true))
    }

    /// Works with files, on a thread that may wait for the disk. A run has few such threads: others need them, too.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&policy::Principal) -> Result<T, ShelfError> + Send + 'static,
    ) -> Result<T, CallError> {
        let principal = self.caller.principal.clone();
        let closed = |_| CallError::failed("no_run", "the run has ended");
        let _place = self.disk.acquire().await.map_err(closed)?;
        match tokio::task::spawn_blocking(move || work(&principal)).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => {
                let code = match error {
                    ShelfError::Key => "bad_name",
                    ShelfError::TooLarge => "too_large",
                    ShelfError::Full => FULL,
                    ShelfError::Io(_) => "store_failed",
                };
                Err(CallError::failed(code, error.to_string()))
            }
            Err(_) => Err(CallError::failed("store_failed", "it cannot be read or written")),
        }
    }
}
