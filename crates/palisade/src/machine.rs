//! Puts the engine together on this machine: spawner first, then the runtime, then the backend.

use std::io;
use std::sync::Arc;

use backends::native::{NativeBackend, start_spawner};
use engine::{AdmissionLimits, Engine, EngineConfig};
use policy::Policy;
use sandbox::Guarantee;

use crate::cli::Options;
use crate::state;

/// Everything a command needs to run programs.
pub(crate) struct Machine {
    pub(crate) engine: Arc<Engine>,
    pub(crate) native: Arc<NativeBackend>,
}

/// Runs `work` on this thread with an engine. Call it before any thread exists: it forks.
pub(crate) fn with_engine<T, F>(options: &Options, work: impl FnOnce(Machine) -> F) -> io::Result<T>
where
    F: Future<Output = T>,
{
    let spawner = start_spawner(guest::run)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = config(options)?;
    let result = runtime.block_on(async {
        let native = Arc::new(NativeBackend::new(spawner));
        let engine = Arc::new(Engine::new(Arc::clone(&native) as Arc<dyn sandbox::Backend>, config));
        crate::cli::run::start_reading_stdin();
        work(Machine { engine, native }).await
    });
    // A blocked read of standard input must not hold up the end.
    runtime.shutdown_background();
    Ok(result)
}

fn config(options: &Options) -> io::Result<EngineConfig> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut policy = Policy::built_in(u32::try_from(cores).unwrap_or(1));
    for name in &options.allow_missing {
        match Guarantee::from_name(name) {
            Some(guarantee) => policy.absence_allowed.push(guarantee),
            None => {
                let known = Guarantee::ALL.map(Guarantee::name).join(", ");
                let message = format!("`{name}` is not a guarantee; there are {known}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
    }
    let state_dir = state::directory(options.state_dir.as_deref())?;
    // Asked once, at the start: the name may lead to another file later.
    let executable = std::env::current_exe().ok();
    Ok(EngineConfig { state_dir, policy, admission: AdmissionLimits::for_machine(cores), executable })
}
