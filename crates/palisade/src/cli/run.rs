//! `palisade run`: runs one program with the streams and exit status of this process.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use engine::{Caller, Given, InputFile, RunError, RunEvent, RunRequest, RunResult, Stdin, Stop};
use policy::Ask;
use sandbox::Outcome;
use tokio::sync::{mpsc, oneshot};
use wire::{Exit, Stream};

use terminal::{INTERRUPTED, OTHER_LIMIT, OUTPUT_LIMIT, OWN_FAILURE, REFUSED, TIMED_OUT, complain};

use super::save;
use crate::machine::{self, Machine, ServerMode};
use crate::options::Options;
use ::mcp::render;
use ::mcp::view::RunView;

const EXIT_CODES: &str = "\
Exit status: the program's own; 128+N when signal N ended it; and
  122  output limit        123  memory, disk or process limit
  124  timed out           125  Palisade itself failed, or is too busy
  126  refused             130  interrupted";

/// Maximum number of queued pieces of standard input and of events.
const CHANNEL_PIECES: usize = 16;
const READ_BYTES: usize = 64 * 1024;
/// How long a reader has to take the remaining output of a run that a limit ended.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct RunArguments {
    /// Language of the program
    #[arg(value_name = "LANG")]
    language: String,
    /// File with the program, or - for standard input; with -c the first argument of the program
    #[arg(value_name = "FILE")]
    file: Option<String>,
    /// The program itself
    #[arg(short = 'c', value_name = "CODE")]
    code: Option<String>,
    /// Arguments of the program
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
    /// Print the whole result as JSON instead of the program's streams
    #[arg(long)]
    json: bool,
    /// Place a file in the workspace before the run (repeatable)
    #[arg(long = "input", value_name = "FILE[=NAME]")]
    inputs: Vec<String>,
    /// Copy the files that the program made, and the figures that it showed, into this directory
    #[arg(long = "output-dir", value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Bind a variable, given as JSON (repeatable)
    #[arg(long = "var", value_name = "NAME=JSON")]
    variables: Vec<String>,
    /// Set an environment variable of the program (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Wall-clock limit, for example 500ms, 10s, 2m
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
        Err(error) => return finish(&arguments, &RunResult::refused(error)),
    };
    let run =
        machine::with_engine(options, ServerMode::OneShot, |machine| run(machine, request, arguments.json));
    match run {
        Ok(result) => finish(&arguments, &result),
        Err(error) => {
            complain(&error.to_string(), None);
            ExitCode::from(OWN_FAILURE)
        }
    }
}

async fn run(machine: Machine, request: RunRequest, is_quiet: bool) -> RunResult {
    start_reading_stdin();
    let (events, news) = mpsc::channel::<RunEvent>(CHANNEL_PIECES);
    let (stop, stopped) = oneshot::channel();
    // The reader of standard output may be slow; that must not stop the clock.
    let (shown, all_shown) = oneshot::channel();
    std::thread::spawn(move || {
        show_all(news);
        // The receiver may be gone.
        shown.send(()).ok();
    });
    let events = (!is_quiet).then_some(events);
    let caller = Caller::local();
    let running = machine.engine.run(&caller, request, events, stopped);
    tokio::pin!(running);
    let interrupted = interruption();
    tokio::pin!(interrupted);
    let mut stop = Some(stop);
    let result = loop {
        tokio::select! {
            biased;
            result = &mut running => break result,
            () = &mut interrupted, if stop.is_some() => {
                if let Some(stop) = stop.take() { stop.send(Stop::Cancelled).ok(); }
            }
        }
    };
    // The whole output of a program that ended by itself is shown. A run that was ended does not wait for a
    // reader.
    let is_own_end = matches!(result.outcome, Outcome::Completed | Outcome::Failed);
    let patience = tokio::time::sleep(if is_own_end { Duration::MAX } else { FLUSH_PATIENCE });
    tokio::select! {
        _ = all_shown => {}
        () = patience => {}
        () = &mut interrupted, if stop.is_some() => {}
    }
    result
}

fn show_all(mut news: mpsc::Receiver<RunEvent>) {
    while let Some(event) = news.blocking_recv() {
        show(event);
    }
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

fn show(event: RunEvent) {
    let RunEvent::Output { stream, data } = event;
    // The reader of the output may be gone; that does not affect the program.
    match stream {
        Stream::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(&data).and_then(|()| out.flush()).ok();
        }
        Stream::Stderr => {
            io::stderr().lock().write_all(&data).ok();
        }
    }
}

fn finish(arguments: &RunArguments, result: &RunResult) -> ExitCode {
    let displays = save::displays(&result.execution().displays, &result.execution().artifacts);
    if let Some(directory) = &arguments.output_dir
        && let Err(error) = save::files(directory, result.execution().artifacts.iter().chain(&displays))
    {
        complain(&format!("the program's files could not be saved: {error}"), None);
        return ExitCode::from(OWN_FAILURE);
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(&RunView::whole(result, usize::MAX)).unwrap_or_default();
        let mut out = io::stdout().lock();
        writeln!(out, "{text}").ok();
    } else {
        explain(result, arguments.output_dir.is_some());
    }
    if arguments.phases {
        for (name, us) in &result.execution().phases.parts_us {
            eprintln!("{name:>14} {us:>7} us");
        }
    }
    exit_code(result)
}

