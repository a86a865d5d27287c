//! A wall that breaks the contract in one area and keeps the rest, to show that the conformance suite notices.

use std::collections::HashSet;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sandbox::conformance::Area;
use sandbox::workspace::{FileError, Held, NotHeld, Quota, Workspace, WorkspaceRef, WorkspaceStore};
use sandbox::{
    Backend, BackendError, BoxFuture, DiskHeld, Ending, Enforced, FailureCounts, Guarantee, Inventory,
    InventoryError, Layer, Limits, Sandbox, SandboxSpec, StartPhases, Toolchain, ToolchainQuery, Usage,
    Warmable,
};

/// A wall with a fault.
pub struct Broken {
    inner: Arc<dyn Backend>,
    area: Area,
    asked: AtomicU64,
}

impl Broken {
    /// The same wall with a fault in that area.
    pub fn new(inner: Arc<dyn Backend>, area: Area) -> Self {
        Self { inner, area, asked: AtomicU64::new(0) }
    }
}

impl Backend for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn probe(&self) -> BoxFuture<'_, Result<Enforced, BackendError>> {
        self.inner.probe()
    }

    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Box<dyn Sandbox>, BackendError>> {
        Box::pin(async move {
            let mut spec = spec.clone();
            if self.area == Area::Layers {
                spec.layers.clear();
            }
            let mut inner = self.inner.create(&spec).await?;
            let mut enforced = inner.enforced().clone();
            if self.area == Area::Promises {
                enforced.lack(Guarantee::NetworkNone, "broken for a test");
            }
            let mut stream = inner.take_stream();
            if self.area == Area::Links {
                stream = stream.and_then(cut_short);
            }
            Ok(Box::new(BrokenSandbox { inner, area: self.area, enforced, stream, ends: 0 })
                as Box<dyn Sandbox>)
        })
    }

    fn inventory(&self) -> &dyn Inventory {
        self
    }

    fn workspaces(&self) -> Option<&dyn WorkspaceStore> {
        self.inner.workspaces().map(|_| self as &dyn WorkspaceStore)
    }

    fn is_warmable(&self) -> bool {
        self.inner.is_warmable()
    }

    fn failures(&self) -> FailureCounts {
        self.inner.failures()
    }
}

/// Fault: the identity of a toolchain is never the same.
impl Inventory for Broken {
    fn find<'a>(&'a self, question: &'a ToolchainQuery) -> BoxFuture<'a, Result<Toolchain, InventoryError>> {
        self.inner.inventory().find(question)
    }

    fn identity<'a>(&'a self, toolchain: &'a Toolchain) -> BoxFuture<'a, Result<String, InventoryError>> {
        if self.area == Area::Inventory {
            let number = self.asked.fetch_add(1, Ordering::Relaxed);
            return Box::pin(std::future::ready(Ok(number.to_string())));
        }
        self.inner.inventory().identity(toolchain)
    }
}

#[derive(Debug)]
struct NothingHeld;

impl Held for NothingHeld {}

/// Fault: a workspace can be held twice.
impl WorkspaceStore for Broken {
    fn create<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<(), FileError>> {
        Box::pin(async { store(self)?.create(of).await })
    }

    fn open<'a>(
        &'a self,
        of: &'a WorkspaceRef,
        quota: Quota,
    ) -> BoxFuture<'a, Result<Arc<dyn Workspace>, FileError>> {
        Box::pin(async move { store(self)?.open(of, quota).await })
    }

    fn hold<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<Box<dyn Held>, NotHeld>> {
        Box::pin(async {
            let gone = |error: FileError| NotHeld::Broken(error.to_string());
            match store(self).map_err(gone)?.hold(of).await {
                // A wall on another machine learns of a release a moment later, so it may still be held.
                Ok(_) | Err(NotHeld::Elsewhere) if self.area == Area::Workspace => {
                    Ok(Box::new(NothingHeld) as _)
                }
                held => held,
            }
        })
    }

    fn remove<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<(), FileError>> {
        Box::pin(async { store(self)?.remove(of).await })
    }

    fn remove_strangers(&self, known: HashSet<String>) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Ok(store) = store(self) {
                store.remove_strangers(known).await;
            }
        })
    }
}

