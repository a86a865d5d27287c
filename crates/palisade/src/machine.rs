//! Puts the engine together on this machine: spawner first, then the runtime, then the backend.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use backends::native::{NativeBackend, start_spawner};
use engine::{Durability, Engine, EngineConfig, PoolConfig, Retention, Runs, RunsConfig, Store, StoreConfig};
use mcp::render::INLINE_BYTES_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Settings;
use crate::options::Options;
use crate::{config, log, state, zygote};

/// Everything a command needs to run programs.
pub(crate) struct Machine {
    pub(crate) engine: Arc<Engine>,
    pub(crate) native: Arc<NativeBackend>,
    pub(crate) state_dir: PathBuf,
    /// What is in force, flags of single commands aside.
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

/// For whom an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerMode {
    /// One run: one thread, and nothing is made ready ahead.
    OneShot,
    /// One client: one thread.
    Stdio,
    /// Several: as many threads as there are cores.
    Http,
}

/// Runs `work` on this thread with an engine. Call it before any thread exists: it forks.
pub(crate) fn with_engine<T, F>(
    options: &Options,
    life: ServerMode,
    work: impl FnOnce(Machine) -> F,
) -> io::Result<T>
where
    F: Future<Output = T>,
{
    let spawner = start_spawner(become_guest);
    // After the fork: nothing of it is in a sandbox. Whoever starts us tells by it that there is no spawner.
    log::install();
    let spawner = spawner?;
    raise_descriptor_limit();
    let runtime = match life {
        ServerMode::OneShot | ServerMode::Stdio => {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?
        }
        ServerMode::Http => tokio::runtime::Builder::new_multi_thread().enable_all().build()?,
    };
    let (mut config, settings) = config(options)?;
    if life == ServerMode::OneShot {
        config.pool = PoolConfig::off();
    }
    let state_dir = config.state_dir.clone();
    let result = runtime.block_on(async {
        let native = Arc::new(NativeBackend::new(spawner).with_zygotes(zygote::library()));
        let engine = Arc::new(Engine::new(Arc::clone(&native) as Arc<dyn sandbox::Backend>, config));
        if let Some(endpoint) = &settings.otlp_endpoint.value
            && let Err(error) = log::export(endpoint, engine.failure_log())
        {
            // Runs are worth more than what is told of them.
            tracing::warn!(reason = %error, "export_not_started");
        }
        work(Machine { engine, native, state_dir, settings }).await
    });
    // A blocked read of standard input must not hold up the end.
    runtime.shutdown_background();
    log::finish();
    Ok(result)
}

/// A shell gives 1024 descriptors at first and more when asked; what can be open at once is counted from there. The
/// spawner keeps what it had, and sandboxes have limits of their own.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // What cannot be had is done without: see `sandboxes` and `service`.
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
}

/// What a jail turns into once its walls stand.
fn become_guest(stream: OwnedFd, consent: OwnedFd) -> i32 {
    guest::run(stream, guest::Gate { socket: consent, accept: jail::accept_consent })
}

fn config(options: &Options) -> io::Result<(EngineConfig, Settings)> {
    let loaded = config::load(options).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let settings = loaded.settings;
    log::configure(settings.log_level.value, settings.log_format.value);
    let (mut policy, _) = config::built_in();
    settings.fill_policy(&mut policy);
    let state_dir = state::directory(settings.state_dir.value.as_deref())?;
    let admission = settings.admission();
    let interpreters =
        settings.interpreters.iter().map(|(language, path)| (language.clone(), path.value.clone())).collect();
    // Asked once, at the start: the name may lead to another file later.
    let executable = std::env::current_exe().ok();
    let launcher = crate::die_with_parent::launcher();
    let pool = settings.pool();
    Ok((EngineConfig { state_dir, launcher, policy, admission, pool, interpreters, executable }, settings))
}
