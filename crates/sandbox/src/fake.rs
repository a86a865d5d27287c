//! A backend without a wall, for the engine's tests: the "guest" is a closure on a thread of this process.
//!
//! It keeps the contract (streams, destroy, usage) and nothing else, and says so in [`Backend::probe`]:
//! a test chooses which guarantees it claims.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{
    Backend, BackendError, BoxFuture, Ending, Enforced, Guarantee, Limits, Mechanism, Sandbox, SandboxSpec,
    StartPhases, Usage,
};

type Script = dyn Fn(UnixStream) + Send + Sync;

/// A backend that runs a closure instead of a guest.
#[derive(Clone)]
pub struct FakeBackend {
    script: Arc<Script>,
    claims: Enforced,
    usage: Usage,
    alive: Arc<AtomicUsize>,
}

impl FakeBackend {
    /// A fake whose guest is `script`; it claims every guarantee.
    pub fn new(script: impl Fn(UnixStream) + Send + Sync + 'static) -> Self {
        let mut claims = Enforced::default();
        for guarantee in Guarantee::ALL {
            claims.keep(guarantee, &[Mechanism::Watchdog]);
        }
        Self { script: Arc::new(script), claims, usage: Usage::default(), alive: Arc::default() }
    }

    /// The same fake without one guarantee.
    #[must_use]
    pub fn lacking(mut self, guarantee: Guarantee) -> Self {
        self.claims.lack(guarantee, "switched off in the fake");
        self
    }

    /// The same fake reporting this usage.
    #[must_use]
    pub fn using(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sandboxes that exist now.
    pub fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }
}

impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn probe(&self) -> BoxFuture<'_, Result<Enforced, BackendError>> {
        Box::pin(async { Ok(self.claims.clone()) })
    }

    fn owner_of(&self, _: u32) -> (u32, u32) {
        (0, 0)
    }

    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Box<dyn Sandbox>, BackendError>> {
        Box::pin(async {
            let at = |step: &'static str| move |source| BackendError::Build { step: step.to_owned(), source };
            let (mut host, inside) = UnixStream::pair().map_err(at("socketpair"))?;
            host.write_all(&spec.opening).map_err(at("opening"))?;
            let keep = host.try_clone().map_err(at("dup"))?;
            let script = Arc::clone(&self.script);
            std::thread::spawn(move || script(inside));
            self.alive.fetch_add(1, Ordering::SeqCst);
            let sandbox = FakeSandbox {
                stream: Some(host),
                kill: Some(keep),
                enforced: self.claims.clone(),
                usage: self.usage,
                phases: StartPhases::default(),
                alive: Arc::clone(&self.alive),
            };
            Ok(Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }
}

struct FakeSandbox {
    stream: Option<UnixStream>,
    kill: Option<UnixStream>,
    enforced: Enforced,
    usage: Usage,
    phases: StartPhases,
    alive: Arc<AtomicUsize>,
}

impl FakeSandbox {
    fn end(&mut self) {
        if let Some(stream) = self.kill.take() {
            // The peer may have closed already: nothing to do about that.
            stream.shutdown(Shutdown::Both).ok();
            self.alive.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Sandbox for FakeSandbox {
    fn enforced(&self) -> &Enforced {
        &self.enforced
    }

    fn phases(&self) -> &StartPhases {
        &self.phases
    }

    fn take_stream(&mut self) -> Option<UnixStream> {
        self.stream.take()
    }

    fn usage(&mut self) -> Usage {
        self.usage
    }

    fn measure_anew<'a>(&'a mut self, _: &'a Limits) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn look(&mut self) -> BoxFuture<'_, Option<Ending>> {
        Box::pin(std::future::ready(None))
    }

    fn watch(&mut self) -> BoxFuture<'_, Ending> {
        Box::pin(std::future::pending())
    }

    fn destroy(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        self.end();
        Box::pin(async { Ok(self.usage) })
    }
}

impl Drop for FakeSandbox {
    fn drop(&mut self) {
        self.end();
    }
}
