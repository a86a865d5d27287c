//! `palisade serve`: MCP over HTTP for many callers.
//!
//! ```text
//! connection -> gate (Host, Origin, token -> principal) -> /mcp  -> streamable -> mcp::Server
//!                                                       -> /mcp/ws -> websocket -> mcp::Server
//!                                                       -> /attach (control socket only) -> mcp::Server
//!                                                       -> /admin/v1 -> engine::admin (see [`admin`])
//!                                                       -> /healthz, /readyz, /metrics
//!                        (Host, Origin; a signed URL) -> /files -> engine::workspace
//! serving -> SIGHUP -> files read again (see [`reload`]) -> serving
//!         -> signal -> closing (no new requests) -> runs ended -> closed -> exit 0
//! ```
//! This crate does not know any tool, and `mcp` does not know HTTP.

mod admin;
pub mod attach;
mod body;
mod callers;
mod connection_slots;
mod connections;
mod control;
mod cors;
mod disposition;
mod file_urls;
mod files;
mod gate;
mod health;
#[cfg(any(test, fuzzing))]
pub mod hostile;
mod keep_alive;
mod listen;
mod meter;
mod metrics;
mod negotiate;
mod oauth;
mod options;
mod proxies;
mod range;
mod readiness;
mod reload;
mod secret_file;
mod sessions;
mod streamable;
#[cfg(test)]
#[path = "../../mcp/src/test_workspaces.rs"]
mod test_workspaces;
mod tls;
mod token;
mod unread;
mod websocket;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::{any, get, post};
use engine::{Runs, SecretsBefore, Stop};
use mcp::{Server, ServerSignal, Signals, transport};
use rmcp::ServerHandler;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::admin::Admin;
use self::body::BodyBudget;
use self::callers::{Callers, OnEnd, Telling};
use self::connection_slots::ConnectionSlots;
use self::connections::Serving;
use self::file_urls::FileUrlKey;
use self::files::{FileUrlOffer, Files};
use self::gate::Gate;
use self::listen::Listener;
use self::metrics::Counters;
use self::oauth::Oauth;
use self::readiness::Readiness;
use self::reload::Reloads;
use self::sessions::Sessions;
use self::tls::Tls;

pub use self::admin::take_openapi_role;
pub use self::connection_slots::SLOTS_MAX;
pub use self::control::path as control_socket_path;
pub use self::listen::{Address, DEFAULT_ADDRESS};
pub use self::oauth::{Issuer, OauthOptions, Resource};
pub use self::options::{Auth, ServeOptions, TlsFiles};
pub use self::proxies::ProxyAddress;

/// Time for requests in progress to end by themselves once the shutdown has begun.
const GRACE: Duration = Duration::from_secs(10);
/// Time for answers to be written after the remaining runs were killed.
const END_PATIENCE: Duration = Duration::from_secs(3);
const END_STEP: Duration = Duration::from_millis(20);

/// State that the routes share.
pub(crate) struct App {
    server: Arc<Server>,
    library: streamable::Library,
    sessions: Sessions,
    bodies: BodyBudget,
    readiness: Arc<Readiness>,
    slots: Arc<ConnectionSlots>,
    counters: Arc<Counters>,
    /// Number of open WebSockets.
    sockets: AtomicUsize,
    closing: CancellationToken,
    /// Cancelled when no run is left, so that WebSockets may end.
    runs_over: CancellationToken,
    closed: CancellationToken,
}

