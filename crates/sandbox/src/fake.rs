//! A backend without isolation, for the engine's tests: the "guest" is a closure on a thread of this process.
//!
//! It keeps the contract (streams, destroy, usage) and enforces nothing. A test chooses which guarantees
//! [`Backend::probe`] claims.

mod workspaces;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::workspace::WorkspaceStore;
use crate::{
    Backend, BackendError, BoxFuture, DiskHeld, Ending, Enforced, Guarantee, Inventory, InventoryError,
    Layer, Limits, Mechanism, Sandbox, SandboxSpec, StartPhases, Toolchain, ToolchainQuery, Usage, Warmable,
};

pub use workspaces::FakeWorkspaces;

type Script = dyn Fn(UnixStream) + Send + Sync;

/// A backend that runs a closure instead of a guest.
#[derive(Clone)]
pub struct FakeBackend {
    name: &'static str,
    is_warmable: bool,
    inventory: FakeInventory,
    script: Arc<Script>,
    claims: Enforced,
    usage: Usage,
    alive: Arc<AtomicUsize>,
    made: Arc<AtomicUsize>,
    is_broken: Arc<AtomicBool>,
    failing_step: Arc<Mutex<Option<&'static str>>>,
    /// When it says that it will be available again.
    away_ms: Arc<Mutex<Option<u64>>>,
    probed: Arc<AtomicUsize>,
    disk_is_fixed: bool,
    workspaces: Option<FakeWorkspaces>,
    taken: Arc<Mutex<Vec<Limits>>>,
    quiesced: Arc<AtomicUsize>,
    can_attach: bool,
    shown: Arc<Mutex<Vec<Layer>>>,
}

impl FakeBackend {
    /// A fake whose guest is `script`; it claims every guarantee.
    pub fn new(script: impl Fn(UnixStream) + Send + Sync + 'static) -> Self {
        let mut claims = Enforced::default();
        for guarantee in Guarantee::ALL {
            claims.keep(guarantee, &[Mechanism::Watchdog]);
        }
        Self {
            name: "fake",
            is_warmable: true,
            inventory: FakeInventory::default(),
            script: Arc::new(script),
            claims,
            usage: Usage::default(),
            alive: Arc::default(),
            made: Arc::default(),
            is_broken: Arc::default(),
            failing_step: Arc::default(),
            away_ms: Arc::default(),
            probed: Arc::default(),
            disk_is_fixed: false,
            workspaces: Some(FakeWorkspaces::default()),
            taken: Arc::default(),
            quiesced: Arc::default(),
            can_attach: true,
            shown: Arc::default(),
        }
    }

    /// The same fake, whose sandboxes keep the layers that they were built with.
    #[must_use]
    pub fn unattachable(mut self) -> Self {
        self.can_attach = false;
        self
    }

    /// The layers that were attached to sandboxes, in order.
    pub fn attached(&self) -> Vec<Layer> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same fake under another name.
    #[must_use]
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// The same fake, whose sandboxes cannot be built ahead of demand.
    #[must_use]
    pub fn unwarmable(mut self) -> Self {
        self.is_warmable = false;
        self
    }

    /// Its languages.
    pub fn languages(&self) -> &FakeInventory {
        &self.inventory
    }

    /// Makes every build and probe answer that the wall is unavailable for that long, or work again.
    pub fn set_away(&self, retry_after_ms: Option<u64>) {
        *self.away_ms.lock().unwrap_or_else(PoisonError::into_inner) = retry_after_ms;
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

    /// The same fake, whose sandboxes cannot change their disk size.
    #[must_use]
    pub fn with_fixed_disk(mut self) -> Self {
        self.disk_is_fixed = true;
        self
    }

    /// The same fake without files that last.
    #[must_use]
    pub fn without_workspaces(mut self) -> Self {
        self.workspaces = None;
        self
    }

    /// The same fake with these files that last, such as those of another fake that stands for another server.
    #[must_use]
    pub fn with_workspaces(mut self, workspaces: FakeWorkspaces) -> Self {
        self.workspaces = Some(workspaces);
        self
    }

    /// Makes every build and probe fail as if a deadline had passed at that step, or work again.
    pub fn set_failing(&self, step: Option<&'static str>) {
        *self.failing_step.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    /// How many times it was probed.
    pub fn probed(&self) -> usize {
        self.probed.load(Ordering::SeqCst)
    }

    /// Whether anything can be built.
    fn works(&self) -> Result<(), BackendError> {
        if self.is_broken.load(Ordering::SeqCst) {
            let what = "switched off in the fake".to_owned();
            return Err(BackendError::Unsupported { what, remedy: "switch it on".to_owned() });
        }
        if let Some(retry_after_ms) = *self.away_ms.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(BackendError::Unavailable { what: "the fake is away".to_owned(), retry_after_ms });
        }
        match *self.failing_step.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(step) => {
                Err(BackendError::Build { step: step.to_owned(), source: ErrorKind::TimedOut.into() })
            }
            None => Ok(()),
        }
    }

    /// Makes every build fail, or work again.
    pub fn set_broken(&self, is_broken: bool) {
        self.is_broken.store(is_broken, Ordering::SeqCst);
    }

