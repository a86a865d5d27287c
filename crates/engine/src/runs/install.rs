//! Installations: runs that carry out no program, but fetch and build packages.
//!
//! An installation is followed, cancelled and looked up as a run is. Its log is its progress; its result has
//! [`crate::RunResult::installed`].

use std::sync::Arc;
use std::time::Instant;

use sandbox::Outcome;
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;
use wire::Stream;

use super::follow::PublishOnDrop;
use super::live::{Entry, Kind, LiveRun, StartedRun};
use super::{RunId, RunSlot, Runs, span};
use crate::Caller;
use crate::audit::Event;
use crate::conversation::{Stop, StopSignals};
use crate::packages::{InstallReport, PackageUse, PackageVersion, Wanted};
use crate::request::RunRequest;
use crate::result::{Execution, RunError, RunResult};
use crate::sandboxes::SandboxId;
use crate::unstarted::unless_stopped;

/// Messages about the progress of an installation that wait for its log.
const PROGRESS_MAX: usize = 64;

/// Packages to install.
#[derive(Debug, Clone)]
pub struct InstallRequest {
    /// The language that the caller named.
    pub language: String,
    /// What to install.
    pub packages: Vec<Wanted>,
    /// The persistent sandbox that gets them. `None` only prepares them.
    pub sandbox: Option<SandboxId>,
}

/// What an installation did.
struct Done {
    packages: Vec<PackageVersion>,
    was_cached: bool,
    warnings: Vec<String>,
}

impl Runs {
    /// Starts an installation in its own task, with a handle that was made before, if there is one.
    pub fn install(
        self: &Arc<Self>,
        caller: &Caller,
        request: InstallRequest,
        id: Option<RunId>,
    ) -> Result<StartedRun, RunError> {
        let entered = self.enter(caller, &request.language, id, Kind::Installation);
        let (entry, stopped, place) = entered.inspect_err(|error| self.telemetry.count_error(&error.code))?;
        let span = span(&entry.run);
        let work =
            Arc::clone(self).carry_out(Arc::clone(&entry), (caller.clone(), request), (stopped, place));
        let task = tokio::spawn(work.instrument(span));
        entry.abort.get_or_init(|| task.abort_handle());
        Ok(StartedRun { run: LiveRun(entry), runs: Arc::clone(self), is_handed_over: false })
    }

    async fn carry_out(
        self: Arc<Self>,
        entry: Arc<Entry>,
        (caller, request): (Caller, InstallRequest),
        (stopped, place): (oneshot::Receiver<Stop>, RunSlot),
    ) {
        let _last_word = PublishOnDrop { runs: &self, entry: &entry };
        let started = Instant::now();
        let (sender, mut told) = mpsc::channel::<String>(PROGRESS_MAX);
        let work = async {
            let installing = self.install_now(&caller, &request, sender);
            tokio::pin!(installing);
            loop {
                tokio::select! {
                    biased;
                    Some(line) = told.recv() => write(&entry, &line),
                    ended = &mut installing => {
                        while let Ok(line) = told.try_recv() {
                            write(&entry, &line);
                        }
                        return ended.map_err(Into::into);
                    }
                }
            }
        };
        let ended = unless_stopped(&mut StopSignals::new(stopped), work).await;
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let backend = self.engine.backend().name();
        let mut result = match ended {
            Ok(Done { packages, was_cached, warnings }) => {
                let installed = InstallReport { packages, was_cached, ms, sandbox: request.sandbox.clone() };
                let result = RunResult::finished(Outcome::Completed, backend, Execution::default());
                RunResult { installed: Some(installed), warnings, ..result }
            }
            Err(unstarted) => {
                let sandbox = request.sandbox.clone();
                let installed = InstallReport { ms, sandbox, ..InstallReport::default() };
                RunResult { installed: Some(installed), ..unstarted.into_result(backend) }
            }
        };
        if let Some(error) = result.error.as_ref().filter(|error| error.retryable && error.rule.is_none())
            && result.outcome == Outcome::Refused
        {
            tracing::debug!(error = %error.code, "installation_unavailable");
            result.outcome = Outcome::Unavailable;
        }
        self.note_installation(&caller, &entry, &request, &result);
        self.conclude(&entry, (result, None), place).await;
    }

    /// Installs into the sandbox, or only prepares.
    async fn install_now(
        &self,
        caller: &Caller,
        request: &InstallRequest,
        progress: mpsc::Sender<String>,
    ) -> Result<Done, RunError> {
        let progress = Some(progress);
        if let Some(id) = &request.sandbox {
            let done = self.sandboxes.install(caller, id, request.packages.clone(), progress).await?;
            let mut packages: Vec<_> = done.packages.into_iter().flat_map(|one| one.packages).collect();
            packages.sort();
            return Ok(Done { packages, was_cached: done.install_ms.is_none(), warnings: done.warnings });
        }
        let of = PackageUse { caller, wall: self.engine.backend().name(), progress };
        let shown = self.engine.prepare_packages(&of, &request.packages, &[]).await?;
        let mut packages: Vec<_> = shown.sets().iter().flat_map(|set| set.packages.iter().cloned()).collect();
        packages.sort();
        Ok(Done { packages, was_cached: !shown.was_installed(), warnings: Vec::new() })
    }

    fn note_installation(
        &self,
        caller: &Caller,
        entry: &Entry,
        request: &InstallRequest,
        result: &RunResult,
    ) {
        let asked: Vec<String> = request.packages.iter().map(ToString::to_string).collect();
        let event = Event::new("packages_installed")
            .by(caller)
            .with("run_id", entry.run.id.as_str())
            .with("packages", asked.join(" "))
            .with("outcome", result.outcome.name());
        let event = match &request.sandbox {
            Some(sandbox) => event.with("sandbox_id", sandbox.as_str()),
            None => event,
        };
        self.engine.gatekeeper().audit().note(event);
    }
}

/// The progress of the installation that a run begins with; `None` for a run without packages.
pub(super) fn progress_of(request: &mut RunRequest) -> Option<mpsc::Receiver<String>> {
    if request.packages.is_empty() {
        return None;
    }
    let (sender, told) = mpsc::channel(PROGRESS_MAX);
    request.install_progress = Some(sender);
    Some(told)
}

/// Tells the followers of a run about the installation that it begins with. Its log is the program's alone.
pub(super) async fn with_progress<T>(
    work: impl Future<Output = T>,
    told: Option<mpsc::Receiver<String>>,
    entry: &Entry,
) -> T {
    let Some(mut told) = told else { return work.await };
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            Some(line) = told.recv() => entry.tell(format!("{}\n", line.trim_end()).as_bytes()),
            ended = &mut work => return ended,
        }
    }
}

fn write(entry: &Entry, line: &str) {
    entry.write(Stream::Stdout, format!("{}\n", line.trim_end()).as_bytes());
}
