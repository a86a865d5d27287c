//! The stream to a guest, with the processes that the guest has open for us.

use std::collections::BTreeMap;

use sandbox::WORKSPACE;
use wire::{Fork, OpenProcess, ToGuest};

use super::{FIRST_KEPT, KEEP, PREPARE};
use crate::guest_client::{GuestError, GuestReader, GuestWriter, PLACED};
use crate::runtimes::{Call, Runtime};

/// Numbers of files, which no process and no question has, begin anew after so many runs.
const PLACED_COUNT: u32 = 1 << 30;
const SIGCONT: i32 = 18;

/// The guest, and in a persistent sandbox the interpreters that live there.
pub(crate) struct GuestChannel {
    pub(crate) reader: GuestReader,
    pub(crate) writer: GuestWriter,
    /// Process by interpreter.
    interpreters: BTreeMap<String, u32>,
    /// Whether what makes programs ready waits for one.
    has_preparer: bool,
    next_process: u32,
    placed: u32,
}

impl GuestChannel {
    pub(crate) fn new((reader, writer): (GuestReader, GuestWriter)) -> Self {
        let (interpreters, has_preparer) = (BTreeMap::new(), false);
        Self { reader, writer, interpreters, has_preparer, next_process: FIRST_KEPT, placed: 0 }
    }

    /// The interpreters that live.
    pub(crate) fn interpreters(&self) -> impl Iterator<Item = &String> {
        self.interpreters.keys()
    }

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
