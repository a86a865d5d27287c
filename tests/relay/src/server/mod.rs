//! The relay: a process with a spawner, a native wall and a state directory, which does what its client says.
//!
//! The client starts it with [`start`](crate::RelayProcess::start). Its only tie to the client is one byte
//! stream: when the stream ends, the relay destroys everything and ends. When the relay is killed, its spawner
//! and with it every sandbox ends.

mod layers;
mod objects;
mod sandbox;
mod state;
mod workspace;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::sandbox::{Backend, Toolchain};
use backends::host::HostParts;
use backends::native::{NativeBackend, start_spawner};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::watch;

use self::layers::Layers;
use self::objects::{Made, Objects, Thing};
use self::state::StateFolder;
use crate::frame::{Frame, Id, Kind, Unfinished, malformed};
use crate::link::{self, Link};
use crate::protocol::{Call, Json, NoLanguage, WallError};
use crate::pump::Flow;

/// The first argument of a relay.
pub(crate) const ROLE: &str = "be-a-relay";

/// Runs the relay if this process was started as one. Must be called before any thread exists.
pub fn take_role() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != ROLE {
        return None;
    }
    Some(match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    })
}

/// The program of a sandbox once its wall is built.
pub fn become_guest(stream: OwnedFd, consent: OwnedFd) -> i32 {
    guest::run(stream, guest::Gate { socket: consent, accept: jail::accept_consent })
}

fn serve() -> io::Result<()> {
    let spawner = start_spawner(become_guest)?;
    let stream = StdStream::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    // Only one descriptor leads to the client, so that closing it closes the stream.
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    let state = StateFolder::make()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let parts = HostParts {
        state_dir: state.path().to_owned(),
        executable: std::env::current_exe().ok(),
        ..HostParts::default()
    };
    let served = runtime.block_on(async {
        let backend = NativeBackend::new(spawner).with_host(parts);
        Server::new(backend, &state)?.serve(stream).await
    });
    // Ends every sandbox.
    drop(runtime);
    served
}

/// What one client has here.
pub(crate) struct Server {
    backend: NativeBackend,
    layers: Layers,
    objects: Mutex<Objects>,
    flows: Mutex<HashMap<Id, Arc<Flow>>>,
    /// Set when the client broke the protocol in a way that only a task noticed.
    broken: watch::Sender<Option<String>>,
}

impl Server {
    fn new(backend: NativeBackend, state: &StateFolder) -> io::Result<Arc<Self>> {
        let layers = Layers::new(state.path().join("layers"))?;
        let broken = watch::Sender::new(None);
        Ok(Arc::new(Self { backend, layers, objects: Mutex::default(), flows: Mutex::default(), broken }))
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flows(&self) -> MutexGuard<'_, HashMap<Id, Arc<Flow>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: Arc<Self>, stream: StdStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let (reading, writing) = UnixStream::from_std(stream)?.into_split();
        let (link, queued) = Link::new();
        let mut broken = self.broken.subscribe();
        tokio::select! {
            read = self.read(reading, link) => read,
            written = link::write_all(queued, writing, None) => written,
            _ = broken.changed() => Err(io::Error::other(broken.borrow().clone().unwrap_or_default())),
        }
    }

    /// Never waits for anything but the next frame.
    async fn read(self: &Arc<Self>, mut stream: OwnedReadHalf, link: Link) -> io::Result<()> {
        let mut unfinished = Unfinished::default();
        while let Some(frame) = Frame::read(&mut stream).await? {
            let id = frame.id;
            match frame.kind {
                Kind::Part | Kind::Body => {
                    if let Some(body) = unfinished.add(frame)? {
                        let call = postcard::from_bytes(&body).map_err(|_| malformed("an unknown call"))?;
                        self.begin(id, call, &link)?;
                    }
                }
                Kind::Forget => {
                    unfinished.forget(id);
                    // Dropped outside of the lock.
                    let forgotten = self.objects().forget(id);
                    drop(forgotten);
                }
                _ => {
                    let flow = self.flows().get(&id).cloned();
                    flow.map_or(Ok(()), |flow| flow.take(frame))?;
                }
            }
        }
        Ok(())
    }

    /// Gives a call to its sandbox, or to a task.
    fn begin(self: &Arc<Self>, id: Id, call: Call, link: &Link) -> io::Result<()> {
        let mut objects = self.objects();
        if let Call::Sandbox(sandbox, call) = call {
            return objects.order(sandbox, id, call);
        }
        let (server, link) = (Arc::clone(self), link.clone());
        objects.begin(id, async move {
            let (body, made) = match server.answer(id, call, &link).await {
                Ok(answer) => answer,
                Err(error) => return server.broken.send_replace(Some(error.to_string())).map_or((), drop),
            };
            // A client that forgot the call wants no answer, and what was made is dropped.
            let is_wanted = server.objects().finish(id, made);
            if is_wanted {
                link.send_body(id, &body).await.ok();
            }
        })
    }

    async fn answer(self: &Arc<Self>, id: Id, call: Call, link: &Link) -> io::Result<(Vec<u8>, Made)> {
        let nothing = |body: io::Result<Vec<u8>>| body.map(|body| (body, None));
        match call {
            Call::Probe => {
                let probed = self.backend.probe().await;
                nothing(link::encode(&probed.map(|enforced| Json::of(&enforced)).map_err(WallError::from)))
            }
            Call::Create(spec) => self.create(id, *spec, link).await,
            Call::Sandbox(..) => Err(malformed("a call for no sandbox")),
            Call::Find(question) => {
                let found = self.backend.inventory().find(&question).await;
                nothing(link::encode(&found.map(|found| Json::of(&found)).map_err(NoLanguage::from)))
            }
            Call::Identity(toolchain) => {
                let toolchain: Toolchain = toolchain.read()?;
                let told = self.backend.inventory().identity(&toolchain).await;
                nothing(link::encode(&told.map_err(NoLanguage::from)))
            }
            Call::Layer(call) => self.answer_layer(call).await,
            Call::Store(call) => self.answer_store(call).await,
            Call::Workspace(workspace, call) => self.answer_workspace(workspace, call).await,
            Call::FileRead { file, offset, limit } => {
                let file = self.objects().file(file)?;
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                nothing(link::encode(&file.read(offset, limit).await))
            }
            Call::UploadPiece { upload, piece } => {
                let upload = self.objects().upload(upload)?;
                let mut upload = upload.lock().await;
                let upload = upload.as_mut().ok_or_else(|| malformed("a piece after the end"))?;
                nothing(link::encode(&upload.write(piece).await))
            }
            Call::UploadFinish { upload } => {
                let upload = self.objects().upload(upload)?;
                let upload = upload.lock().await.take().ok_or_else(|| malformed("a second end"))?;
                nothing(link::encode(&upload.finish().await))
            }
            Call::Changes { snapshot, pace } => {
                let Some(Thing::Snapshot(snapshot)) = self.objects().take(snapshot) else {
                    return Err(malformed("a call for no snapshot"));
                };
                nothing(link::encode(&snapshot.changes(pace).await))
            }
        }
    }
}
