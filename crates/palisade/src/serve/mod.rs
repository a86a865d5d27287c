//! `palisade serve`: MCP over HTTP for many callers.
//!
//! ```text
//! connection -> gate (Host, Origin, token -> principal) -> /mcp  -> streamable -> mcp::Server
//!                                                       -> /mcp/ws -> websocket -> mcp::Server
//!                                                       -> /healthz, /readyz, /metrics
//!                       (Host, Origin; a signed link) -> /files -> engine::workspace
//! serving -> signal -> closing (no new requests) -> runs ended -> closed -> exit 0
//! ```
//! Nothing in here knows a tool; nothing in [`crate::mcp`] knows HTTP.

mod body;
pub(crate) mod connection_slots;
mod connections;
pub(crate) mod control;
mod disposition;
mod files;
mod gate;
mod health;
mod keep_alive;
pub(crate) mod listen;
mod meter;
mod metrics;
pub(crate) mod options;
mod range;
mod readiness;
mod sessions;
mod streamable;
mod tls;
mod token;
mod websocket;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::{any, get};
use engine::{Durability, Stop};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::body::BodyBudget;
use self::connection_slots::ConnectionSlots;
use self::connections::Serving;
use self::files::{Files, LinkOffer};
use self::gate::Gate;
use self::listen::{Address, Listener};
use self::metrics::Counters;
use self::options::{Auth, Fixtures, ServeArguments, ServeOptions};
use self::readiness::Readiness;
use self::sessions::Sessions;
use crate::fixtures::Fixtured;
use crate::links::LinkKey;
use crate::log::{self, LogLevel};
use crate::machine::{self, Machine, ServerMode};
use crate::mcp::Server;
use crate::mcp::transport;
use crate::options::Options;
use crate::signals::Signals;

const OWN_FAILURE: u8 = 125;
const BAD_USAGE: u8 = 2;
/// Requests under way may end by themselves for so long once the end has begun.
const GRACE: Duration = Duration::from_secs(10);
/// Then runs are killed and their answers may take this long to get out.
const END_PATIENCE: Duration = Duration::from_secs(3);
const END_STEP: Duration = Duration::from_millis(20);

/// What routes share.
pub(crate) struct App {
    server: Arc<Server>,
    library: streamable::Library,
    sessions: Sessions,
    bodies: BodyBudget,
    readiness: Arc<Readiness>,
    seats: Arc<ConnectionSlots>,
    counters: Arc<Counters>,
    /// WebSockets that are open.
    sockets: AtomicUsize,
    closing: CancellationToken,
    /// There are no runs any more, so that conversations may end.
    runs_over: CancellationToken,
    closed: CancellationToken,
}

pub(crate) fn main(options: &Options, arguments: ServeArguments) -> ExitCode {
    // Files and sockets made from here on are their owner's alone.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let served = machine::with_engine(options, ServerMode::Http, |machine| serve(machine, arguments));
    match served.and_then(|served| served) {
        Ok(()) => ExitCode::SUCCESS,
        // A mistake of whoever configured it, told before any port was opened.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            eprintln!("palisade: {error}");
            ExitCode::from(BAD_USAGE)
        }
        Err(error) => {
            eprintln!("palisade: {error}");
            ExitCode::from(OWN_FAILURE)
        }
    }
}

async fn serve(machine: Machine, arguments: ServeArguments) -> io::Result<()> {
    let options = arguments.effective(&machine.settings)?;
    let mut signals = Signals::new()?;
    let tls = options.tls.as_ref().map(tls::acceptor).transpose()?;
    let token = obtain_token(&machine, options.auth)?;
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for address in &options.addresses {
        let (listener, found) = listen::open(address)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
        listeners.push(listener);
        addresses.push(found);
    }
    listeners.extend(control_socket(&machine).await);
    let (ending, ended) = watch::channel(None);
    let app = App::new(&machine, &options, ended)?;
    let gate = Gate::new(&addresses, &options.hosts, &options.origins, token, Arc::clone(&app.counters));
    let serving = Serving {
        router: router(&app, gate, links(&app, &machine, &options)?),
        tls,
        seats: Arc::clone(&app.seats),
        bodies: app.bodies.clone(),
        counters: Arc::clone(&app.counters),
        closing: app.closing.clone(),
        closed: app.closed.clone(),
    };
    let accept = |listener| tokio::spawn(connections::accept_all(listener, serving.clone()));
    let accepting: Vec<_> = listeners.into_iter().map(accept).collect();
    announce(&addresses, &options);
    signals.next().await;
    end(&app, &ending, &mut signals).await;
    for one in accepting {
        // It ended when the closing began, and took the file of its socket along.
        one.await.ok();
    }
    Ok(())
}