/// Serves these runs until a signal asks for the end. `handler` may wrap the server before it is published;
/// the product passes it on unchanged.
pub async fn serve<H: ServerHandler>(
    runs: Arc<Runs>,
    state_dir: &Path,
    options: &ServeOptions,
    handler: impl FnOnce(Arc<Server>) -> io::Result<Arc<H>>,
) -> io::Result<()> {
    let mut signals = Signals::new(reload::on_hangup())?;
    let tls = options.tls.as_ref().map(Tls::read).transpose()?.map(Arc::new);
    let token = obtain_token(state_dir, options.auth)?;
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for address in &options.addresses {
        let (listener, found) = listen::open(address, &options.proxies)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
        listeners.push(listener);
        addresses.push(found);
    }
    listeners.extend(control_socket(state_dir).await);
    let (ending, ended) = watch::channel(None);
    let app = App::new(runs, state_dir, (options, ended), handler)?;
    let oauth = options.oauth.as_ref().map(Oauth::start).transpose()?;
    let metadata = oauth.as_ref().map(oauth::routes).unwrap_or_default();
    let further = metadata.merge(admin::routes(Admin::new(app.server.runs(), state_dir)));
    let asks = options.auth == Auth::Token;
    let callers = Callers::new(state_dir, token, asks, oauth, ending_principals(&app));
    tokio::spawn(Callers::watch(Arc::downgrade(&callers)));
    let urls = FileUrlRoutes::new(&app, &callers, state_dir, options)?;
    let reloads = Reloads {
        tls: tls.clone(),
        callers: Arc::clone(&callers),
        file_url_key: Arc::clone(&urls.offer.key),
    };
    let counters = Arc::clone(&app.counters);
    let gate = Gate::new(&addresses, &options.hosts, &options.origins, Arc::clone(&callers), counters);
    let serving = Serving {
        router: router(&app, gate, urls, further),
        tls,
        slots: Arc::clone(&app.slots),
        bodies: app.bodies.clone(),
        counters: Arc::clone(&app.counters),
        closing: app.closing.clone(),
        closed: app.closed.clone(),
    };
    tokio::spawn(expire_sessions(Arc::downgrade(&app)));
    let accept = |listener| tokio::spawn(connections::accept_all(listener, serving.clone()));
    let accepting: Vec<_> = listeners.into_iter().map(accept).collect();
    announce(&addresses, options);
    while signals.next().await == ServerSignal::Reload {
        reloads.reload(state_dir);
        app.server.runs().engine().gatekeeper().want_reload();
    }
    end(&app, &ending, &mut signals).await;
    callers.note_used();
    for one in accepting {
        // Each task ended when the closing began, and removed its socket file.
        one.await.ok();
    }
    Ok(())
}

impl App {
    fn new<H: ServerHandler>(
        runs: Arc<Runs>,
        state_dir: &Path,
        (options, ended): (&ServeOptions, watch::Receiver<Option<Stop>>),
        handler: impl FnOnce(Arc<Server>) -> io::Result<Arc<H>>,
    ) -> io::Result<Arc<Self>> {
        let longest_run = Duration::from_millis(runs.engine().policy().maxima.wall_ms);
        let server = Arc::new(Server::new(runs, ended));
        let sessions = Sessions::new(longest_run);
        let closed = CancellationToken::new();
        let library = streamable::library(handler(Arc::clone(&server))?, &sessions.local, &closed);
        Ok(Arc::new(Self {
            library,
            server,
            sessions,
            bodies: BodyBudget::default(),
            readiness: Readiness::new(state_dir.to_owned()),
            slots: Arc::new(ConnectionSlots::within_descriptors(options.connections_max)),
            counters: Arc::default(),
            sockets: AtomicUsize::new(0),
            closing: CancellationToken::new(),
            runs_over: CancellationToken::new(),
            closed,
        }))
    }
}

/// Ends the runs, the open approvals and the sessions of a principal whose credential has ended. Its sandboxes stay for the operator, asleep.
fn ending_principals(app: &Arc<App>) -> OnEnd {
    let app = Arc::downgrade(app);
    Box::new(move |principal, secrets, telling| {
        let Some(app) = app.upgrade() else { return };
        app.server.runs().cancel_of(principal, secrets);
        let principal = principal.clone();
        tokio::spawn(async move {
            app.sessions.close_of(&principal, secrets).await;
            // The holder of a new secret uses the sandboxes again.
            if secrets != SecretsBefore::ALL && telling == Telling::Again {
                return;
            }
            let approvals = app.server.runs().engine().gatekeeper().approvals();
            if let Err(error) = approvals.void_of(&principal).await {
                tracing::warn!(reason = %error, "approvals_not_voided");
            }
            // A program may have left processes behind in a sandbox.
            app.server.runs().sandboxes().sleep_of(&principal).await;
        });
    })
}

