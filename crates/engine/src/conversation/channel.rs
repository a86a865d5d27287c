//! The stream to a guest, together with the processes that the guest keeps open for the host.

use std::collections::BTreeMap;

use sandbox::WORKSPACE;
use wire::{Fork, OpenProcess, ToGuest};

use super::{FIRST_KEPT, KEEP, PREPARE};
use crate::guest_client::{GuestError, GuestReader, GuestWriter, PLACED};
use crate::runtimes::{CpuShare, DriverCall, Runtime};

/// Numbers for placed files start again after this many runs. No process and no question uses a number of this
/// range.
const PLACED_COUNT: u32 = 1 << 30;
const SIGCONT: i32 = 18;

/// The connection to the guest and, in a persistent sandbox, the interpreters that live there.
pub(crate) struct GuestChannel {
    pub(crate) reader: GuestReader,
    pub(crate) writer: GuestWriter,
    /// The process number of each interpreter.
    interpreters: BTreeMap<String, u32>,
    /// Whether a preparer is running and waits for a program.
    has_preparer: bool,
    next_process: u32,
    placed: u32,
    /// The share of the processors with which interpreters of a persistent sandbox start.
    share: CpuShare,
}

impl GuestChannel {
    pub(crate) fn new((reader, writer): (GuestReader, GuestWriter)) -> Self {
        let (interpreters, has_preparer, share) = (BTreeMap::new(), false, CpuShare::ONE);
        Self { reader, writer, interpreters, has_preparer, next_process: FIRST_KEPT, placed: 0, share }
    }

    /// Sets the share of the processors with which interpreters start.
    pub(crate) fn with_share(self, share: CpuShare) -> Self {
        Self { share, ..self }
    }

    /// The languages whose interpreters are alive.
    pub(crate) fn interpreters(&self) -> impl Iterator<Item = &String> {
        self.interpreters.keys()
    }

    /// The process of a language's interpreter, if it is alive.
    pub(super) fn awake(&self, runtime: &Runtime) -> Option<u32> {
        self.interpreters.get(runtime.interpreter()).copied()
    }

    /// Queues the start of a language's interpreter.
    pub(super) fn start(&mut self, runtime: &Runtime) -> Result<u32, GuestError> {
        let process = self.next_process;
        self.next_process += 1;
        let argv = runtime.command(&DriverCall { mode: KEEP, source: &runtime.source_path() });
        self.open(process, argv, runtime)?;
        // The interpreter's standard input stays empty: each run brings its input as a file.
        self.writer.queue(&ToGuest::StdinEnd { process })?;
        self.interpreters.insert(runtime.interpreter().to_owned(), process);
        Ok(process)
    }

    /// Queues the start of the preparer, if none is running.
    pub(super) fn start_preparer(
        &mut self,
        command: Vec<String>,
        runtime: &Runtime,
    ) -> Result<(), GuestError> {
        if self.has_preparer {
            // A program may have stopped the preparer since the last run.
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
        let (env, cwd) = (runtime.environment(self.share), WORKSPACE.to_owned());
        let has_channel = process != PREPARE;
        // A zygote process can start the replacement for an interpreter that died.
        let fork = if has_channel && runtime.has_zygote() { Fork::Again } else { Fork::Never };
        let open = OpenProcess { process, after: 0, argv, env, cwd, has_channel, fork };
        self.writer.queue(&ToGuest::Open(open))
    }

    /// Forgets a process that ended.
    pub(super) fn forget(&mut self, process: u32) {
        self.interpreters.retain(|_, known| *known != process);
        self.has_preparer &= process != PREPARE;
    }

    /// Returns a number for the files of one run.
    pub(super) fn next_placed(&mut self) -> u32 {
        self.placed = (self.placed + 1) % PLACED_COUNT;
        PLACED + self.placed
    }
}
