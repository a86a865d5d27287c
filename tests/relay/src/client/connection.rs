//! The client's end of the byte stream: calls wait for their answers here, streams for their bytes.
//!
//! When the stream ends, every waiting call fails with [`Lost`], every sandbox's stream is closed, and later
//! calls fail at once. No call waits forever: each one but `Watch` has a time limit.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;

use crate::frame::{Frame, Id, Kind, Unfinished};
use crate::link::{self, Link, Lost, Tap};
use crate::protocol::Call;
use crate::pump::{Flow, Half, pump};

/// How long the relay may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// How many calls are on their way at once, watches not counted.
const CALLS_MAX: usize = 256;

/// The connection of one relay.
pub(crate) struct Connection {
    link: Link,
    waiting: Mutex<Waiting>,
    next: AtomicU64,
    places: Semaphore,
    runtime: Handle,
    /// The tasks that read and write, which end with the connection.
    tasks: Mutex<Vec<AbortHandle>>,
}

/// What answers and streams lead to.
#[derive(Default)]
struct Waiting {
    answers: HashMap<Id, oneshot::Sender<Vec<u8>>>,
    flows: HashMap<Id, Arc<Flow>>,
    is_lost: bool,
}

impl Connection {
    /// Takes over one end of a stream. Must be called inside a runtime.
    pub(crate) fn start(stream: StdStream, tap: Option<Arc<Tap>>) -> io::Result<Arc<Self>> {
        stream.set_nonblocking(true)?;
        let (reading, writing) = UnixStream::from_std(stream)?.into_split();
        let (link, queued) = Link::new();
        let connection = Arc::new(Self {
            link,
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            places: Semaphore::new(CALLS_MAX),
            runtime: Handle::current(),
            tasks: Mutex::default(),
        });
        let (reader, writers_tap) = (Arc::clone(&connection), tap.clone());
        let read = async move {
            // Whatever ended it, what waits is told the same.
            reader.read(reading, tap.as_deref()).await.ok();
            reader.lose();
        };
        let write = async move {
            link::write_all(queued, writing, writers_tap.as_deref()).await.ok();
        };
        let reading = tokio::spawn(read);
        // A stream that cannot be written is lost even if the relay does not close it.
        let (both, reader) = (Arc::clone(&connection), reading.abort_handle());
        let writing = tokio::spawn(async move {
            write.await;
            reading.abort();
            both.lose();
        });
        *connection.tasks.lock().unwrap_or_else(PoisonError::into_inner) =
            vec![reader, writing.abort_handle()];
        Ok(connection)
    }

    /// Closes the stream, which ends the relay.
    pub(crate) fn close(&self) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|task| task.abort());
        self.lose();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(&self, mut stream: OwnedReadHalf, tap: Option<&Tap>) -> io::Result<()> {
        let mut unfinished = Unfinished::default();
        while let Some(frame) = Frame::read(&mut stream).await? {
            if let Some(tap) = tap {
                tap.see(&frame.payload);
            }
            match frame.kind {
                Kind::Part | Kind::Body => {
                    let id = frame.id;
                    if let Some(body) = unfinished.add(frame)?
                        && let Some(waiter) = self.lock().answers.remove(&id)
                    {
                        // A caller that went away meanwhile needs no answer.
                        waiter.send(body).ok();
                    }
                }
                _ => {
                    let flow = self.lock().flows.get(&frame.id).cloned();
                    flow.map_or(Ok(()), |flow| flow.take(frame))?;
                }
            }
        }
        Ok(())
    }

    fn lose(&self) {
        let mut waiting = self.lock();
        waiting.is_lost = true;
        waiting.answers.clear();
        waiting.flows.drain().for_each(|(_, flow)| flow.reset());
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn call<T: DeserializeOwned>(self: &Arc<Self>, call: &Call) -> Result<T, Lost> {
        let asked = self.make(call).await?;
        asked.0.keep();
        Ok(asked.1)
    }

    /// Asks for something that stays at the relay until the [`Object`] is dropped.
    pub(crate) async fn make<T: DeserializeOwned>(
        self: &Arc<Self>,
        call: &Call,
    ) -> Result<(Object, T), Lost> {
        self.make_as(self.next_object(), call).await
    }

    /// The same with an id that was chosen before.
    pub(crate) async fn make_as<T: DeserializeOwned>(
        self: &Arc<Self>,
        object: Object,
        call: &Call,
    ) -> Result<(Object, T), Lost> {
        let _place = self.places.acquire().await.map_err(|_| Lost)?;
        let asked = async {
            let answer = self.ask(&object, call).await?;
            answer.await.map_err(|_| Lost)
        };
        let body = tokio::time::timeout(ANSWER_PATIENCE, asked).await.map_err(|_| Lost)??;
        Ok((object, decode(&body)?))
    }

    /// Asks, and returns at once what the answer will come by.
    pub(crate) async fn ask(&self, object: &Object, call: &Call) -> Result<Answer, Lost> {
        let body = link::encode(call).map_err(|_| Lost)?;
        let (told, answer) = oneshot::channel();
        {
            let mut waiting = self.lock();
            if waiting.is_lost {
                return Err(Lost);
            }
            waiting.answers.insert(object.id, told);
        }
        self.link.send_body(object.id, &body).await?;
        Ok(answer)
    }

    /// An id for the next object. Dropping it without a call tells the relay nothing it minds.
    pub(crate) fn next_object(self: &Arc<Self>) -> Object {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        Object { connection: Arc::clone(self), id, is_kept: false }
    }

    /// Announces a stream, before the sandbox exists that it belongs to.
    pub(crate) fn begin_flow(&self, id: Id) -> Arc<Flow> {
        let flow = Flow::new();
        let mut waiting = self.lock();
        if waiting.is_lost {
            flow.reset();
        } else {
            waiting.flows.insert(id, Arc::clone(&flow));
        }
        flow
    }

    /// Nothing reads the stream any more.
    pub(crate) fn end_flow(&self, id: Id) {
        self.lock().flows.remove(&id);
    }

    /// Carries the stream to and from `socket` in the background.
    pub(crate) fn carry(self: &Arc<Self>, id: Id, flow: Arc<Flow>, socket: StdStream) -> io::Result<()> {
        let _inside = self.runtime.enter();
        socket.set_nonblocking(true)?;
        let socket = UnixStream::from_std(socket)?;
        let connection = Arc::clone(self);
        self.runtime.spawn(async move {
            pump(Half::Client, id, socket, flow, connection.link.clone()).await;
            connection.end_flow(id);
        });
        Ok(())
    }

    fn forget(self: &Arc<Self>, id: Id) {
        self.lock().answers.remove(&id);
        let link = self.link.clone();
        // If the relay is gone, it has forgotten everything.
        self.runtime.spawn(async move { link.send(Frame::bare(Kind::Forget, id)).await.ok() });
    }
}

/// What an answer comes by.
pub(crate) type Answer = oneshot::Receiver<Vec<u8>>;

/// Reads an answer.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Lost> {
    // An answer of another form is a relay of another version, with which nothing works.
    postcard::from_bytes(body).map_err(|_| Lost)
}

/// An object at the relay, or a call that has no answer yet. Dropping it ends the object or the call.
pub(crate) struct Object {
    connection: Arc<Connection>,
    id: Id,
    is_kept: bool,
}

impl Object {
    pub(crate) fn id(&self) -> Id {
        self.id
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// The call was answered and made nothing.
    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object({})", self.id)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if !self.is_kept {
            self.connection.forget(self.id);
        }
    }
}