impl App {
    fn new(
        machine: &Machine,
        options: &ServeOptions,
        ended: watch::Receiver<Option<Stop>>,
    ) -> io::Result<Arc<Self>> {
        let server = Arc::new(Server::new(machine.runs(Durability::BeforeReply), ended));
        let longest_run = Duration::from_millis(machine.engine.policy().maxima.wall_ms);
        let sessions = Sessions::new(longest_run);
        let closed = CancellationToken::new();
        let library = match options.fixtures {
            Fixtures::Absent => streamable::library(Arc::clone(&server), &sessions.local, &closed),
            Fixtures::Served => {
                log::line(LogLevel::Warn, "fixtures_served", &[]);
                let fixtured = Arc::new(Fixtured::new(Arc::clone(&server))?);
                streamable::library(fixtured, &sessions.local, &closed)
            }
        };
        Ok(Arc::new(Self {
            library,
            server,
            sessions,
            bodies: BodyBudget::default(),
            readiness: Readiness::new(machine.state_dir.clone()),
            seats: Arc::new(ConnectionSlots::within_descriptors(options.connections_max)),
            counters: Arc::default(),
            sockets: AtomicUsize::new(0),
            closing: CancellationToken::new(),
            runs_over: CancellationToken::new(),
            closed,
        }))
    }
}

/// Links to files: offered to the one side, honoured on the other.
struct Linking {
    offer: Arc<LinkOffer>,
    files: Arc<Files>,
}

fn links(app: &App, machine: &Machine, options: &ServeOptions) -> io::Result<Linking> {
    let workspaces = Arc::clone(app.server.runs().sandboxes());
    let key = Arc::new(LinkKey::obtain(&machine.state_dir)?);
    let files = Files::new(workspaces, Arc::clone(&key), Arc::clone(&app.counters));
    let offer = LinkOffer { key, public_url: options.public_url.clone(), scheme: options.scheme };
    Ok(Linking { offer: Arc::new(offer), files })
}

fn router(app: &Arc<App>, gate: Gate, linking: Linking) -> Router {
    Router::new()
        .route("/mcp", any(streamable::handle))
        .route("/mcp/ws", get(websocket::upgrade))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .with_state(Arc::clone(app))
        .layer(axum::middleware::from_fn_with_state(linking.offer, files::offer))
        .merge(files::routes(linking.files))
        .layer(axum::middleware::from_fn_with_state(Arc::new(gate), gate::pass))
}

/// Nothing where it cannot be had: a server works without one.
async fn control_socket(machine: &Machine) -> Option<Listener> {
    match control::open(&machine.state_dir).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            log::line(LogLevel::Warn, "no_control_socket", &[("reason", json!(error.to_string()))]);
            None
        }
    }
}

fn obtain_token(machine: &Machine, auth: Auth) -> io::Result<Option<token::Token>> {
    if auth == Auth::Nobody {
        return Ok(None);
    }
    let (token, fresh) = token::obtain(&machine.state_dir)?;
    let path = token::path(&machine.state_dir);
    if let Some(fresh) = fresh {
        use std::io::IsTerminal;
        // On a terminal somebody reads it; a log would keep it.
        if std::io::stderr().is_terminal() {
            eprintln!(
                "palisade: a token was made; clients send it as `Authorization: Bearer {}`",
                fresh.text
            );
        }
    }
    eprintln!("palisade: the token is in {}", path.display());
    Ok(Some(token))
}

fn announce(addresses: &[Address], options: &ServeOptions) {
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    for address in addresses {
        let url = match address {
            Address::Tcp(address) => format!("{scheme}://{address}/mcp"),
            Address::Unix(_) => address.to_string(),
        };
        let fields = [("version", json!(env!("CARGO_PKG_VERSION"))), ("url", json!(url))];
        log::line(LogLevel::Info, "listening", &fields);
    }
}

/// Lets requests end, then ends runs, then connections. A second signal skips the waiting.
async fn end(app: &App, ending: &watch::Sender<Option<Stop>>, signals: &mut Signals) {
    log::line(LogLevel::Info, "closing", &[("requests", json!(app.seats.requests()))]);
    app.closing.cancel();
    let grace = async {
        while app.server.runs().live() > 0 {
            tokio::time::sleep(END_STEP).await;
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(GRACE, grace) => {}
        () = signals.next() => {}
    }
    transport::end(ending, Stop::Killed);
    app.server.runs().shutdown(Stop::Killed, END_PATIENCE).await;
    app.runs_over.cancel();
    let answers_out = async {
        while app.seats.requests() > 0 || app.sockets.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(END_STEP).await;
        }
    };
    let is_clean = tokio::time::timeout(END_PATIENCE, answers_out).await.is_ok();
    app.closed.cancel();
    log::line(LogLevel::Info, "stopped", &[("answers_out", json!(is_clean))]);
}
