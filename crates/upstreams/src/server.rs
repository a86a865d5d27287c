//! One upstream server: started when it is first used, shared by all who use it, stopped when nobody does.
//!
//! ```text
//!  Idle --use--> Starting --listed--> Ready --idle--> Idle
//!                   |                   |
//!                   +----- Failed <-----+ ended by itself      Failed --after a while, use--> Starting
//! ```
//! [`Server::connection`] is the state; only this module changes it. A start belongs to no caller: it goes on when the one who
//! caused it gives up. Every start lists the tools before any call, so that a definition that changed while the server
//! was down is held in time.

mod listed;

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use policy::Principal;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::catalogue::Catalogue;
use crate::catalogue::shelf::{Shelf, Stamp};
use crate::client::era::{self, Era, Hello};
use crate::client::{Answer, Bounds, Connection};
use crate::host::{ServerState, ToolError, ToolErrorCode};
use crate::learning::Lessons;
use crate::redact;
use crate::spec::ServerSpec;
use crate::wall::{Started, Starter};

/// How long a server may take to start and to answer its first question.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// The first and the longest pause after a failure.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A pause up to this length is waited for; a longer one is answered with an error.
const PAUSE_WAITED_MAX: Duration = Duration::from_secs(2);
/// A server that lived so long had no bad start.
const STABLE: Duration = Duration::from_secs(60);
/// How often the file of the catalogue is looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// What this program calls itself as a server.
const OWN_NAME: &str = "palisade";

type Outcome = Result<Arc<Session>, ToolError>;

/// An upstream server.
pub(crate) struct Server {
    pub(crate) spec: ServerSpec,
    /// Whose tokens requests carry, where the server is reached by URL.
    principal: Principal,
    starter: Starter,
    shelf: Shelf,
    /// The name of its catalogue: its own, or one that the principal has.
    key: String,
    known: Mutex<Known>,
    connection: Mutex<ConnectionState>,
    failures: AtomicU32,
    pub(crate) lessons: Mutex<Lessons>,
}

struct Known {
    catalogue: Arc<Catalogue>,
    stamp: Option<Stamp>,
    looked: Instant,
}

enum ConnectionState {
    Idle,
    Starting(watch::Receiver<Option<Outcome>>),
    Ready(Arc<Session>),
    Failed { until: Instant, error: ToolError },
}

/// What a caller does next.
enum Step {
    Ready(Arc<Session>),
    Wait(watch::Receiver<Option<Outcome>>),
    Pause(Instant, ToolError),
}

/// A connection to a running server.
pub(crate) struct Session {
    connection: Connection,
    secrets: Vec<String>,
    era: Era,
    started: Instant,
    used: Mutex<Instant>,
    listed: Mutex<Instant>,
    open: AtomicUsize,
    relisting: tokio::sync::Mutex<()>,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Everything that results must not show.
    fn secrets(&self) -> Vec<String> {
        secrets(&self.connection, &self.secrets)
    }
}

/// Credentials of the start and of this moment, the longest first: one may contain another.
fn secrets(connection: &Connection, of_start: &[String]) -> Vec<String> {
    let mut all: Vec<String> = of_start.iter().cloned().chain(connection.secrets()).collect();
    all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    all
}

/// The error of a catalogue that cannot be read or written.
pub(crate) fn unkept(reason: &dyn std::fmt::Display) -> ToolError {
    ToolError::new(ToolErrorCode::ServerUnavailable, format!("its catalogue cannot be kept: {reason}"))
}

/// Counts an open request.
struct Opened<'a>(&'a Session);