/// Closes idle sessions while the server lives.
async fn expire_sessions(app: Weak<App>) {
    loop {
        tokio::time::sleep(sessions::UPKEEP_PAUSE).await;
        let Some(app) = app.upgrade() else { return };
        app.sessions.expire(Instant::now()).await;
    }
}

/// File URLs: the offer to callers, and the routes that serve them.
struct FileUrlRoutes {
    offer: Arc<FileUrlOffer>,
    files: Arc<Files>,
}

impl FileUrlRoutes {
    fn new(app: &App, callers: &Arc<Callers>, state_dir: &Path, options: &ServeOptions) -> io::Result<Self> {
        let workspaces = Arc::clone(app.server.runs().sandboxes());
        let key = Arc::new(FileUrlKey::obtain(state_dir)?);
        let engine = Arc::clone(app.server.runs().engine());
        let may_use: files::UrlJudge = Box::new(move |caller, grant| {
            let file = (grant.sandbox_id.as_str(), &grant.path);
            mcp::may_use_url(engine.gatekeeper(), caller, grant.action, file)
        });
        let (callers, counters) = (Arc::clone(callers), Arc::clone(&app.counters));
        let files = Files::new(workspaces, Arc::clone(&key), callers, counters, may_use);
        let offer = FileUrlOffer { key, public_url: options.public_url.clone(), scheme: options.scheme };
        Ok(Self { offer: Arc::new(offer), files })
    }
}

/// `further` are routes with another state: of the admin API, and of a server with OAuth issuers.
fn router(app: &Arc<App>, gate: Gate, urls: FileUrlRoutes, further: Router) -> Router {
    Router::new()
        .route("/mcp", any(streamable::handle))
        .route(websocket::PATH, get(websocket::upgrade))
        .route(attach::PATH, post(attach::upgrade))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .with_state(Arc::clone(app))
        .layer(axum::middleware::from_fn_with_state(urls.offer, files::offer))
        .merge(files::routes(urls.files))
        .merge(further)
        .layer(axum::middleware::from_fn_with_state(Arc::new(gate), gate::pass))
}

/// Returns `None` if the socket cannot be opened, because a server works without it.
async fn control_socket(state_dir: &Path) -> Option<Listener> {
    match control::open(state_dir).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::warn!(reason = %error, "no_control_socket");
            None
        }
    }
}

fn obtain_token(state_dir: &Path, auth: Auth) -> io::Result<Option<token::Token>> {
    if auth == Auth::Nobody {
        // The token of earlier starts still counts for a client that shows it; none is made.
        let is_there = token::path(state_dir).try_exists().unwrap_or(false);
        return Ok(is_there.then(|| token::obtain(state_dir).ok()).flatten().map(|(token, _)| token));
    }
    let (token, fresh) = token::obtain(state_dir)?;
    let path = token::path(state_dir);
    if let Some(fresh) = fresh {
        use std::io::IsTerminal;
        // A person reads the token on a terminal; a log would store it.
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
        tracing::info!(version = env!("CARGO_PKG_VERSION"), url, "listening");
    }
}

/// Lets requests end, then ends runs, then connections. A second signal skips the waiting.
async fn end(app: &App, ending: &watch::Sender<Option<Stop>>, signals: &mut Signals) {
    tracing::info!(requests = app.slots.requests(), "closing");
    app.closing.cancel();
    let grace = async {
        while app.server.runs().live() > 0 {
            tokio::time::sleep(END_STEP).await;
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(GRACE, grace) => {}
        () = signals.end() => {}
    }
    transport::end(ending, Stop::Killed);
    app.server.runs().shutdown(Stop::Killed, END_PATIENCE).await;
    app.runs_over.cancel();
    let answers_out = async {
        while app.slots.requests() > 0 || app.sockets.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(END_STEP).await;
        }
    };
    let is_clean = tokio::time::timeout(END_PATIENCE, answers_out).await.is_ok();
    app.closed.cancel();
    tracing::info!(answers_out = is_clean, "stopped");
}
