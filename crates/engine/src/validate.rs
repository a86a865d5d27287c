//! Checks a program without running it: its syntax, and the modules that it would miss.
//!
//! Each language supplies a command for it (`[check]` of its runtime.toml). The command runs in a separate
//! sandbox with small limits, because even parsing a hostile text is a risk. Its output is shown to the caller
//! and never trusted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::{Action, Call, Caller, WallDemand};
use sandbox::{Ending, Limits};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;
use wire::{Exit, Stream};

use crate::conversation::{Audience, Conversation, Listener, Overflow, RunEvent, StopSignals};
use crate::diagnostics::Said;
use crate::driver::{DriverDecoder, SAID_BYTES_MAX};
use crate::guest_client::GuestError;
use crate::missing::{self, Repair};
use crate::packages::Shows;
use crate::pool::{Lease, Purpose, Want};
use crate::request::RunRequest;
use crate::result::RunError;
use crate::runtimes::{CpuShare, DriverCall, Runtime};
use crate::unstarted::Unstarted;
use crate::verdict::End;
use crate::{Engine, Wall};

const CHECK_PATIENCE_MS: u64 = 10_000;
/// The delay before a retry: a machine that is busy slows the parser.
const RETRY_MS: u64 = 1000;
const CHECK_MEMORY_BYTES: u64 = 256 << 20;
/// The most bytes accepted from both streams together. A flood on one stream leaves room for the other.
const WRITTEN_BYTES_MAX: u64 = 2 * SAID_BYTES_MAX as u64;
const CHECK_DISK_BYTES: u64 = 16 << 20;
/// The most findings of each kind that are reported.
const FINDINGS_MAX: usize = 100;

/// What to do about a package that cannot be installed.
const NOT_INSTALLED: &str =
    "it is not installed, and a sandbox has no network: do without it, or send its files with the program";
/// What a check writes between the modules that may be meant and what else to do.
const OTHERWISE: &str = "? Otherwise ";
/// The longest suggestion of a check that is repeated.
const MEANT_BYTES_MAX: usize = 300;

/// The findings about a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Validation {
    /// Whether its syntax is valid.
    pub valid: bool,
    /// The syntax errors.
    pub errors: Vec<Finding>,
    /// Imported modules that are not installed.
    pub missing_imports: Vec<MissingImport>,
    /// Further remarks.
    pub notes: Vec<String>,
}

/// An error and its position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Line, 1-based.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column, 1-based, in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// What is wrong.
    pub message: String,
}

/// A module that an import would not find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingImport {
    /// Its name.
    pub module: String,
    /// Line of the import.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What to do next.
    pub remedy: String,
}

impl Engine {
    /// Checks a program without running it, behind the wall that the demand names or the default one.
    pub async fn validate(
        &self,
        caller: &Caller,
        wall: &WallDemand,
        language: &str,
        code: &str,
    ) -> Result<Validation, RunError> {
        let wall = self.choose_wall(wall)?;
        self.look_at(caller, wall, language, code).instrument(tracing::info_span!("validate")).await
    }

