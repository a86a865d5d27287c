//! The stream to a guest, together with the processes that the guest keeps open for the host.

use std::collections::BTreeMap;
use std::time::Duration;

use sandbox::WORKSPACE;
use wire::{Fork, FromGuest, OpenProcess, ToGuest};

use super::{FIRST_KEPT, KEEP, PREPARE};
use crate::guest_client::{GuestError, GuestReader, GuestWriter, PLACED};
use crate::packages::Shows;
use crate::runtimes::{CpuShare, DriverCall, Runtime};
use crate::sandboxes::InterpreterName;

/// Numbers for placed files start again after this many runs. No process and no question uses a number of this
/// range.
const PLACED_COUNT: u32 = 1 << 30;
const SIGCONT: i32 = 18;
const SIGKILL: i32 = 9;
/// The kernel may take a while to free the memory of a large process. A guest that reports no end by then is lost.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// An interpreter that outlives its runs, and how it is started.
#[derive(Clone, Copy)]
pub(crate) struct KeptInterpreter<'a> {
    pub(crate) name: &'a InterpreterName,
    pub(crate) runtime: &'a Runtime,
    /// Whether it may be a copy of the zygote process. A copy has packages loaded, and would not find modules of
    /// the same name in the workspace.
    pub(crate) fork: Fork,
}

/// The connection to the guest and, in a persistent sandbox, the interpreters that live there.
pub(crate) struct GuestChannel {
    pub(crate) reader: GuestReader,
    pub(crate) writer: GuestWriter,
    /// The process number of each interpreter.
    interpreters: BTreeMap<InterpreterName, u32>,
    /// Whether a preparer is running and waits for a program.
    has_preparer: bool,
    next_process: u32,
    placed: u32,
    /// The share of the processors with which interpreters of a persistent sandbox start.
    share: CpuShare,
    /// The packages that they find, now or later.
    shows: Shows,
}

impl GuestChannel {
    pub(crate) fn new((reader, writer): (GuestReader, GuestWriter)) -> Self {
        let (interpreters, has_preparer, next_process) = (BTreeMap::new(), false, FIRST_KEPT);
        let (share, shows) = (CpuShare::ONE, Shows::NOTHING);
        Self { reader, writer, interpreters, has_preparer, next_process, placed: 0, share, shows }
    }

    /// Sets the share of the processors with which interpreters start, and the packages that they find.
    pub(crate) fn with_surroundings(self, share: CpuShare, shows: Shows) -> Self {
        Self { share, shows, ..self }
    }

    /// The interpreters that are alive.
    pub(crate) fn interpreters(&self) -> impl Iterator<Item = &InterpreterName> {
        self.interpreters.keys()
    }

    /// The process of an interpreter, if it is alive.
    pub(super) fn awake(&self, name: &InterpreterName) -> Option<u32> {
        self.interpreters.get(name).copied()
    }

    /// Queues the start of an interpreter.
    pub(super) fn start(&mut self, interpreter: KeptInterpreter<'_>) -> Result<u32, GuestError> {
        let KeptInterpreter { name, runtime, fork } = interpreter;
        let process = self.next_process;
        self.next_process += 1;
        let argv = runtime.command(&DriverCall { mode: KEEP, source: &runtime.source_path() });
        self.open(process, argv, runtime, fork)?;
        // The interpreter's standard input stays empty: each run brings its input as a file or a named pipe.
        self.writer.queue(&ToGuest::StdinEnd { process })?;
        self.interpreters.insert(name.clone(), process);
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
        self.open(PREPARE, command, runtime, Fork::Never)?;
        self.has_preparer = true;
        Ok(())
    }

    pub(super) fn has_preparer(&self) -> bool {
        self.has_preparer
    }

    fn open(
        &mut self,
        process: u32,
        argv: Vec<String>,
        runtime: &Runtime,
        fork: Fork,
    ) -> Result<(), GuestError> {
        let (env, cwd) = (runtime.environment(self.share, self.shows), WORKSPACE.to_owned());
        let has_channel = process != PREPARE;
        let open = OpenProcess { process, after: 0, argv, env, cwd, has_channel, fork, terminal: None };
        self.writer.queue(&ToGuest::Open(open))
    }

    /// Kills those of these interpreters that are alive, with their process groups, and waits for their end. On error
    /// the guest is lost.
    pub(crate) async fn end(&mut self, names: &[InterpreterName]) -> Result<(), GuestError> {
        let mut ending: Vec<u32> = names.iter().filter_map(|name| self.awake(name)).collect();
        for process in &ending {
            self.writer.queue(&ToGuest::Signal { process: *process, signal: SIGKILL })?;
        }
        let ended = async {
            self.writer.flush().await?;
            while !ending.is_empty() {
                match self.reader.next_new().await? {
                    FromGuest::Exited { process, .. } => {
                        self.forget(process);
                        ending.retain(|known| *known != process);
                    }
                    FromGuest::Output { process, .. } | FromGuest::Control { process, .. }
                        if ending.contains(&process) => {}
                    // Output of other interpreters belongs to the next run.
                    message @ (FromGuest::Output { .. } | FromGuest::Control { .. }) => {
                        self.reader.keep_for_later(message);
                    }
                    _ => {}
                }
            }
            Ok(())
        };
        tokio::time::timeout(END_PATIENCE, ended).await.unwrap_or(Err(GuestError::Silent))
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
