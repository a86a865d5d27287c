//! `palisade run`: runs one program with the streams and exit status of this process.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use engine::packages::wanted;
use engine::{Caller, Given, RunError, RunEvent, RunRequest, RunResult, Stdin, Stop};
use policy::Ask;
use sandbox::Outcome;
use tokio::sync::{mpsc, oneshot};
use wire::{Exit, Stream};

use terminal::{INTERRUPTED, OTHER_LIMIT, OUTPUT_LIMIT, OWN_FAILURE, REFUSED, TIMED_OUT, complain};

use super::inputs;
use super::install_progress::told_progress;
use super::program::{Program, ProgramArguments, ProgramOrigin};
use super::questions;
use super::save::{self, Existing};
use super::screen::{ControlSequences, Screen};
use super::time::parse_time_ms;
use super::words;
use crate::machine::{self, Machine, ServerMode};
use crate::options::Options;
use crate::walls::Named;
use ::mcp::view::RunView;
use ::mcp::{languages, render};

const USAGE: &str = "palisade run [OPTIONS] <LANG> [FILE|-] [ARGS]...
       palisade run [OPTIONS] <LANG> -c <CODE> [ARGS]...";

const AFTER_HELP: &str = "\
Examples:
  palisade run python script.py one --two          options behind the file are the script's
  palisade run python --input data.csv script.py   a file beside the script, in /workspace
  palisade run python --input . script.py          everything beside the script: modules, data
  palisade run python --input lib=. script.py      what is in lib, without the folder itself
  palisade run bash --input p.tgz --unpack -c make a project in one archive
  palisade run python --package pandas report.py   with a package of PyPI, npm or Go's proxy

A folder is placed with everything in it, up to 64 files and 16 MB, except names that begin with a dot,
__pycache__, node_modules, and symbolic links, which are not followed.
On a terminal, control characters of the program are shown as text such as ^[; --raw lets them through.

Exit status: the program's own; 128+N when signal N ended it; and
  122  output limit        123  memory, disk or process limit
  124  timed out           125  Palisade itself failed, or is too busy
  126  refused             130  interrupted";

/// Maximum number of queued pieces of standard input and of events.
const CHANNEL_PIECES: usize = 16;
const READ_BYTES: usize = 64 * 1024;
/// The most that is shown of each stream of a compiler.
const COMPILER_BYTES_MAX: usize = 64 * 1024;
/// How long a reader has to take the remaining output of a run that a limit ended.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, override_usage = USAGE)]
pub(crate) struct RunArguments {
    /// Language of the program
    #[arg(value_name = "LANG")]
    language: String,
    #[command(flatten)]
    program: ProgramArguments,
    /// Print the whole result as JSON instead of the program's streams
    #[arg(long)]
    json: bool,
    /// Place a file or a folder in the workspace before the run (repeatable)
    #[arg(long = "input", value_name = "PATH[=NAME]")]
    inputs: Vec<String>,
    /// Unpack the archives among the inputs (.zip, .tar, .tar.gz and so on) in the sandbox before the run
    #[arg(long, requires = "inputs")]
    unpack: bool,
    /// Copy the files that the program made, and the figures that it showed, into this directory
    #[arg(long = "output-dir", value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Replace files in that directory that exist already
    #[arg(long, requires = "output_dir")]
    force: bool,
    /// Let control sequences of the program reach the terminal
    #[arg(long)]
    raw: bool,
    /// Bind a variable, given as JSON (repeatable)
    #[arg(long = "var", value_name = "NAME=JSON")]
    variables: Vec<String>,
    /// Set an environment variable of the program (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Let the program reach what the configuration names so (repeatable; see `palisade access list`)
    #[arg(long, value_name = "NAME")]
    access: Vec<String>,
    /// Install a package for the run, for example pandas or 'pandas>=2' (repeatable)
    #[arg(long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Run behind this wall: native, runc, crun, gvisor, docker, podman, or own_kernel
    /// for any with a kernel of its own
    #[arg(long, value_name = "NAME")]
    wall: Option<String>,
    /// Wall-clock limit, for example 500ms, 5s, 2m, 1h; a number without a unit is seconds
    #[arg(long, value_name = "TIME", value_parser = parse_time_ms)]
    timeout: Option<u64>,
    /// Memory limit in MB
    #[arg(long, value_name = "MB")]
    memory_mb: Option<u64>,
    /// Processor cores, fractions allowed
    #[arg(long, value_name = "N")]
    cpus: Option<f64>,
    /// Processes and threads
    #[arg(long, value_name = "N")]
    processes: Option<u64>,
    /// Disk limit in MB
    #[arg(long, value_name = "MB")]
    disk_mb: Option<u64>,
    /// Open files of one process
    #[arg(long, value_name = "N")]
    open_files: Option<u64>,
    /// Output kept, in kB; more ends the run
    #[arg(long, value_name = "KB")]
    output_kb: Option<u64>,
    /// Show how long each part took, on standard error
    #[arg(long)]
    phases: bool,
}

pub(crate) fn main(options: &Options, arguments: RunArguments) -> ExitCode {
    let request = match request(&arguments) {
        Ok(request) => request,
        Err(error) => return finish(&arguments, &RunResult::refused(error), Shown::Nothing),
    };
    let show = Show::of(&arguments);
    let options = &Options { walls: Named::of_run(arguments.wall.as_deref()), ..options.clone() };
    let run = machine::with_engine(options, ServerMode::OneShot, |machine| run(machine, request, show));
    match run {
        Ok((result, shown)) => finish(&arguments, &result, shown),
        Err(error) => {
            complain(&error.to_string(), None);
            ExitCode::from(OWN_FAILURE)
        }
    }
}

/// What is shown of the output while the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Show {
    /// The result has the output.
    Nothing,
    Live(ControlSequences),
}

