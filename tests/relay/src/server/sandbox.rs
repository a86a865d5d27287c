//! One sandbox of the client: a task that owns it and executes its calls in order.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use ::sandbox::{Backend, BackendError, Layer, Sandbox};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::Server;
use super::layers::Kept;
use super::objects::{Made, Order, Thing};
use crate::frame::Id;
use crate::link::{self, Link};
use crate::protocol::{self, Counted, EndingMessage, SandboxCall, SpecMessage, WallError};
use crate::pump::{Flow, Half, pump};

/// How many calls of one sandbox wait.
const ORDERS_MAX: usize = 64;
const RETRY_MS: u64 = 100;

impl Server {
    pub(super) async fn create(
        self: &Arc<Self>,
        id: Id,
        spec: SpecMessage,
        link: &Link,
    ) -> io::Result<(Vec<u8>, Made)> {
        let begin = Instant::now();
        match self.build(id, spec, link).await {
            Ok((sandbox, layers)) => {
                let build_us = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
                let made = protocol::Made::new(sandbox.enforced(), build_us);
                let (orders, ordered) = mpsc::channel(ORDERS_MAX);
                let (server, link) = (Arc::clone(self), link.clone());
                let inhabited = Inhabited { server, sandbox, link, watching: None, layers };
                tokio::spawn(inhabited.live(ordered));
                Ok((link::encode(&Ok::<_, WallError>(made))?, Some(Thing::Sandbox(orders))))
            }
            Err(error) => Ok((link::encode(&Err::<protocol::Made, _>(WallError::from(error)))?, None)),
        }
    }

    async fn build(
        self: &Arc<Self>,
        id: Id,
        spec: SpecMessage,
        link: &Link,
    ) -> Result<(Box<dyn Sandbox>, Vec<Arc<Kept>>), BackendError> {
        let kept: Option<Vec<_>> = spec.layers.iter().map(|(digest, _)| self.layers.find(digest)).collect();
        let kept = kept.ok_or_else(|| BackendError::Unavailable {
            what: "a layer is no longer at the relay".to_owned(),
            retry_after_ms: RETRY_MS,
        })?;
        let spec = spec.into_spec(|digest| self.layers.path(digest));
        let mut sandbox = self.backend.create(&spec).await?;
        if let Some(stream) = sandbox.take_stream() {
            let at = |source| BackendError::Build { step: "stream".to_owned(), source };
            stream.set_nonblocking(true).map_err(at)?;
            let (stream, flow) = (UnixStream::from_std(stream).map_err(at)?, Flow::new());
            self.flows().insert(id, Arc::clone(&flow));
            let (server, link) = (Arc::clone(self), link.clone());
            tokio::spawn(async move {
                pump(Half::Relay, id, stream, flow, link).await;
                server.flows().remove(&id);
            });
        }
        Ok((sandbox, kept))
    }
}

/// A sandbox and whom it answers.
struct Inhabited {
    server: Arc<Server>,
    sandbox: Box<dyn Sandbox>,
    link: Link,
    /// The call that waits for the end.
    watching: Option<Id>,
    /// Its layers stay while it lives.
    layers: Vec<Arc<Kept>>,
}

impl Inhabited {
    /// Executes calls until the client forgets the sandbox.
    async fn live(mut self, mut orders: mpsc::Receiver<Order>) {
        loop {
            let done = tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some((id, call)) => self.execute(id, call).await,
                    None => break,
                },
                ending = self.sandbox.watch(), if self.watching.is_some() => {
                    let id = self.watching.take().unwrap_or_default();
                    link::encode(&EndingMessage::from(ending)).map(|body| Some((id, body)))
                }
            };
            // A client that is gone needs no answer; the stream's reader ends the relay.
            if let Ok(Some((id, body))) = done {
                self.link.send_body(id, &body).await.ok();
            }
        }
        // The backend reports the failure.
        self.sandbox.destroy().await.ok();
    }

    /// The answer to a call, unless it comes later.
    async fn execute(&mut self, id: Id, call: SandboxCall) -> io::Result<Option<(Id, Vec<u8>)>> {
        let sandbox = &mut self.sandbox;
        let not_warmable = || WallError::Unfit { what: "the wall has no spares".to_owned() };
        let body = match call {
            SandboxCall::Measure(limits, held) => {
                self.watching = None;
                sandbox.measure_anew(&limits, held.map(Into::into)).await;
                link::encode(&())
            }
            SandboxCall::Usage => link::encode(&Counted::from(sandbox.usage().await)),
            SandboxCall::Look => link::encode(&sandbox.look().await.map(EndingMessage::from)),
            SandboxCall::Watch => {
                self.watching = Some(id);
                return Ok(None);
            }
            SandboxCall::Settle => {
                if let Some(warmable) = sandbox.warmable() {
                    warmable.settle();
                }
                link::encode(&())
            }
            SandboxCall::TakeLimits(limits) => {
                self.watching = None;
                let taken = match sandbox.warmable() {
                    Some(warmable) => warmable.take_limits(&limits).await.map_err(WallError::from),
                    None => Err(not_warmable()),
                };
                link::encode(&taken)
            }
            SandboxCall::Attach(digest, target) => {
                let kept = self.server.layers.find(&digest);
                let path = self.server.layers.path(&digest);
                let attached = match kept {
                    Some(kept) => {
                        self.layers.push(kept);
                        let layer = Layer { digest, path, target };
                        sandbox.attach(&layer).await.map_err(WallError::from)
                    }
                    None => Err(WallError::Unfit { what: "the layer is not at the relay".to_owned() }),
                };
                link::encode(&attached)
            }
            SandboxCall::Quiesce => {
                let used = match sandbox.warmable() {
                    Some(warmable) => warmable.quiesce().await.map(Counted::from).map_err(WallError::from),
                    None => Err(not_warmable()),
                };
                link::encode(&used)
            }
            SandboxCall::Destroy => {
                link::encode(&sandbox.destroy().await.map(Counted::from).map_err(WallError::from))
            }
        };
        Ok(Some((id, body?)))
    }
}