/// Fault: the stream to the guest ends after a while.
fn cut_short(stream: UnixStream) -> Option<UnixStream> {
    const CARRIED_BYTES: u64 = 600_000;
    let carry = || -> io::Result<UnixStream> {
        let (outer, inner) = UnixStream::pair()?;
        stream.set_nonblocking(false)?;
        let (mut from_guest, mut to_test) = (stream.try_clone()?, inner.try_clone()?);
        std::thread::spawn(move || io::copy(&mut from_guest, &mut to_test));
        std::thread::spawn(move || {
            let mut to_guest = stream;
            io::copy(&mut inner.take(CARRIED_BYTES), &mut to_guest).ok();
            to_guest.shutdown(Shutdown::Both).ok();
        });
        Ok(outer)
    };
    carry().ok()
}

fn store(broken: &Broken) -> Result<&dyn WorkspaceStore, FileError> {
    broken.inner.workspaces().ok_or_else(|| FileError::Failed("no files last here".to_owned()))
}

struct BrokenSandbox {
    inner: Box<dyn Sandbox>,
    area: Area,
    enforced: Enforced,
    stream: Option<UnixStream>,
    ends: u64,
}

impl Sandbox for BrokenSandbox {
    fn enforced(&self) -> &Enforced {
        &self.enforced
    }

    fn phases(&self) -> &StartPhases {
        self.inner.phases()
    }

    /// Fault: the stream is given out again and again.
    fn take_stream(&mut self) -> Option<UnixStream> {
        match self.area {
            Area::Stream => self.stream.as_ref()?.try_clone().ok(),
            _ => self.stream.take(),
        }
    }

    fn measure_anew<'a>(&'a mut self, limits: &'a Limits, held: Option<DiskHeld>) -> BoxFuture<'a, ()> {
        self.inner.measure_anew(limits, held)
    }

    /// Fault: nothing is measured.
    fn usage(&mut self) -> BoxFuture<'_, Usage> {
        match self.area {
            Area::Usage => Box::pin(std::future::ready(Usage::default())),
            _ => self.inner.usage(),
        }
    }

    /// Fault: nothing is found.
    fn look(&mut self) -> BoxFuture<'_, Option<Ending>> {
        match self.area {
            Area::Look => Box::pin(std::future::ready(None)),
            _ => self.inner.look(),
        }
    }

    /// Fault: a limit is reported that was not reached.
    fn watch(&mut self) -> BoxFuture<'_, Ending> {
        match self.area {
            Area::Watch => Box::pin(std::future::ready(Ending::Cpu)),
            _ => self.inner.watch(),
        }
    }

    /// Not a fault where layers are sound: without it the suite would not look at attached ones.
    fn attach<'a>(&'a mut self, layer: &'a Layer) -> BoxFuture<'a, Result<(), BackendError>> {
        self.inner.attach(layer)
    }

    /// Fault: usage goes on changing after the end.
    fn destroy(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        Box::pin(async {
            let mut used = self.inner.destroy().await?;
            if self.area == Area::Ends {
                self.ends += 1;
                used.cpu_us += self.ends;
            }
            Ok(used)
        })
    }

    fn warmable(&mut self) -> Option<&mut dyn Warmable> {
        self.inner.warmable()?;
        Some(self)
    }
}

/// Fault: limits are taken whether the sandbox lives or not.
impl Warmable for BrokenSandbox {
    fn settle(&mut self) {
        if let Some(warmable) = self.inner.warmable() {
            warmable.settle();
        }
    }

    fn take_limits<'a>(&'a mut self, limits: &'a Limits) -> BoxFuture<'a, Result<(), BackendError>> {
        match self.inner.warmable() {
            Some(warmable) if self.area != Area::Lease => warmable.take_limits(limits),
            _ => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn quiesce(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        match self.inner.warmable() {
            Some(warmable) => warmable.quiesce(),
            None => Box::pin(std::future::ready(Ok(Usage::default()))),
        }
    }
}