impl Show {
    fn of(arguments: &RunArguments) -> Self {
        match arguments.json {
            true => Self::Nothing,
            false => Self::Live(ControlSequences::of_raw(arguments.raw)),
        }
    }
}

/// Whether output was shown while the program ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Something,
}

async fn run(machine: Machine, mut request: RunRequest, show: Show) -> (RunResult, Shown) {
    start_reading_stdin();
    if let Err(error) = add_packages_of_code(&machine, &mut request).await {
        return (RunResult::refused(error), Shown::Nothing);
    }
    if show != Show::Nothing {
        request.install_progress = told_progress();
    }
    let (events, news) = mpsc::channel::<RunEvent>(CHANNEL_PIECES);
    let (stop, stopped) = oneshot::channel();
    // The reader of standard output may be slow; that must not stop the clock.
    let (tell_shown, all_shown) = oneshot::channel();
    let sequences = if let Show::Live(sequences) = show { sequences } else { ControlSequences::MadeVisible };
    std::thread::spawn(move || {
        // The receiver may be gone.
        tell_shown.send(show_all(news, Screen::new(sequences))).ok();
    });
    let events = (show != Show::Nothing).then_some(events);
    let caller = Caller::local();
    let running = machine.engine.run(&caller, request, events, stopped);
    tokio::pin!(running);
    let interrupted = interruption();
    tokio::pin!(interrupted);
    let told = questions::tell(machine.engine.gatekeeper());
    tokio::pin!(told);
    let mut stop = Some(stop);
    let result = loop {
        tokio::select! {
            biased;
            result = &mut running => break result,
            () = &mut interrupted, if stop.is_some() => {
                if let Some(stop) = stop.take() { stop.send(Stop::Cancelled).ok(); }
            }
            () = &mut told => {}
        }
    };
    // The whole output of a program that ended by itself is shown. A run that was ended does not wait for a
    // reader.
    let is_own_end = matches!(result.outcome, Outcome::Completed | Outcome::Failed);
    let patience = tokio::time::sleep(if is_own_end { Duration::MAX } else { FLUSH_PATIENCE });
    let shown = tokio::select! {
        shown = all_shown => shown.unwrap_or(Shown::Nothing),
        () = patience => Shown::Something,
        () = &mut interrupted, if stop.is_some() => Shown::Something,
    };
    (result, shown)
}

fn show_all(mut news: mpsc::Receiver<RunEvent>, mut screen: Screen) -> Shown {
    let mut shown = Shown::Nothing;
    while let Some(event) = news.blocking_recv() {
        if let RunEvent::Output { stream, data } = event {
            screen.show(stream, &data);
            shown = Shown::Something;
        }
    }
    screen.end();
    shown
}

/// Completes when a person or the system asks this process to end.
async fn interruption() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