    async fn look_at(
        &self,
        caller: &Caller,
        wall: &Wall,
        language: &str,
        code: &str,
    ) -> Result<Validation, RunError> {
        let mut request =
            RunRequest { language: language.to_owned(), code: code.to_owned(), ..RunRequest::default() };
        request.check()?;
        let found = wall.runtimes().find(language).await.map_err(Unstarted::from);
        let runtime = found.map_err(|unstarted| unstarted.error)?;
        let language = runtime.name();
        self.judge(&Call { caller, action: Action::Validate { language } })?;
        let maxima = &self.policy().maxima;
        // The check of a compiled language is its compiler, with the compiler's limits.
        let mut limits = runtime.compile_limits(maxima).unwrap_or_else(|| limits(&runtime, maxima));
        limits.memory_bytes = limits.memory_bytes.min(self.admission.memory_bytes_max());
        let source = runtime.source_path();
        let call = DriverCall { mode: "last", source: &source };
        let Some(argv) = runtime.check_command(&call) else {
            let message = format!("{language} programs cannot be checked without running them");
            return Err(RunError::new("check_unsupported", message).remedy("run the program instead"));
        };
        let counted = self.gatekeeper().lease_run(caller).await?;
        let admitted = self.admit(limits.memory_bytes).await.map_err(Unstarted::busy);
        let _permit = match admitted {
            Ok(permit) => permit,
            Err(unstarted) => {
                counted.end(0, true);
                return Err(unstarted.error);
            }
        };
        let spec = self.spec(&runtime, &limits, Vec::new());
        let (language, purpose) = (runtime.interpreter(), Purpose::Check);
        let want = Want { spec: &spec, usual: &limits, most: &limits, language, purpose };
        let mut lease = wall.lease(&want).await.map_err(|unstarted| unstarted.error)?;
        let (share, patience) = (CpuShare::of(&limits), Duration::from_millis(limits.wall_ms));
        let check = Check { runtime: &runtime, code, argv, share, patience };
        let mut answer = check.ask(&mut lease).await;
        if lease.is_spare && matches!(answer, Answer::Failed(GuestError::Gone | GuestError::Io(_))) {
            // A spare may die as it is leased. A newly built sandbox replaces it, once.
            lease = Lease::cold(wall.create(&spec).await.map_err(|unstarted| unstarted.error)?);
            answer = check.ask(&mut lease).await;
        }
        let spent = lease.sandbox.destroy().await.map_or(0, |usage| usage.cpu_us);
        counted.end(spent, false);
        if let Some(error) = undecided(&answer) {
            return Err(error);
        }
        match answer {
            Answer::Ended(said, Exit::Code(status)) if runtime.check_has_diagnostics() => {
                let repair = self.repair(caller, &runtime, None);
                Ok(read_diagnostics(&said.written, status, &runtime, &repair))
            }
            Answer::Ended(said, Exit::Code(0)) => {
                let repair = self.repair(caller, &runtime, None);
                Ok(understand(&said.decoder.messages(), &runtime, &repair))
            }
            Answer::Ended(_, Exit::Signal(_)) => {
                Ok(gave_up("the program is nested too deeply, or too large, for the parser"))
            }
            Answer::Ended(..) | Answer::Limit | Answer::Late => {
                Err(RunError::new("check_failed", "the check of the program failed"))
            }
            Answer::Failed(error) => {
                let mut told = RunError::new("check_failed", "the check of the program failed");
                told.cause = Some(error.to_string());
                Err(told)
            }
        }
    }
}

/// One check of a program.
struct Check<'a> {
    runtime: &'a Runtime,
    code: &'a str,
    argv: Vec<String>,
    share: CpuShare,
    patience: Duration,
}

/// The outcome of a check.
enum Answer {
    Ended(Box<Heard>, Exit),
    /// A limit ended the check.
    Limit,
    /// The check did not end in time.
    Late,
    Failed(GuestError),
}

impl Check<'_> {
    /// Sends the program to a sandbox and collects the check's output.
    async fn ask(&self, lease: &mut Lease) -> Answer {
        let deadline = Instant::now() + self.patience;
        let mut conversation = match timeout_at(deadline, self.open(lease)).await {
            Ok(Ok(conversation)) => conversation,
            Ok(Err(error)) => return Answer::Failed(error),
            Err(_) => return Answer::Late,
        };
        let heard = Arc::<Mutex<Heard>>::default();
        let mut audience = Audience::listener(Box::new(Arc::clone(&heard)));
        conversation.tell_to(&mut audience);
        let mut nobody = StopSignals::default();
        let end = conversation.follow(lease.sandbox.as_mut(), &mut nobody, deadline).await.end();
        match end {
            End::Program(exit) => {
                let heard = std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner));
                Answer::Ended(Box::new(heard), exit)
            }
            End::Clock => Answer::Late,
            End::Unplaced(errno) | End::NotStarted(errno) => Answer::Failed(GuestError::Refused { errno }),
            End::Lost | End::Watch(Ending::Gone) => Answer::Failed(GuestError::Gone),
            _ => Answer::Limit,
        }
    }

    async fn open<'a>(&self, lease: &mut Lease) -> Result<Conversation<'a>, GuestError> {
        let guest = lease.connect().await?;
        let mut conversation = Conversation::once(guest, WRITTEN_BYTES_MAX, Overflow::LeftOut);
        conversation.place(self.runtime.source(), self.code.as_bytes()).await?;
        conversation.start(self.argv.clone(), self.runtime.environment(self.share, Shows::NOTHING))?;
        conversation.end_input()?;
        conversation.send().await?;
        Ok(conversation)
    }
}

