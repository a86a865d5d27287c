//! The inside of a sandbox that lasts while it is awake: its wall, its guest, its interpreters.
//!
//! Dropping it kills everything inside; the files stay on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandbox::{LastingWorkspace, Limits, Sandbox, SandboxSpec, WORKSPACE};
use wire::{Fork, OpenProcess, ToGuest};

use crate::Engine;
use crate::guest_client::{self, GuestError, GuestReader, GuestWriter, PLACED};
use crate::runtimes::{self, Call, Runtime};
use crate::unstarted::Unstarted;

/// The mode of a driver in which the interpreter lives on.
pub(super) const KEEP: &str = "keep";
/// Number of the answer to a question that only asks whether everything before was said.
pub(super) const SYNC: u32 = u32::MAX;
/// The same of a question whether an interpreter takes what it is told.
pub(super) const HEARS: u32 = SYNC - 1;
/// What makes programs ready.
pub(super) const PREPARE: u32 = 2;
/// The first number of an interpreter; what makes programs ready has a smaller one.
const FIRST_PROCESS: u32 = 16;
/// Numbers of files, which no process and no question has, begin anew after so many runs.
const PLACED_COUNT: u32 = 1 << 30;
/// A day: how long the kernel lets one process compute. Single runs are watched by the host.
const LIFE_MS: u64 = 24 * 60 * 60 * 1000;

const SIGCONT: i32 = 18;

/// A wall and what is behind it.
pub(super) struct AwakeSandbox {
    pub(super) sandbox: Box<dyn Sandbox>,
    pub(super) channel: GuestChannel,
}

/// The guest and its interpreters.
pub(super) struct GuestChannel {
    pub(super) reader: GuestReader,
    pub(super) writer: GuestWriter,
    /// Process by interpreter.
    pub(super) interpreters: BTreeMap<String, u32>,
    /// Whether what makes programs ready waits for one.
    has_preparer: bool,
    next_process: u32,
    placed: u32,
}

impl AwakeSandbox {
    /// Builds the wall around a workspace, with everything that any live language needs; `code` is the first program.
    pub(super) async fn wake(
        engine: &Engine,
        workspace: LastingWorkspace,
        limits: &Limits,
        code: &str,
    ) -> Result<Self, Unstarted> {
        let runtimes = live_runtimes(engine).await;
        let brings = |package: &str| {
            [format!("{package}.py"), package.to_owned()]
                .iter()
                .any(|name| workspace.path.join(name).exists())
        };
        let zygote = runtimes.iter().find_map(|runtime| runtime.zygote(code, brings));
        let mut spec = SandboxSpec {
            limits: Limits { wall_ms: LIFE_MS, ..limits.clone() },
            zygote: zygote.filter(|_| engine.is_warm),
            workspace: Some(workspace),
            absence_allowed: engine.policy().absence_allowed.clone(),
            ..SandboxSpec::default()
        };
        for runtime in &runtimes {
            let new = runtime.read_only_binds(engine.executable.as_deref());
            spec.binds.extend(new.into_iter().filter(|bind| !spec.binds.contains(bind)).collect::<Vec<_>>());
            let new = runtime.placed_files();
            let is_there =
                |file: &sandbox::PlacedFile| spec.files.iter().any(|known| known.path == file.path);
            let new: Vec<_> = new.into_iter().filter(|file| !is_there(file)).collect();
            spec.files.extend(new);
        }
        let mut sandbox = engine.create(&spec).await?;
        let stream = sandbox.take_stream().ok_or_else(lost)?;
        let (reader, writer) = guest_client::connect(stream).await.map_err(|_| lost())?;
        let channel = GuestChannel {
            reader,
            writer,
            interpreters: BTreeMap::new(),
            has_preparer: false,
            next_process: FIRST_PROCESS,
            placed: 0,
        };
        Ok(Self { sandbox, channel })
    }
}

impl GuestChannel {
    /// The process of a language's interpreter, if it lives.
    pub(super) fn awake(&self, runtime: &Runtime) -> Option<u32> {
        self.interpreters.get(runtime.interpreter()).copied()
    }

    /// Queues the start of a language's interpreter.
    pub(super) fn start(&mut self, runtime: &Runtime) -> Result<u32, GuestError> {
        let process = self.next_process;
        self.next_process += 1;
        let argv = runtime.command(&Call { mode: KEEP, source: &runtime.source_path() });
        self.open(process, argv, runtime)?;
        // It reads from files, one per run.
        self.writer.queue(&ToGuest::StdinEnd { process })?;
        self.interpreters.insert(runtime.interpreter().to_owned(), process);
        Ok(process)
    }

    /// Queues the start of what makes programs ready, if it does not wait already.
    pub(super) fn start_preparer(
        &mut self,
        command: Vec<String>,
        runtime: &Runtime,
    ) -> Result<(), GuestError> {
        if self.has_preparer {
            // A program may have stopped it meanwhile.
            return self.writer.queue(&ToGuest::Signal { process: PREPARE, signal: SIGCONT });
        }
        self.open(PREPARE, command, runtime)?;
        self.has_preparer = true;
        Ok(())
    }

    pub(super) fn has_preparer(&self) -> bool {
        self.has_preparer
    }

    fn open(&mut self, process: u32, argv: Vec<String>, runtime: &Runtime) -> Result<(), GuestError> {
        let (env, cwd, has_channel) = (runtime.environment(), WORKSPACE.to_owned(), process != PREPARE);
        // A new one takes the place of one that died.
        let fork = if has_channel && runtime.has_zygote() { Fork::Again } else { Fork::Never };
        let open = OpenProcess { process, after: 0, argv, env, cwd, has_channel, fork };
        self.writer.queue(&ToGuest::Open(open))
    }

    /// Forgets a process that ended.
    pub(super) fn forget(&mut self, process: u32) {
        self.interpreters.retain(|_, known| *known != process);
        self.has_preparer &= process != PREPARE;
    }

    /// A number for the files of one run.
    pub(super) fn next_placed(&mut self) -> u32 {
        self.placed = (self.placed + 1) % PLACED_COUNT;
        PLACED + self.placed
    }
}

async fn live_runtimes(engine: &Engine) -> Vec<Arc<Runtime>> {
    let mut found = Vec::new();
    for name in runtimes::live_languages() {
        // A language that is not here is told when it is asked for.
        found.extend(engine.runtimes().find(name).await.ok());
    }
    found
}

fn lost() -> Unstarted {
    crate::RunError::new("sandbox_failed", "the sandbox did not come up").remedy("try again").into()
}