fn finish(arguments: &RunArguments, result: &RunResult, shown: Shown) -> ExitCode {
    let displays = save::displays(&result.execution().displays, &result.execution().artifacts);
    let existing = if arguments.force { Existing::Replaced } else { Existing::Refused };
    if let Some(directory) = &arguments.output_dir
        && let Err(error) =
            save::files(directory, result.execution().artifacts.iter().chain(&displays), existing)
    {
        let remedy = (error.kind() == io::ErrorKind::AlreadyExists)
            .then_some("--force replaces existing files; or give another --output-dir");
        complain(&format!("the program's files could not be saved: {error}"), remedy);
        return ExitCode::from(OWN_FAILURE);
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(&RunView::whole(result, usize::MAX)).unwrap_or_default();
        let mut out = io::stdout().lock();
        writeln!(out, "{text}").ok();
    } else {
        if result.outcome == Outcome::CompileFailed && shown == Shown::Nothing {
            show_compiler(result, ControlSequences::of_raw(arguments.raw));
        }
        explain(result, arguments.output_dir.is_some());
    }
    if arguments.phases {
        for (name, us) in &result.execution().phases.parts_us {
            eprintln!("{name:>14} {us:>7} us");
        }
    }
    exit_code(result)
}

/// Shows the output of the compiler. It is not part of the program's output, so no event had it.
fn show_compiler(result: &RunResult, sequences: ControlSequences) {
    let mut screen = Screen::new(sequences);
    for output in [&result.execution().stdout, &result.execution().stderr] {
        let (head, rest) = output.split_at(output.len().min(COMPILER_BYTES_MAX));
        screen.show(Stream::Stderr, head);
        if !head.is_empty() && !head.ends_with(b"\n") {
            screen.show(Stream::Stderr, b"\n");
        }
        if !rest.is_empty() {
            let message = format!("the compiler wrote {} more bytes", rest.len());
            complain(&message, Some("--json shows all of it"));
        }
    }
    screen.end();
}

/// A failed program prints its own error. This explains what Palisade did to the run.
fn explain(result: &RunResult, is_saved: bool) {
    for (index, display) in result.execution().displays.iter().enumerate().filter(|_| !is_saved) {
        let remedy = (index == 0).then_some("--output-dir DIR keeps what a program shows");
        complain(&render::display_line(index + 1, display), remedy);
    }
    for warning in &result.warnings {
        complain(&words::of_command_line(&format!("warning: {warning}")), None);
    }
    for clamp in &result.clamped {
        complain(&words::clamped(&clamp.limit, &clamp.given.to_string(), &clamp.asked.to_string()), None);
    }
    if let (Outcome::Failed, Some(Exit::Signal(signal))) = (result.outcome, result.execution().exit) {
        complain(&render::killed_by(signal), None);
    }
    let own_failure = matches!(result.outcome, Outcome::Completed | Outcome::Failed);
    if let Some(remedy) =
        result.error.as_ref().filter(|_| own_failure).and_then(|error| error.remedy.as_ref())
    {
        complain(&words::of_command_line(remedy), None);
    }
    if let Some(error) = result.error.as_ref().filter(|_| !own_failure) {
        let cause = error.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
        let message = match (&error.cause, result.outcome) {
            // The compiler's own words were shown.
            (Some(cause), Outcome::CompileFailed) => cause.clone(),
            _ => format!("{}{cause}", error.message),
        };
        let message = words::of_command_line(&format!("{}: {message}", result.outcome.name()));
        complain(&message, error.remedy.as_deref().map(words::of_command_line).as_deref());
    }
}

fn exit_code(result: &RunResult) -> ExitCode {
    let of_program = match result.execution().exit {
        Some(Exit::Code(code)) => u8::try_from(code).unwrap_or(1),
        Some(Exit::Signal(signal)) => u8::try_from(128 + signal).unwrap_or(255),
        None => OWN_FAILURE,
    };
    ExitCode::from(match result.outcome {
        Outcome::Completed | Outcome::Failed | Outcome::CompileFailed => of_program,
        Outcome::TimedOut => TIMED_OUT,
        Outcome::OutputLimit => OUTPUT_LIMIT,
        Outcome::OutOfMemory | Outcome::DiskFull | Outcome::ProcessLimit => OTHER_LIMIT,
        Outcome::Cancelled => INTERRUPTED,
        Outcome::Refused => REFUSED,
        Outcome::Killed | Outcome::Running | Outcome::Unavailable => OWN_FAILURE,
    })
}

