//! The client half of the relay: a wall like any other for the engine, with nothing of the wall in it.
//!
//! [`RelayBackend`] has one byte stream. It keeps no path and no file descriptor of the relay's machine, and
//! sends none of its own.

mod connection;
mod inventory;
mod layers;
mod sandbox;
mod workspace;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use ::sandbox::workspace::{FileError, WorkspaceStore};
use ::sandbox::{Backend, BackendError, BoxFuture, Enforced, Inventory, Sandbox, SandboxSpec};

use self::connection::Connection;
use self::inventory::RelayInventory;
use self::sandbox::RelaySandbox;
use self::workspace::RelayStore;
use crate::link::{Lost, Tap};
use crate::protocol::{Call, Json, WallError};

/// When a caller may try again after the relay was lost.
const RETRY_MS: u64 = 1000;

/// A wall behind a byte stream.
pub struct RelayBackend {
    connection: Arc<Connection>,
    inventory: RelayInventory,
    store: RelayStore,
    is_warmable: bool,
}

impl RelayBackend {
    /// A wall at the other end of `stream`. Must be called inside a runtime.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        Self::tapped(stream, None)
    }

    /// The same wall, with a look at every byte that passes.
    pub fn tapped(stream: UnixStream, tap: Option<Arc<Tap>>) -> io::Result<Self> {
        let connection = Connection::start(stream, tap)?;
        let inventory = RelayInventory::new(&connection);
        let store = RelayStore::new(&connection);
        Ok(Self { connection, inventory, store, is_warmable: false })
    }

    /// The same wall with spares. The core of the contract is enough for a wall, so spares are off by default.
    #[must_use]
    pub fn warmable(mut self) -> Self {
        self.is_warmable = true;
        self
    }
}

impl Backend for RelayBackend {
    fn name(&self) -> &'static str {
        "relay"
    }

    fn probe(&self) -> BoxFuture<'_, Result<Enforced, BackendError>> {
        Box::pin(async {
            let told: Result<Json, WallError> = self.connection.call(&Call::Probe).await?;
            told?.read().map_err(|_| Lost.into())
        })
    }

    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Box<dyn Sandbox>, BackendError>> {
        Box::pin(async move {
            for layer in &spec.layers {
                layers::send(&self.connection, layer).await?;
            }
            let sandbox = RelaySandbox::create(&self.connection, spec, self.is_warmable).await?;
            Ok(Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }

    fn inventory(&self) -> &dyn Inventory {
        &self.inventory
    }

    fn workspaces(&self) -> Option<&dyn WorkspaceStore> {
        Some(&self.store)
    }

    fn is_warmable(&self) -> bool {
        self.is_warmable
    }
}

impl Drop for RelayBackend {
    fn drop(&mut self) {
        self.connection.close();
    }
}

impl From<Lost> for BackendError {
    fn from(_: Lost) -> Self {
        let what = "the connection to the relay is lost".to_owned();
        Self::Unavailable { what, retry_after_ms: RETRY_MS }
    }
}

impl From<Lost> for FileError {
    fn from(_: Lost) -> Self {
        Self::Unavailable { retry_after_ms: RETRY_MS }
    }
}
