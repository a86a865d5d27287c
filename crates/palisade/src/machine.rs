//! Builds the engine of this machine: first the spawner, then the runtime, then the backend.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use backends::host::HostParts;
use backends::native::{NativeBackend, start_spawner};
use egress::{Gateway, GatewayConfig};
use engine::access::{ReachLog, Secrets};
use engine::{Durability, Engine, EngineConfig, PoolConfig, Retention, Runs, RunsConfig, Store, StoreConfig};
use mcp::render::INLINE_BYTES_MAX;
use packages::Packages;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use upstreams::Upstreams;

use crate::config::{LogLevel, Origin, Settings};
use crate::options::Options;
use crate::upkeep::Upkeep;
use crate::{config, log, state, walls, zygote};

/// Everything that a command needs to run programs.
pub(crate) struct Machine {
    pub(crate) engine: Arc<Engine>,
    pub(crate) native: Arc<NativeBackend>,
    pub(crate) state_dir: PathBuf,
    /// The tool servers, if some are configured. They end with the engine.
    pub(crate) upstreams: Option<Arc<Upstreams>>,
    /// The settings in force, without the flags of single commands.
    pub(crate) settings: Settings,
}

impl Machine {
    /// A registry of runs, with their store.
    pub(crate) fn runs(&self, durability: Durability) -> Arc<Runs> {
        let kept = self.settings.store_limits();
        let retention =
            Retention { age_max: kept.age_max, runs_max: kept.runs_max, bytes_max: kept.log_bytes_max };
        let store = Store::new(StoreConfig { retention, ..StoreConfig::new(&self.state_dir) });
        let config = RunsConfig { durability, inline_bytes_max: INLINE_BYTES_MAX, ..RunsConfig::default() };
        Runs::new(Arc::clone(&self.engine), store, config)
    }
}

/// The use of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerMode {
    /// One run: one thread, and no spares.
    OneShot,
    /// One client: one thread.
    Stdio,
    /// Several clients: as many threads as cores.
    Http,
}

/// Runs `work` on this thread with an engine. It forks, so the caller must not have started any thread.
pub(crate) fn with_engine<T, F>(
    options: &Options,
    mode: ServerMode,
    work: impl FnOnce(Machine) -> F,
) -> io::Result<T>
where
    F: Future<Output = T>,
{
    let spawner = start_spawner(become_guest);
    // Installed after the fork, so that no sandbox inherits the log. Installed before the error is returned,
    // because callers log it.
    log::install();
    let spawner = spawner?;
    raise_descriptor_limit();
    let runtime = match mode {
        ServerMode::OneShot | ServerMode::Stdio => {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?
        }
        ServerMode::Http => tokio::runtime::Builder::new_multi_thread().enable_all().build()?,
    };
    let (mut config, host, settings) = config(options, mode)?;
    // Watched from before they are read, so that no change is missed.
    let watch = config::policies::Watch::new(options, &settings);
    let book = config::policies::load(&settings).map_err(unusable)?;
    if mode == ServerMode::OneShot {
        config.pool = PoolConfig::off();
    }
    let state_dir = config.state_dir.clone();
    let result = runtime.block_on(async {
        let native = NativeBackend::new(spawner).with_zygotes(zygote::library()).with_host(host.clone());
        let native = Arc::new(native);
        let names = walls::names(&settings.wall, &options.walls);
        let mut made = walls::make(&names, &settings.wall, &native, &host)?.into_iter();
        let default = made.next().ok_or_else(|| io::Error::other("there is no wall"))?;
        let engine = Arc::new(Engine::with_walls(default, made.collect(), config));
        if let Some(endpoint) = &settings.otlp_endpoint.value
            && let Err(error) = log::export(endpoint, engine.failure_log())
        {
            // A failed export does not prevent runs.
            tracing::warn!(reason = %error, "export_not_started");
        }
        // One user's programs are installed for as that user would; a server for several waits for its operator.
        if settings.packages.enabled.value.unwrap_or(mode != ServerMode::Http) {
            let proxy = settings.access.upstream.value.clone();
            let config = settings.packages.config(state_dir.clone(), proxy);
            engine.offer_packages(Arc::new(Packages::new(config, &engine)));
        }
        let upstreams = crate::tools::offer(&engine, &settings, &state_dir);
        engine.gatekeeper().replace(book);
        engine.gatekeeper().replace_quotas(settings.quota.quotas());
        let _upkeep = match mode {
            ServerMode::OneShot => None,
            ServerMode::Stdio | ServerMode::Http => Some(Upkeep::start(Arc::clone(&engine), watch)?),
        };
        if mode != ServerMode::OneShot
            && let Some(audit) = settings.audit()
        {
            let what = if mode == ServerMode::Http { "serve" } else { "mcp" };
            engine.gatekeeper().audit().begin(what, audit)?;
        }
        let kept = Arc::clone(&engine);
        let done = work(Machine { engine, native, state_dir, upstreams: upstreams.clone(), settings }).await;
        if let Some(upstreams) = upstreams {
            upstreams.close().await;
        }
        kept.gatekeeper().audit().end();
        Ok(done)
    });
    // A blocked read of standard input must not delay the exit.
    runtime.shutdown_background();
    log::finish();
    result
}

/// Raises the limit of file descriptors. A shell starts with 1024, and the number of open sandboxes and
/// connections is derived from the limit. The spawner keeps its old limit, and sandboxes have separate
/// limits.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Without a higher limit, fewer sandboxes and connection slots are available.
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
}

/// The program of a jail once its walls are built.
fn become_guest(stream: OwnedFd, consent: OwnedFd) -> i32 {
    guest::run(stream, guest::Gate { socket: consent, accept: jail::accept_consent })
}

fn unusable(error: config::ConfigError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// What runs may reach outside, as the configuration says.
pub(crate) fn gateway(settings: &Settings, state_dir: &Path, log: &Arc<ReachLog>) -> Gateway {
    Gateway::new(GatewayConfig {
        bundles: settings.access.names.value.clone(),
        resolver: settings.access.resolver.value,
        upstream: settings.access.upstream.value.clone(),
        secrets: Secrets::new(state_dir),
        log: Arc::clone(log),
    })
}

/// The parts of the engine and of its walls.
fn config(options: &Options, mode: ServerMode) -> io::Result<(EngineConfig, HostParts, Settings)> {
    let loaded = config::load(options).map_err(unusable)?;
    let settings = loaded.settings;
    // A command shows its result; ordinary events belong to the log of a server.
    let level = match (mode, &settings.log_level.origin) {
        (ServerMode::OneShot, Origin::Default) => LogLevel::Warn,
        _ => settings.log_level.value,
    };
    log::configure(level, settings.log_format.value);
    let (mut policy, _) = config::built_in();
    settings.fill_policy(&mut policy);
    if matches!(options.walls, walls::Named::Examined(_)) {
        // An examination is no run of a caller: it looks at weaker walls, too.
        policy.least_kernel = sandbox::Kernel::Shared;
    }
    let state_dir = state::directory(settings.state_dir.value.as_deref())?;
    let admission = settings.admission();
    let interpreters =
        settings.interpreters.iter().map(|(language, path)| (language.clone(), path.value.clone())).collect();
    // Determined once at the start, because the path may later refer to another file.
    let executable = std::env::current_exe().ok();
    let launcher = crate::die_with_parent::launcher();
    let pool = settings.pool();
    let host = HostParts { state_dir: state_dir.clone(), interpreters, launcher, executable };
    Ok((EngineConfig { state_dir, policy, admission, pool }, host, settings))
}