/// A failed program prints its own error. This explains what Palisade did to the run.
fn explain(result: &RunResult, is_saved: bool) {
    for (index, display) in result.execution().displays.iter().enumerate().filter(|_| !is_saved) {
        let remedy = (index == 0).then_some("--output-dir DIR keeps what a program shows");
        complain(&render::display_line(index + 1, display), remedy);
    }
    for warning in &result.warnings {
        complain(&format!("warning: {warning}"), None);
    }
    for clamp in &result.clamped {
        complain(
            &format!("{} is {} instead of the {} asked for", clamp.limit, clamp.given, clamp.asked),
            None,
        );
    }
    let own_failure = matches!(result.outcome, Outcome::Completed | Outcome::Failed);
    if let Some(error) = result.error.as_ref().filter(|_| !own_failure) {
        let cause = error.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
        complain(&format!("{}: {}{cause}", result.outcome.name(), error.message), error.remedy.as_deref());
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
    let mut args = arguments.args.clone();
    let (code, stdin) = match (&arguments.code, arguments.file.as_deref()) {
        (Some(code), file) => {
            args.splice(0..0, file.map(str::to_owned));
            (code.clone(), own_stdin())
        }
        (None, Some("-")) => (read_text(&mut io::stdin().lock(), "standard input")?, Stdin::Empty),
        (None, Some(file)) => {
            let mut open = fs::File::open(file).map_err(|error| unreadable("bad_code", file, &error))?;
            (read_text(&mut open, file)?, own_stdin())
        }
        (None, None) => {
            let error = RunError::new("bad_code", "there is no program");
            return Err(error.remedy("give a FILE, - for standard input, or -c CODE"));
        }
    };
    let bound = arguments.variables.iter().map(|text| variable(text));
    let set = arguments.environment.iter().map(|text| environment_variable(text));
    let variables = bound.chain(set).collect::<Result<_, _>>()?;
    Ok(RunRequest {
        language: arguments.language.clone(),
        code,
        args,
        stdin,
        variables,
        given: Given::default(),
        inputs: arguments.inputs.iter().map(|text| input(text)).collect::<Result<_, _>>()?,
        sandbox: None,
        wall: None,
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
    })
}

fn unreadable(code: &str, file: &str, error: &io::Error) -> RunError {
    RunError::new(code, format!("{file} cannot be read: {error}"))
        .remedy("check the path and its permissions")
}

fn read_text(stream: &mut impl Read, name: &str) -> Result<String, RunError> {
    let mut bytes = Vec::new();
    let limit = engine::CODE_BYTES_MAX as u64 + 1;
    stream.take(limit).read_to_end(&mut bytes).map_err(|error| unreadable("bad_code", name, &error))?;
    String::from_utf8(bytes).map_err(|_| {
        RunError::new("bad_code", format!("{name} is not UTF-8 text")).remedy("convert it to UTF-8")
    })
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

fn input(text: &str) -> Result<InputFile, RunError> {
    let (file, name) = text.split_once('=').unwrap_or((text, ""));
    let content = fs::read(file).map_err(|error| unreadable("bad_inputs", file, &error))?;
    let own_name = || Path::new(file).file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(InputFile { path: if name.is_empty() { own_name() } else { name.to_owned() }, content })
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

pub(crate) fn parse_time_ms(text: &str) -> Result<u64, String> {
    let units = [("ms", 1.0), ("s", 1000.0), ("m", 60_000.0), ("", 1000.0)];
    let found = units.iter().find_map(|(unit, factor)| {
        let number = text.strip_suffix(unit)?.parse::<f64>().ok()?;
        (number.is_finite() && number > 0.0).then_some(number * factor)
    });
    found.map(|ms| ms.ceil() as u64).ok_or_else(|| "give a time such as 500ms, 10s or 2m".to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time_ms("500ms"), Ok(500));
        assert_eq!(parse_time_ms("1.5s"), Ok(1500));
        assert_eq!(parse_time_ms("2m"), Ok(120_000));
        assert_eq!(parse_time_ms("3"), Ok(3000));
        for bad in ["", "x", "-1s", "0s", "NaN", "infs"] {
            assert!(parse_time_ms(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(harness::properties())]

        #[test]
        fn a_time_means_the_same_in_every_unit(seconds in 1..1_000_000_u64) {
            let ms = seconds * 1000;
            prop_assert_eq!(parse_time_ms(&format!("{ms}ms")), Ok(ms));
            prop_assert_eq!(parse_time_ms(&format!("{seconds}s")), Ok(ms));
            prop_assert_eq!(parse_time_ms(&seconds.to_string()), Ok(ms));
            prop_assert_eq!(parse_time_ms(&format!("{seconds}m")), Ok(60 * ms));
        }

        #[test]
        fn any_text_is_a_time_above_zero_or_refused(text in "[0-9a-z.+-]{0,8}(ms|s|m)?") {
            prop_assert!(parse_time_ms(&text).is_err() || parse_time_ms(&text).is_ok_and(|ms| ms > 0));
        }
    }

    #[test]
    fn variables_are_json() {
        assert_eq!(variable("a=[1]").unwrap(), ("a".to_owned(), serde_json::json!([1])));
        assert!(variable("a").is_err() && variable("a=x").is_err());
    }
}
