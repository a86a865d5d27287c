//! Programs of the operator that run behind the wall for as long as the server needs them: upstream servers that speak
//! on their standard streams.
//!
//! ```text
//! ServerProgram -> spec -> sandbox with every guarantee -> guest starts the program -> pump: streams, links, limits
//! ```
//! A program like this is no run. It has no caller, no verdict and no place of admission: a run that waits for an answer of
//! the program holds a place already, and two places for one call could wait for each other. The number of programs is
//! bounded by the configuration.

mod pump;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::{Caller, Terms};
use sandbox::{Limits, ReadOnlyBind, SandboxSpec, SharedFolder, WORKSPACE};
use tokio::io::DuplexStream;
use tokio::sync::watch;
use wire::{Fork, OpenProcess, ToGuest};

use self::pump::Pump;
use crate::conversation::MAIN;
use crate::given::Given;
use crate::guest_client::{self, GuestError, PLACED};
use crate::links::{Grant, LinkTable, Reach};
use crate::packages::{PackageSet, Shows};
use crate::result::RunError;
use crate::runtimes::{CpuShare, plain_environment};
use crate::unstarted::Unstarted;
use crate::{Engine, Wall};

/// The wall of such programs, if the server has it.
const NATIVE: &str = "native";
/// What the streams of a program may hold between the guest and the reader.
const STREAM_BYTES: usize = 256 << 10;
/// How long a program may take to be gone once it must end.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// A program to start.
pub struct ServerProgram<'a> {
    /// On whose behalf links are served.
    pub caller: &'a Caller,
    /// The language whose interpreter it needs.
    pub language: Option<&'a str>,
    /// The program and its arguments. The program is an absolute path, or empty for the interpreter of the language.
    pub argv: Vec<String>,
    /// Variables, secrets and proxies, beyond those of every sandbox.
    pub given: Given,
    /// Variables of Palisade itself.
    pub marks: &'a [(&'static str, &'static str)],
    /// The working directory. `None`: the sandbox's own.
    pub cwd: Option<String>,
    /// Files of the host that the program itself consists of.
    pub binds: Vec<PathBuf>,
    /// Directories of the operator.
    pub folders: Vec<SharedFolder>,
    /// Symbolic links to them.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Packages that it consists of.
    pub packages: Vec<PackageSet>,
    /// What it may reach.
    pub grants: Vec<Grant>,
    /// What it may use.
    pub limits: Limits,
}

/// A program that runs. It ends when one of its streams is dropped.
pub struct RunningProgram {
    /// Its standard output.
    pub stdout: DuplexStream,
    /// Its standard input.
    pub stdin: DuplexStream,
    /// What is known of its end.
    pub end: ProgramEnd,
}

/// Waits for the end of a program, and knows what it said last.
pub struct ProgramEnd {
    words: Arc<Mutex<Vec<u8>>>,
    gone: watch::Receiver<bool>,
}

impl ProgramEnd {
    /// Waits until the program is gone. Its streams must have been dropped.
    pub async fn wait(&self) {
        let mut gone = self.gone.clone();
        if tokio::time::timeout(END_PATIENCE, gone.wait_for(|gone| *gone)).await.is_err() {
            tracing::error!("program_survived");
        }
    }