/// Small limits that still let the interpreter start.
fn limits(runtime: &Runtime, maxima: &Limits) -> Limits {
    let floor = runtime.floor();
    let defaults = Limits::default();
    Limits {
        wall_ms: CHECK_PATIENCE_MS.min(maxima.wall_ms),
        memory_bytes: CHECK_MEMORY_BYTES.max(floor.memory_mb << 20).min(maxima.memory_bytes),
        processes: defaults
            .processes
            .max(u32::try_from(floor.processes).unwrap_or(u32::MAX))
            .min(maxima.processes),
        disk_bytes: CHECK_DISK_BYTES.min(maxima.disk_bytes),
        ..defaults
    }
}

/// The output of the check.
#[derive(Default)]
struct Heard {
    /// As driver messages.
    decoder: DriverDecoder,
    /// As compiler text: both streams, up to a limit.
    written: Vec<u8>,
}

impl Listener for Arc<Mutex<Heard>> {
    fn hear(&mut self, event: &RunEvent) {
        let RunEvent::Output { stream, data } = event else { return };
        let mut heard = self.lock().unwrap_or_else(PoisonError::into_inner);
        let room = SAID_BYTES_MAX - heard.written.len();
        heard.written.extend_from_slice(&data[..data.len().min(room)]);
        if *stream == Stream::Stdout {
            heard.decoder.feed(data);
        }
    }
}