fn request(arguments: &RunArguments) -> Result<RunRequest, RunError> {
    let Program { code, args, origin } = arguments.program.read(&arguments.language)?;
    let language = languages::canonical(&arguments.language)?.to_owned();
    let mut inputs = inputs::read(&arguments.inputs, origin.file())?;
    if arguments.unpack {
        inputs::unpack(&mut inputs)?;
    }
    for note in inputs.notes.iter().filter(|_| !arguments.json) {
        complain(note, None);
    }
    let stdin = if origin == ProgramOrigin::Stdin { Stdin::Empty } else { own_stdin() };
    let own_name = |file: &Path| file.file_name().map(|name| name.to_string_lossy().into_owned());
    let bound = arguments.variables.iter().map(|text| variable(text));
    let set = arguments.environment.iter().map(|text| environment_variable(text));
    let variables = bound.chain(set).collect::<Result<_, _>>()?;
    let packages = wanted(&arguments.packages, &language)?;
    Ok(RunRequest {
        language,
        code,
        source_name: origin.file().and_then(own_name),
        args,
        stdin,
        variables,
        given: Given::default(),
        inputs: inputs.files,
        sandbox: None,
        wall: arguments.wall.clone(),
        wall_lists: Vec::new(),
        ask: Ask {
            timeout_ms: arguments.timeout,
            memory_mb: arguments.memory_mb,
            cpus: arguments.cpus,
            processes: arguments.processes,
            disk_mb: arguments.disk_mb,
            open_files: arguments.open_files,
            output_kb: arguments.output_kb,
        },
        collect_files: arguments.output_dir.is_some(),
        compile_anew: false,
        cold: false,
        access: arguments.access.clone(),
        packages,
        install_progress: None,
        run_id: None,
        grants: Vec::new(),
        terminal: None,
        decision: None,
    })
}

/// Adds the packages that the program asks for itself.
async fn add_packages_of_code(machine: &Machine, request: &mut RunRequest) -> Result<(), RunError> {
    let asked = machine.engine.packages_of_code(&request.language, &request.code).await?;
    request.packages.extend(wanted(&asked, &request.language)?);
    request.packages.sort();
    request.packages.dedup();
    Ok(())
}

fn variable(text: &str) -> Result<(String, serde_json::Value), RunError> {
    let bad = |message: String| {
        RunError::new("bad_variables", message)
            .remedy("give NAME=JSON, for example --var 'names=[\"a\", \"b\"]'")
    };
    let (name, json) = text.split_once('=').ok_or_else(|| bad(format!("`{text}` is not NAME=JSON")))?;
    let value = serde_json::from_str(json)
        .map_err(|error| bad(format!("the value of {name} is not JSON: {error}")))?;
    Ok((name.to_owned(), value))
}

/// An environment variable as `run` of the MCP server takes it: a variable whose name begins with `$`.
pub(crate) fn environment_variable(text: &str) -> Result<(String, serde_json::Value), RunError> {
    let (name, value) = text.split_once('=').ok_or_else(|| {
        RunError::new("bad_variables", "an environment variable has no value")
            .remedy("give NAME=VALUE, for example --env API_URL=http://localhost")
    })?;
    Ok((format!("${name}"), value.into()))
}

/// Reads standard input on a separate thread, as it arrives. The reading starts only when the program runs.
fn own_stdin() -> Stdin {
    if is_nothing(&io::stdin()) {
        return Stdin::Empty;
    }
    let (sender, receiver) = mpsc::channel(CHANNEL_PIECES);
    STDIN.with(|slot| slot.replace(Some(sender)));
    Stdin::Stream(receiver)
}

/// Whether a stream is the null device, which needs no thread.
fn is_nothing(stream: &impl std::os::fd::AsFd) -> bool {
    let null = fs::metadata("/dev/null").map(|found| found.rdev());
    let found = rustix::fs::fstat(stream);
    matches!((found, null), (Ok(found), Ok(null)) if found.st_rdev == null && null != 0)
}

thread_local! {
    /// Holds the sending end until threads may exist: the spawner must be forked first.
    static STDIN: std::cell::RefCell<Option<mpsc::Sender<Vec<u8>>>> = const { std::cell::RefCell::new(None) };
}

/// Starts the reading; called once the spawner exists.
fn start_reading_stdin() {
    let Some(sender) = STDIN.with(std::cell::RefCell::take) else { return };
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut bytes = vec![0_u8; READ_BYTES];
        while let Ok(count @ 1..) = stdin.read(&mut bytes) {
            if sender.blocking_send(bytes[..count].to_vec()).is_err() {
                break;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_json() {
        assert_eq!(variable("a=[1]").unwrap(), ("a".to_owned(), serde_json::json!([1])));
        assert!(variable("a").is_err() && variable("a=x").is_err());
    }
}