    /// The end of what it wrote to standard error, with its end if that is known.
    pub fn last_words(&self) -> Vec<u8> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Engine {
    /// The wall behind which such programs run.
    pub fn program_wall(&self) -> &Wall {
        self.wall(Some(NATIVE)).or_else(|| self.wall(None)).unwrap_or(&self.default_wall)
    }

    /// Starts a program behind the wall.
    pub async fn start_program(&self, program: ServerProgram<'_>) -> Result<RunningProgram, RunError> {
        let told = |unstarted: Unstarted| unstarted.error;
        let wall = self.program_wall();
        let mut limits = program.limits.clone();
        limits.memory_bytes = limits.memory_bytes.min(self.admission.memory_bytes_max());
        let (spec, argv, env) = self.program_spec(wall, &program, &limits).await?;
        let mut sandbox = wall.create(&spec).await.map_err(told)?;
        sandbox.measure_anew(&limits, None).await;
        let lost = |error: GuestError| RunError::new("wall_unavailable", error.to_string());
        let stream = sandbox.take_stream().ok_or_else(|| lost(GuestError::Gone))?;
        let (reader, mut writer) = guest_client::connect(stream).await.map_err(lost)?;
        let terms = Terms { limits, clamped: Vec::new(), notes: Vec::new() };
        let links = (!program.grants.is_empty()).then(|| {
            let reach = Reach::of_builder(program.grants, program.caller, terms, &self.link_memory);
            LinkTable::new(reach)
        });
        for listen in links.iter().flat_map(|table| table.listen(PLACED)) {
            writer.queue(&listen).map_err(lost)?;
        }
        let open = OpenProcess {
            process: MAIN,
            after: PLACED,
            argv,
            env,
            cwd: program.cwd.unwrap_or_else(|| WORKSPACE.to_owned()),
            has_channel: false,
            fork: Fork::Never,
            terminal: None,
        };
        writer.send(&ToGuest::Open(open)).await.map_err(lost)?;
        let (stdin, input) = tokio::io::duplex(STREAM_BYTES);
        let (output, stdout) = tokio::io::duplex(STREAM_BYTES);
        let (words, (tell_gone, gone)) = (Arc::default(), watch::channel(false));
        let pump = Pump::new((reader, writer), links, (input, output), Arc::clone(&words));
        tokio::spawn(async move {
            pump.run(sandbox.as_mut()).await;
            if let Err(error) = sandbox.destroy().await {
                tracing::warn!(reason = %error, "program_not_destroyed");
            }
            drop((sandbox, spec));
            tell_gone.send_replace(true);
        });
        Ok(RunningProgram { stdout, stdin, end: ProgramEnd { words, gone } })
    }

    /// The sandbox of a program, its command line and its environment.
    async fn program_spec(
        &self,
        wall: &Wall,
        program: &ServerProgram<'_>,
        limits: &Limits,
    ) -> Result<(SandboxSpec, Vec<String>, Vec<(String, String)>), RunError> {
        let mut given = program.given.clone();
        program.marks.iter().for_each(|(name, value)| given.set_own(name, (*value).to_owned()));
        given.check()?;
        let shows = Shows::of(&program.packages);
        let mut argv = program.argv.clone();
        let (mut spec, env) = match program.language {
            Some(language) => {
                let found = wall.runtimes().find(language).await;
                let runtime = found.map_err(|error| Unstarted::from(error).error)?;
                if let Some(first) = argv.first_mut().filter(|first| first.is_empty()) {
                    *first = runtime.executable().to_owned();
                }
                let spec = self.spec(&runtime, limits, Vec::new());
                (spec, runtime.environment_with(CpuShare::of(limits), shows, &given))
            }
            None => {
                let absence_allowed = self.policy().absence_allowed.clone();
                let spec = SandboxSpec { limits: limits.clone(), absence_allowed, ..SandboxSpec::default() };
                let mut env = plain_environment(shows);
                env.extend(given.pairs());
                (spec, env.into_iter().collect())
            }
        };
        let has = |path: &PathBuf| spec.binds.iter().any(|bind| path.starts_with(&bind.target));
        let new: Vec<_> = program.binds.iter().filter(|path| !has(path)).cloned().collect();
        spec.binds.extend(new.into_iter().map(ReadOnlyBind::in_place));
        spec.folders = program.folders.clone();
        spec.links.extend(program.links.iter().cloned());
        for set in &program.packages {
            spec.layers.push(set.shown_layer());
            spec.in_use.add(Arc::clone(&set.in_use));
        }
        Ok((spec, argv, env))
    }
}