/// Reads a compiler's output: its errors with their positions, or its first line if no error is recognised.
fn read_diagnostics(written: &[u8], status: i32, runtime: &Runtime, repair: &Repair) -> Validation {
    let text = String::from_utf8_lossy(written);
    if status == 0 {
        return Validation { valid: true, ..Validation::default() };
    }
    let finding = |said: Said| Finding { line: said.line, column: said.column, message: said.message };
    let mut errors: Vec<Finding> =
        runtime.compile_errors(&text, runtime.source(), FINDINGS_MAX).into_iter().map(finding).collect();
    // The last line of a compiler often says only that there were errors.
    if errors.iter().any(|error| error.line.is_some()) {
        errors.retain(|error| error.line.is_some() || error.message.contains(':'));
    }
    if errors.is_empty() {
        return gave_up(text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it does not compile"));
    }
    let mut validation = Validation::default();
    // A compiler that misses a package has read the program, and has not looked at its types.
    errors.retain(|error| {
        let Some(path) = missing::in_message(runtime.name(), &error.message) else { return true };
        let line = error.line.map(|line| line.to_string()).unwrap_or_default();
        let remedy = repair.of_module(runtime.name(), &path);
        validation.add_missing(&path, &line, remedy.as_deref().unwrap_or(NOT_INSTALLED));
        false
    });
    Validation { valid: errors.is_empty(), errors, ..validation }
}

/// The error for a check that a limit ended: the program may be valid or not. A parser that crashes has met
/// something that its interpreter cannot read either.
fn undecided(answer: &Answer) -> Option<RunError> {
    const SIGKILL: i32 = 9;
    const SIGXCPU: i32 = 24;
    let (reason, is_late) = match answer {
        Answer::Late | Answer::Ended(_, Exit::Signal(SIGXCPU)) => ("the parser did not finish in time", true),
        Answer::Limit | Answer::Ended(_, Exit::Signal(SIGKILL)) => ("the parser reached a limit", false),
        Answer::Ended(..) | Answer::Failed(_) => return None,
    };
    let message = format!("whether the program is valid is not known: {reason}");
    let mut error = RunError::new("check_undecided", message)
        .remedy("run the program instead, or check it in smaller parts");
    error.retryable = is_late;
    error.retry_after_ms = is_late.then_some(RETRY_MS);
    Some(error)
}

fn gave_up(message: &str) -> Validation {
    let error = Finding { line: None, column: None, message: message.to_owned() };
    Validation { errors: vec![error], ..Validation::default() }
}

fn understand(messages: &[Vec<String>], runtime: &Runtime, repair: &Repair) -> Validation {
    let mut validation = Validation::default();
    for message in messages {
        let fields: Vec<&str> = message.iter().map(String::as_str).collect();
        match fields.as_slice() {
            ["error", line, column, text] => validation.errors.push(Finding {
                line: line.parse().ok(),
                column: column.parse().ok(),
                message: (*text).to_owned(),
            }),
            ["missing", module, line, remedy] => {
                let repaired = repair.of_module(runtime.name(), module).map(|call| {
                    let meant =
                        remedy.split_once(OTHERWISE).filter(|(meant, _)| meant.len() < MEANT_BYTES_MAX);
                    meant.map(|(meant, _)| format!("{meant}{OTHERWISE}{call}")).unwrap_or(call)
                });
                validation.add_missing(module, line, repaired.as_deref().unwrap_or(remedy));
            }
            ["import", module, line] if !is_there(module, runtime) => {
                let repaired = repair.of_module(runtime.name(), module);
                let remedy = repaired.as_deref().unwrap_or(NOT_INSTALLED);
                validation.add_missing(package(module), line, remedy);
            }
            ["note", text] => validation.notes.push((*text).to_owned()),
            _ => {}
        }
    }
    validation.errors.truncate(FINDINGS_MAX);
    validation.missing_imports.truncate(FINDINGS_MAX);
    validation.notes.truncate(FINDINGS_MAX);
    validation.valid = validation.errors.is_empty();
    validation
}

impl Validation {
    fn add_missing(&mut self, module: &str, line: &str, remedy: &str) {
        if !self.missing_imports.iter().any(|known| known.module == module) {
            let missing = MissingImport {
                module: module.to_owned(),
                line: line.parse().ok(),
                remedy: remedy.to_owned(),
            };
            self.missing_imports.push(missing);
        }
    }
}

/// Whether an import would be found: a file (which may come with the run), a part of the interpreter, or a
/// package.
fn is_there(module: &str, runtime: &Runtime) -> bool {
    let is_file =
        module.starts_with(['.', '/', '#']) || module.contains("://") || module.starts_with("data:");
    let name = module.strip_prefix("node:").unwrap_or(module);
    is_file
        || runtime.modules().iter().any(|known| known == name)
        || runtime.packages().contains_key(package(module))
}

/// The package of a module: `@scope/name`, or `name` of `name/part`.
fn package(module: &str) -> &str {
    let mut slashes = module.match_indices('/').map(|(at, _)| at);
    let end = if module.starts_with('@') { slashes.nth(1) } else { slashes.next() };
    &module[..end.unwrap_or(module.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_no_verdict() {
        let ended = |exit| Answer::Ended(Box::default(), exit);
        for (answer, is_retryable) in [
            (Answer::Late, true),
            (ended(Exit::Signal(24)), true),
            (Answer::Limit, false),
            (ended(Exit::Signal(9)), false),
        ] {
            let error = undecided(&answer).unwrap();
            assert_eq!((error.code.as_ref(), error.retryable), ("check_undecided", is_retryable));
        }
        for answer in [ended(Exit::Code(0)), ended(Exit::Signal(11)), Answer::Failed(GuestError::Gone)] {
            assert!(undecided(&answer).is_none());
        }
    }

    #[test]
    fn a_package_is_the_first_part_of_a_name() {
        assert_eq!(package("lodash/fp"), "lodash");
        assert_eq!(package("@a/b/c"), "@a/b");
        assert_eq!(package("x"), "x");
    }
}
