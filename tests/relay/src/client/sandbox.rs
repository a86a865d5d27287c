//! One sandbox at the other end of the stream.
//!
//! Its guest's bytes arrive on the connection and are pumped through a socket pair, because the engine expects
//! a socket. Dropping it makes the relay destroy the sandbox.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use ::sandbox::{
    BackendError, BoxFuture, DiskHeld, Ending, Enforced, Layer, Limits, Sandbox, SandboxSpec, StartPhases,
    Usage, Warmable,
};
use serde::de::DeserializeOwned;

use super::connection::{Answer, Connection, Object, decode};
use super::layers;
use crate::link::Lost;
use crate::protocol::{Call, Counted, EndingMessage, Made, SandboxCall, SpecMessage, WallError};
use crate::pump::Flow;

/// A sandbox of the relay.
pub(super) struct RelaySandbox {
    object: Object,
    enforced: Enforced,
    phases: StartPhases,
    /// The guest's bytes, until the stream is taken.
    flow: Option<Arc<Flow>>,
    /// The question about the end that the relay has not answered. A dropped `watch` goes on with it.
    watching: Option<(Object, Answer)>,
    /// The usage, once it can no longer change.
    used: Option<Usage>,
    is_warmable: bool,
}

impl RelaySandbox {
    pub(super) async fn create(
        connection: &Arc<Connection>,
        spec: &SandboxSpec,
        is_warmable: bool,
    ) -> Result<Self, BackendError> {
        let begin = Instant::now();
        let object = connection.next_object();
        let flow = FlowGuard { connection, id: object.id(), flow: connection.begin_flow(object.id()) };
        let call = Call::Create(Box::new(SpecMessage::of(spec)));
        let (object, made): (_, Result<Made, WallError>) = connection.make_as(object, &call).await?;
        let made = made?;
        let enforced = made.enforced().map_err(|_| Lost)?;
        let whole_us = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        let parts_us = vec![("wall", made.build_us), ("relay", whole_us.saturating_sub(made.build_us))];
        Ok(Self {
            object,
            enforced,
            phases: StartPhases { parts_us },
            flow: Some(flow.keep()),
            watching: None,
            used: None,
            is_warmable,
        })
    }

    async fn ask<T: DeserializeOwned>(&self, call: SandboxCall) -> Result<T, Lost> {
        self.object.connection().call(&Call::Sandbox(self.object.id(), call)).await
    }

    /// What the relay says at the end of the sandbox. If the relay is gone, so is the sandbox.
    async fn end(&self, call: SandboxCall) -> Result<Usage, BackendError> {
        let counted: Result<Counted, WallError> = self.ask(call).await?;
        Ok(counted?.into())
    }

    async fn wait_for_end(&mut self) -> Result<Ending, Lost> {
        if self.watching.is_none() {
            let connection = self.object.connection();
            let question = connection.next_object();
            let call = Call::Sandbox(self.object.id(), SandboxCall::Watch);
            let answer = connection.ask(&question, &call).await?;
            self.watching = Some((question, answer));
        }
        let Some((_, answer)) = &mut self.watching else { return Err(Lost) };
        let body = answer.await;
        self.watching = None;
        Ok(decode::<EndingMessage>(&body.map_err(|_| Lost)?)?.into())
    }
}

impl Sandbox for RelaySandbox {
    fn attach<'a>(&'a mut self, layer: &'a Layer) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async move {
            layers::send(self.object.connection(), layer).await?;
            let call = SandboxCall::Attach(layer.digest.clone(), layer.target.clone());
            let attached: Result<(), WallError> = self.ask(call).await?;
            Ok(attached?)
        })
    }

    fn enforced(&self) -> &Enforced {
        &self.enforced
    }

    fn phases(&self) -> &StartPhases {
        &self.phases
    }

    fn take_stream(&mut self) -> Option<UnixStream> {
        let flow = self.flow.take()?;
        let (given, pumped) = UnixStream::pair().ok()?;
        given.set_nonblocking(true).ok()?;
        self.object.connection().carry(self.object.id(), flow, pumped).ok()?;
        Some(given)
    }

    fn measure_anew<'a>(&'a mut self, limits: &'a Limits, held: Option<DiskHeld>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let call = SandboxCall::Measure(limits.clone(), held.map(Into::into));
            // If the relay is gone, the watch says so.
            self.ask::<()>(call).await.ok();
            // An answer from before counts for the measurement before.
            self.watching = None;
        })
    }

    fn usage(&mut self) -> BoxFuture<'_, Usage> {
        Box::pin(async {
            match self.used {
                Some(used) => used,
                None => self
                    .ask::<Counted>(SandboxCall::Usage)
                    .await
                    .map_or_else(|_| Usage::default(), Into::into),
            }
        })
    }

    fn look(&mut self) -> BoxFuture<'_, Option<Ending>> {
        Box::pin(async {
            match self.ask::<Option<EndingMessage>>(SandboxCall::Look).await {
                Ok(found) => found.map(Into::into),
                Err(Lost) => Some(Ending::Gone),
            }
        })
    }

    fn watch(&mut self) -> BoxFuture<'_, Ending> {
        Box::pin(async { self.wait_for_end().await.unwrap_or(Ending::Gone) })
    }

    fn destroy(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        Box::pin(async {
            let used = self.end(SandboxCall::Destroy).await?;
            Ok(*self.used.insert(used))
        })
    }

    fn warmable(&mut self) -> Option<&mut dyn Warmable> {
        if self.is_warmable { Some(self) } else { None }
    }
}

impl Warmable for RelaySandbox {
    fn settle(&mut self) {
        let connection = Arc::clone(self.object.connection());
        let call = Call::Sandbox(self.object.id(), SandboxCall::Settle);
        // It only saves time later.
        tokio::spawn(async move { connection.call::<()>(&call).await.ok() });
    }

    fn take_limits<'a>(&'a mut self, limits: &'a Limits) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async {
            let taken: Result<(), WallError> = self.ask(SandboxCall::TakeLimits(limits.clone())).await?;
            self.watching = None;
            Ok(taken?)
        })
    }

    fn quiesce(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        Box::pin(self.end(SandboxCall::Quiesce))
    }
}

impl Drop for RelaySandbox {
    fn drop(&mut self) {
        if self.flow.is_some() {
            self.object.connection().end_flow(self.object.id());
        }
    }
}

/// Ends a stream whose sandbox did not come.
struct FlowGuard<'a> {
    connection: &'a Arc<Connection>,
    id: crate::frame::Id,
    flow: Arc<Flow>,
}

impl FlowGuard<'_> {
    fn keep(self) -> Arc<Flow> {
        let flow = Arc::clone(&self.flow);
        std::mem::forget(self);
        flow
    }
}

impl Drop for FlowGuard<'_> {
    fn drop(&mut self) {
        self.connection.end_flow(self.id);
    }
}
