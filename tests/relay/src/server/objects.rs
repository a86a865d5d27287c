//! What the client has here: objects by id, and calls that are being executed.
//!
//! An object has the id of the call that made it. `Forget` aborts the call or drops the object, whichever the
//! id is at that moment.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use ::sandbox::workspace::{Held, OpenFile, Snapshot, Upload, Workspace};
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;

use super::layers::Arriving;
use crate::frame::{Id, malformed};
use crate::protocol::SandboxCall;

/// How many objects, and how many calls at once, a client may have.
const OBJECTS_MAX: usize = 4096;
const CALLS_MAX: usize = 1024;

/// What a call made, if it made something.
pub(super) type Made = Option<Thing>;
/// A call for a sandbox, with its id.
pub(super) type Order = (Id, SandboxCall);

/// An upload, until it is finished.
pub(super) type SharedUpload = Arc<Mutex<Option<Box<dyn Upload>>>>;

/// An object of the client.
pub(super) enum Thing {
    /// A sandbox takes its calls in order. It is destroyed when this is dropped.
    Sandbox(mpsc::Sender<Order>),
    Workspace(Arc<dyn Workspace>),
    File(Arc<dyn OpenFile>),
    Upload(SharedUpload),
    Snapshot(Box<dyn Snapshot>),
    Held(#[expect(dead_code, reason = "held until it is dropped")] Box<dyn Held>),
    Layer(Arc<Mutex<Arriving>>),
}

/// Everything by its id.
#[derive(Default)]
pub(super) struct Objects {
    things: HashMap<Id, Thing>,
    calls: HashMap<Id, AbortHandle>,
}

impl Objects {
    /// Starts a call.
    pub(super) fn begin(
        &mut self,
        id: Id,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let is_new = !self.calls.contains_key(&id) && !self.things.contains_key(&id);
        if !is_new || self.calls.len() >= CALLS_MAX || self.things.len() >= OBJECTS_MAX {
            return Err(malformed("more calls or objects than it may"));
        }
        self.calls.insert(id, tokio::spawn(work).abort_handle());
        Ok(())
    }

    /// Ends a call and keeps what it made. `false` if the client has forgotten it.
    pub(super) fn finish(&mut self, id: Id, made: Made) -> bool {
        let is_wanted = self.calls.remove(&id).is_some();
        if let (true, Some(thing)) = (is_wanted, made) {
            self.things.insert(id, thing);
        }
        is_wanted
    }

    /// Ends a call, or returns the object for the caller to drop.
    pub(super) fn forget(&mut self, id: Id) -> Made {
        if let Some(call) = self.calls.remove(&id) {
            call.abort();
        }
        self.things.remove(&id)
    }

    /// Removes an object.
    pub(super) fn take(&mut self, id: Id) -> Made {
        self.things.remove(&id)
    }

    /// Passes a call on to its sandbox.
    pub(super) fn order(&self, sandbox: Id, id: Id, call: SandboxCall) -> io::Result<()> {
        match self.things.get(&sandbox) {
            Some(Thing::Sandbox(orders)) => {
                orders.try_send((id, call)).map_err(|_| malformed("more calls for a sandbox than it may"))
            }
            // The client forgot it meanwhile.
            None => Ok(()),
            Some(_) => Err(malformed("a call for no sandbox")),
        }
    }

    pub(super) fn workspace(&self, id: Id) -> io::Result<Arc<dyn Workspace>> {
        match self.things.get(&id) {
            Some(Thing::Workspace(workspace)) => Ok(Arc::clone(workspace)),
            _ => Err(malformed("a call for no workspace")),
        }
    }

    pub(super) fn file(&self, id: Id) -> io::Result<Arc<dyn OpenFile>> {
        match self.things.get(&id) {
            Some(Thing::File(file)) => Ok(Arc::clone(file)),
            _ => Err(malformed("a call for no file")),
        }
    }

    pub(super) fn upload(&self, id: Id) -> io::Result<SharedUpload> {
        match self.things.get(&id) {
            Some(Thing::Upload(upload)) => Ok(Arc::clone(upload)),
            _ => Err(malformed("a call for no upload")),
        }
    }

    pub(super) fn layer(&self, id: Id) -> io::Result<Arc<Mutex<Arriving>>> {
        match self.things.get(&id) {
            Some(Thing::Layer(layer)) => Ok(Arc::clone(layer)),
            _ => Err(malformed("a call for no layer")),
        }
    }
}