    /// How many sandboxes were ever requested.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    /// The limits that sandboxes received after they were built, in order.
    pub fn taken(&self) -> Vec<Limits> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many sandboxes were quiesced before they were destroyed.
    pub fn quiesced(&self) -> usize {
        self.quiesced.load(Ordering::SeqCst)
    }

    /// How many sandboxes exist now.
    pub fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }
}

impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        self.name
    }

    fn inventory(&self) -> &dyn Inventory {
        &self.inventory
    }

    fn is_warmable(&self) -> bool {
        self.is_warmable
    }

    fn probe(&self) -> BoxFuture<'_, Result<Enforced, BackendError>> {
        Box::pin(async {
            self.probed.fetch_add(1, Ordering::SeqCst);
            self.works().map(|()| self.claims.clone())
        })
    }

    fn workspaces(&self) -> Option<&dyn WorkspaceStore> {
        self.workspaces.as_ref().map(|workspaces| workspaces as &dyn WorkspaceStore)
    }

    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Box<dyn Sandbox>, BackendError>> {
        Box::pin(async {
            self.made.fetch_add(1, Ordering::SeqCst);
            self.works()?;
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
                disk_bytes: self.disk_is_fixed.then_some(spec.limits.disk_bytes),
                taken: Arc::clone(&self.taken),
                is_warmable: self.is_warmable,
                has_quiesced: Arc::clone(&self.quiesced),
                attach_points: if self.can_attach { spec.attach_points.clone() } else { Vec::new() },
                shown: Arc::clone(&self.shown),
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
    /// The only disk size that it can have.
    disk_bytes: Option<u64>,
    taken: Arc<Mutex<Vec<Limits>>>,
    is_warmable: bool,
    has_quiesced: Arc<AtomicUsize>,
    attach_points: Vec<PathBuf>,
    shown: Arc<Mutex<Vec<Layer>>>,
}

impl FakeSandbox {
    fn end(&mut self) {
        if let Some(stream) = self.kill.take() {
            // The peer may have closed the stream already, which needs no action.
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

    fn usage(&mut self) -> BoxFuture<'_, Usage> {
        Box::pin(std::future::ready(self.usage))
    }

    fn measure_anew<'a>(&'a mut self, _: &'a Limits, _: Option<DiskHeld>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn look(&mut self) -> BoxFuture<'_, Option<Ending>> {
        Box::pin(std::future::ready(None))
    }

    fn watch(&mut self) -> BoxFuture<'_, Ending> {
        Box::pin(std::future::pending())
    }

    fn attach<'a>(&'a mut self, layer: &'a Layer) -> BoxFuture<'a, Result<(), BackendError>> {
        let attached = if self.attach_points.contains(&layer.target) && self.kill.is_some() {
            self.shown.lock().unwrap_or_else(PoisonError::into_inner).push(layer.clone());
            Ok(())
        } else {
            let what = "it has no such attach point".to_owned();
            Err(BackendError::Unsupported { what, remedy: "build it with one".to_owned() })
        };
        Box::pin(std::future::ready(attached))
    }

    fn destroy(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        self.end();
        Box::pin(async { Ok(self.usage) })
    }

    fn warmable(&mut self) -> Option<&mut dyn Warmable> {
        self.is_warmable.then_some(self)
    }
}

impl Warmable for FakeSandbox {
    fn settle(&mut self) {}

    fn take_limits<'a>(&'a mut self, limits: &'a Limits) -> BoxFuture<'a, Result<(), BackendError>> {
        let taken = if self.kill.is_none() {
            Err(BackendError::Unverified { what: "it was destroyed".to_owned() })
        } else if self.disk_bytes.is_some_and(|bytes| bytes != limits.disk_bytes) {
            Err(BackendError::Unfit { what: "its disk has one size".to_owned() })
        } else {
            self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(limits.clone());
            Ok(())
        };
        Box::pin(std::future::ready(taken))
    }

    fn quiesce(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        self.has_quiesced.fetch_add(1, Ordering::SeqCst);
        self.destroy()
    }
}

impl Drop for FakeSandbox {
    fn drop(&mut self) {
        self.end();
    }
}

/// Languages that a test chooses. It has every language that it was told nothing about.
#[derive(Debug, Clone, Default)]
pub struct FakeInventory {
    known: Arc<Mutex<BTreeMap<String, Result<Toolchain, InventoryError>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeInventory {
    /// Sets the answer for one language.
    pub fn set(&self, language: &str, answer: Result<Toolchain, InventoryError>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(language.to_owned(), answer);
    }

    /// The languages that were looked for, in order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Inventory for FakeInventory {
    fn find<'a>(&'a self, question: &'a ToolchainQuery) -> BoxFuture<'a, Result<Toolchain, InventoryError>> {
        let language = &question.language;
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(language.clone());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(language).cloned();
        let invented = || {
            let executable = format!("/fake/{}", question.commands.first().unwrap_or(language));
            Ok(Toolchain { version: "0".to_owned(), executable, ..Toolchain::default() })
        };
        Box::pin(std::future::ready(known.unwrap_or_else(invented)))
    }

    fn identity<'a>(&'a self, toolchain: &'a Toolchain) -> BoxFuture<'a, Result<String, InventoryError>> {
        let identity = format!("{} {}", toolchain.executable, toolchain.version);
        Box::pin(std::future::ready(Ok(identity)))
    }
}