impl<'a> Opened<'a> {
    fn new(session: &'a Session) -> Self {
        session.open.fetch_add(1, Ordering::AcqRel);
        Self(session)
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        *locked(&self.0.used) = Instant::now();
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Server {
    pub(crate) fn new(spec: ServerSpec, principal: Principal, starter: Starter, shelf: Shelf) -> Arc<Self> {
        let key = match spec.has_logins() && !principal.is_owner() {
            true => Shelf::key_of(&spec.name, &principal),
            false => spec.name.clone(),
        };
        let stamp = shelf.stamp(&key);
        let catalogue = Arc::new(shelf.load(&key));
        Arc::new(Self {
            key,
            principal,
            starter,
            shelf,
            known: Mutex::new(Known { catalogue, stamp, looked: Instant::now() }),
            connection: Mutex::new(ConnectionState::Idle),
            failures: AtomicU32::new(0),
            lessons: Mutex::default(),
            spec,
        })
    }

    /// What is known about its tools. Reads the file again if another process has changed it.
    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        let mut known = locked(&self.known);
        if known.looked.elapsed() >= LOOK_PAUSE {
            known.looked = Instant::now();
            let stamp = self.shelf.stamp(&self.key);
            if stamp != known.stamp {
                known.catalogue = Arc::new(self.shelf.load(&self.key));
                known.stamp = stamp;
            }
        }
        Arc::clone(&known.catalogue)
    }

    /// Changes what is known, on the disk too.
    pub(crate) async fn update<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Catalogue) -> T + Send + 'static,
    ) -> Result<T, ToolError> {
        let server = Arc::clone(self);
        let updated = tokio::task::spawn_blocking(move || {
            let (catalogue, told) = server.shelf.update(&server.key, change)?;
            let stamp = server.shelf.stamp(&server.key);
            *locked(&server.known) = Known { catalogue: Arc::new(catalogue), stamp, looked: Instant::now() };
            Ok::<T, std::io::Error>(told)
        });
        updated.await.map_err(|error| unkept(&error))?.map_err(|error| unkept(&error))
    }

    pub(crate) fn state(&self) -> ServerState {
        match &*locked(&self.connection) {
            ConnectionState::Idle => ServerState::Idle,
            ConnectionState::Starting(_) => ServerState::Starting,
            ConnectionState::Ready(session) if session.connection.ended().is_some() => ServerState::Idle,
            ConnectionState::Ready(_) => ServerState::Ready,
            ConnectionState::Failed { error, .. } => ServerState::Failed { reason: error.message.clone() },
        }
    }

    /// A session with a running server whose tools are listed.
    pub(crate) async fn connected(self: &Arc<Self>, bounds: &Bounds) -> Outcome {
        loop {
            let mut starting = match self.step() {
                Step::Ready(session) => return Ok(session),
                Step::Pause(until, error) => {
                    self.pause(until, error, bounds).await?;
                    continue;
                }
                Step::Wait(starting) => starting,
            };
            let started = async {
                let told = starting.wait_for(Option::is_some).await;
                told.ok().and_then(|outcome| outcome.clone())
            };
            return tokio::select! {
                outcome = started => outcome.unwrap_or_else(|| {
                    Err(ToolError::new(ToolErrorCode::ServerUnavailable, "the start of the server was given up"))
                }),
                error = bounds.passed() => Err(error),
            };
        }
    }

    /// Looks at the state, and starts the server if it does not run.
    fn step(self: &Arc<Self>) -> Step {
        let mut connection = locked(&self.connection);
        if let ConnectionState::Ready(session) = &*connection
            && let Some(error) = session.connection.ended()
        {
            *connection = self.failed(error, session.started.elapsed());
        }
        match &*connection {
            ConnectionState::Ready(session) => Step::Ready(Arc::clone(session)),
            ConnectionState::Starting(starting) => Step::Wait(starting.clone()),
            ConnectionState::Failed { until, error } if *until > Instant::now() => {
                Step::Pause(*until, error.clone())
            }
            ConnectionState::Idle | ConnectionState::Failed { .. } => {
                let starting = self.begin();
                *connection = ConnectionState::Starting(starting.clone());
                Step::Wait(starting)
            }
        }
    }

    /// Waits for the end of a short pause.
    async fn pause(&self, until: Instant, error: ToolError, bounds: &Bounds) -> Result<(), ToolError> {
        let left = until.saturating_duration_since(Instant::now());
        if left > PAUSE_WAITED_MAX {
            let seconds = left.as_secs() + 1;
            let message = format!("the server failed, and is tried again in {seconds} s: {}", error.message);
            return Err(ToolError::new(ToolErrorCode::ServerUnavailable, message).with_remedy(error.remedy));
        }
        tokio::select! {
            () = tokio::time::sleep(left) => Ok(()),
            error = bounds.passed() => Err(error),
        }
    }

    /// The state after a failure of a server that lived that long.
    fn failed(&self, error: ToolError, lived: Duration) -> ConnectionState {
        if lived >= STABLE {
            self.failures.store(0, Ordering::Release);
        }
        let failures = self.failures.fetch_add(1, Ordering::AcqRel).min(10);
        let pause = PAUSE_FIRST.saturating_mul(1 << failures).min(PAUSE_MAX);
        tracing::warn!(server = self.spec.name, code = error.code.name(), "upstream_failed");
        ConnectionState::Failed { until: Instant::now() + pause, error }
    }

    /// Starts the server in a task of its own.
    fn begin(self: &Arc<Self>) -> watch::Receiver<Option<Outcome>> {
        let (tell, told) = watch::channel(None);
        let server = Arc::clone(self);
        tokio::spawn(async move {
            let begun = Instant::now();
            let outcome = server.start().await;
            let next = match &outcome {
                Ok(session) => {
                    tokio::spawn(watch_idle(Arc::downgrade(&server), Arc::downgrade(session)));
                    ConnectionState::Ready(Arc::clone(session))
                }
                // The next use tries again: there may be a login by then.
                Err(error) if error.code == ToolErrorCode::LoginRequired => ConnectionState::Idle,
                Err(error) => server.failed(error.clone(), Duration::ZERO),
            };
            *locked(&server.connection) = next;
            tracing::debug!(
                server = server.spec.name,
                is_ready = outcome.is_ok(),
                ms = begun.elapsed().as_millis() as u64,
                "upstream_started"
            );
            tell.send_replace(Some(outcome));
        });
        told
    }

    async fn start(self: &Arc<Self>) -> Outcome {
        let remembered = self.catalogue().header.era;
        let (started, hello) = match self.open(remembered).await {
            // Some servers end when they are asked in a way that they do not know.
            Err(error) if remembered.is_none() && error.code == ToolErrorCode::ServerEnded => {
                self.open(Some(Era::Handshake)).await?
            }
            other => other?,
        };
        let Started { connection, secrets } = started;
        let session = Session {
            connection,
            secrets,
            era: hello.era,
            started: Instant::now(),
            used: Mutex::new(Instant::now()),
            listed: Mutex::new(Instant::now()),
            open: AtomicUsize::new(0),
            relisting: tokio::sync::Mutex::default(),
        };
        let listed = self.list(&session, Some(hello)).await;
        if let Err(error) = listed {
            session.connection.close().await;
            return Err(error);
        }
        self.subscribe(&session).await;
        Ok(Arc::new(session))
    }

    async fn open(&self, era: Option<Era>) -> Result<(Started, Hello), ToolError> {
        let started = self.starter.start(&self.spec, &self.principal).await?;
        // The first start of a package takes the time of its installation, which has bounds of its own.
        let deadline = Instant::now() + START_PATIENCE;
        let hello = era::negotiate(&started.connection, era, deadline).await;
        let secrets = secrets(&started.connection, &started.secrets);
        match hello.map(|hello| hello.cleaned(&secrets)) {
            Ok(hello) if hello.name.eq_ignore_ascii_case(OWN_NAME) => {
                started.connection.close().await;
                Err(ToolError::new(ToolErrorCode::ServerUnavailable, "this server is Palisade itself")
                    .with_remedy("remove it: programs reach its tools through `run` already"))
            }
            Ok(hello) => Ok((started, hello)),
            Err(mut error) => {
                started.connection.close().await;
                error.may_have_run = false;
                Err(redact::error(error, &secrets))
            }
        }
    }

    /// Sends a request. It is sent again only if nothing of it has left: the connection was over already.
    pub(crate) async fn request(
        self: &Arc<Self>,
        method: &str,
        params: Map<String, Value>,
        bounds: &Bounds,
        is_allowed: impl Fn(&Catalogue) -> Result<(), ToolError>,
    ) -> Result<Answer, ToolError> {
        const ATTEMPTS: usize = 2;
        let mut attempt = 1;
        loop {
            let session = self.connected(bounds).await?;
            self.refresh(&session, bounds).await?;
            is_allowed(&self.catalogue())?;
            let opened = Opened::new(&session);
            let outcome = session.connection.request(method, params.clone(), bounds).await;
            drop(opened);
            match outcome {
                Err(error) if error.code == ToolErrorCode::ServerEnded => {
                    // What a server said last may hold its credentials.
                    let error = redact::error(error, &session.secrets());
                    self.drop_session(&session, &error).await;
                    if error.may_have_run || attempt == ATTEMPTS {
                        return Err(error);
                    }
                    attempt += 1;
                }
                Err(error) => return Err(redact::error(error, &session.secrets())),
                Ok(mut answer) => {
                    redact::result(&mut answer.result, &session.secrets());
                    return Ok(answer);
                }
            }
        }
    }

    /// Leaves a session that is over.
    async fn drop_session(&self, session: &Arc<Session>, error: &ToolError) {
        let is_own = {
            let mut connection = locked(&self.connection);
            let is_own = matches!(&*connection, ConnectionState::Ready(known) if Arc::ptr_eq(known, session));
            if is_own {
                // An HTTP session that the server forgot is no failure.
                *connection = match session.connection {
                    Connection::Http(_) => ConnectionState::Idle,
                    Connection::Lines(_) => self.failed(error.clone(), session.started.elapsed()),
                };
            }
            is_own
        };
        if is_own {
            session.connection.close().await;
        }
    }

    /// Stops the server, if it runs.
    pub(crate) async fn stop(&self) {
        let session = {
            let mut connection = locked(&self.connection);
            match std::mem::replace(&mut *connection, ConnectionState::Idle) {
                ConnectionState::Ready(session) => Some(session),
                ConnectionState::Starting(starting) => {
                    *connection = ConnectionState::Starting(starting);
                    None
                }
                _ => None,
            }
        };
        if let Some(session) = session {
            session.connection.close().await;
        }
    }

    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }
}

/// Stops the server when it was not used for as long as the operator says.
async fn watch_idle(server: Weak<Server>, session: Weak<Session>) {
    loop {
        let wait = {
            let (Some(server), Some(session)) = (server.upgrade(), session.upgrade()) else { return };
            let is_over = session.connection.ended().is_some();
            let idle = locked(&session.used).elapsed();
            let is_unused = session.open.load(Ordering::Acquire) == 0 && idle >= server.spec.idle;
            if is_unused && !is_over {
                tracing::info!(server = server.spec.name, "upstream_idle");
                server.stop().await;
            }
            if is_unused || is_over {
                return;
            }
            server.spec.idle.saturating_sub(idle).max(Duration::from_millis(100))
        };
        tokio::time::sleep(wait).await;
    }
}
