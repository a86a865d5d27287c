//! How a run ended, decided from what the host measured and did. A program reports only its own exit status.
//!
//! A limit becomes the outcome only if the program failed and the host's counter for that limit increased. A
//! program that succeeds although a counter increased gets a warning.

use sandbox::{Ending, Limits, Outcome, STACK_BYTES, Usage};
use wire::Exit;

use crate::conversation::Stop;
use crate::result::RunError;

/// What ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The main process ended by itself.
    Program(Exit),
    /// The program could not be prepared. The value is the exit of the preparer.
    Compile(Exit),
    /// The wall-clock limit.
    Clock,
    /// The output limit.
    Output,
    /// A limit that the backend watches.
    Watch(Ending),
    /// The caller or an operator ended the run.
    Stopped(Stop),
    /// The guest is gone or sent malformed messages.
    Lost,
    /// Nothing ran: the kernel in the sandbox refused to create a file, with this errno.
    Unplaced(i32),
    /// Nothing ran: an archive among the inputs could not be unpacked.
    NotUnpacked,
    /// Nothing ran: the interpreter or the program could not be started, with this errno.
    NotStarted(i32),
    /// Nothing ran: the guest could not listen for the program's links, with this errno.
    Unlistened(i32),
}

/// The outcome with its error message and warnings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<RunError>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) fn judge(end: End, usage: &Usage, limits: &Limits) -> Verdict {
    let outcome = outcome(end, usage, limits);
    // A program may wait without end for a process or thread that it was refused.
    let is_told = matches!(outcome, Outcome::Completed | Outcome::TimedOut);
    let warnings = if is_told { warnings(usage, limits) } else { Vec::new() };
    Verdict {
        outcome,
        error: error(outcome, end, limits).map(|error| with_cause(error, end, usage)),
        warnings,
    }
}

fn outcome(end: End, usage: &Usage, limits: &Limits) -> Outcome {
    match end {
        End::Clock | End::Watch(Ending::Cpu) => Outcome::TimedOut,
        End::Output => Outcome::OutputLimit,
        End::Watch(Ending::Memory | Ending::KernelShare) => Outcome::OutOfMemory,
        End::Watch(Ending::Disk) => Outcome::DiskFull,
        End::Stopped(Stop::Cancelled) => Outcome::Cancelled,
        End::Stopped(Stop::Killed) => Outcome::Killed,
        End::Program(Exit::Code(0)) => Outcome::Completed,
        End::Program(exit) => failed(exit, usage, limits),
        End::Compile(exit) => match failed(exit, usage, limits) {
            Outcome::Failed => Outcome::CompileFailed,
            limit => limit,
        },
        End::Watch(Ending::Gone) | End::Lost if usage.oom_kills > 0 => Outcome::OutOfMemory,
        End::Watch(Ending::Gone) | End::Lost => Outcome::Killed,
        End::Unplaced(_) | End::NotUnpacked => Outcome::Refused,
        End::NotStarted(_) | End::Unlistened(_) => Outcome::Unavailable,
    }
}

fn failed(exit: Exit, usage: &Usage, limits: &Limits) -> Outcome {
    const SIGXCPU: i32 = 24;
    const SIGKILL: i32 = 9;
    let cpu_used_up = usage.cpu_us / 1000 >= limits.cpu_ms();
    if usage.oom_kills > 0 {
        Outcome::OutOfMemory
    } else if cpu_used_up
        || (matches!(exit, Exit::Signal(SIGXCPU | SIGKILL)) && nearly_used_up(usage, limits))
    {
        Outcome::TimedOut
    } else if usage.process_refusals > 0 {
        Outcome::ProcessLimit
    } else if usage.disk_full {
        Outcome::DiskFull
    } else {
        Outcome::Failed
    }
}

/// Whether the CPU limit is nearly used up. The kernel's limit counts whole seconds of one process; the host's
/// limit counts all processes.
fn nearly_used_up(usage: &Usage, limits: &Limits) -> bool {
    usage.cpu_us / 1000 + 1000 >= limits.cpu_ms()
}

fn warnings(usage: &Usage, limits: &Limits) -> Vec<String> {
    let mut list = Vec::new();
    if usage.oom_kills > 0 {
        list.push(format!("a process was killed at the memory limit of {} MB", limits.memory_bytes >> 20));
    }
    if usage.process_refusals > 0 {
        list.push(format!("a process or thread was refused at the limit of {}", limits.processes));
    }
    if usage.disk_full {
        list.push(format!("the disk of {} MB was full", limits.disk_bytes >> 20));
    }
    list
}

fn error(outcome: Outcome, end: End, limits: &Limits) -> Option<RunError> {
    let (message, remedy) = match outcome {
        Outcome::Completed | Outcome::Running => return None,
        Outcome::Failed => match end {
            End::Program(Exit::Code(code)) => (format!("the program exited with status {code}"), ""),
            End::Program(Exit::Signal(signal)) => (format!("signal {signal} ended the program"), ""),
            _ => ("the program failed".to_owned(), ""),
        },
        Outcome::TimedOut => (
            format!("stopped after {} ms of time", limits.wall_ms),
            "give a larger timeout_ms, or do less in one run; output up to here is kept",
        ),
        Outcome::OutOfMemory if end == End::Watch(Ending::KernelShare) => (
            "the program held more network sockets, memory in sockets, file locks or epoll watches than one sandbox may"
                .to_owned(),
            "close connections, release locks and receive descriptors that wait in sockets; limits.open_files raises the bound for sockets",
        ),
        Outcome::OutOfMemory => (
            format!("the program needed more than {} MB of memory", limits.memory_bytes >> 20),
            "give a larger limits.memory_mb, or process the data in parts",
        ),
        Outcome::DiskFull => (
            format!("the program filled its disk of {} MB", limits.disk_bytes >> 20),
            "give a larger limits.disk_mb, or remove files no longer needed",
        ),
        Outcome::ProcessLimit => (
            format!("the program wanted more than {} processes and threads", limits.processes),
            "give a larger limits.processes, or use fewer workers",
        ),
        Outcome::OutputLimit => (
            format!("the program wrote more than the {} kB that are kept", limits.output_bytes >> 10),
            "print less, write to a file instead, or give a larger limits.output_kb",
        ),
        Outcome::Cancelled => {
            ("the run was cancelled by its caller, or with the caller's credential".to_owned(), "")
        }
        Outcome::Killed => match end {
            End::Stopped(_) => (
                "the run was ended by an operator, a close of its sandbox or context, or a shutdown"
                    .to_owned(),
                "",
            ),
            _ => (
                "the sandbox ended unexpectedly".to_owned(),
                "run it again; if it persists see `palisade doctor`",
            ),
        },
        Outcome::CompileFailed => match end {
            End::Compile(Exit::Signal(_)) => (
                "the program is nested too deeply for the parser".to_owned(),
                "break long chains and nested expressions up, or move data into an input file",
            ),
            _ => ("the program does not compile".to_owned(), ""),
        },
        Outcome::Refused | Outcome::Unavailable => (String::new(), ""),
    };
    let error = RunError::new(outcome.name(), message);
    Some(if remedy.is_empty() { error } else { error.remedy(remedy) })
}

/// Names the stack as a possible cause of a segmentation fault. The kernel reports the same signal for every invalid
/// access, but a program that filled its stack used at least as much memory.
fn with_cause(error: RunError, end: End, usage: &Usage) -> RunError {
    const SIGSEGV: i32 = 11;
    if end != End::Program(Exit::Signal(SIGSEGV)) || usage.memory_peak_bytes < STACK_BYTES {
        return error;
    }
    let cause = format!(
        "a memory access that is not allowed, or a stack overflow: the stack has {} MB (`ulimit -s`)",
        STACK_BYTES >> 20
    );
    RunError { cause: Some(cause), ..error }
        .remedy("if it recurses, bound the depth or use a loop; check pointers and bounds")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome_of(end: End, usage: Usage) -> Outcome {
        judge(end, &usage, &Limits::default()).outcome
    }

    const FAILED: End = End::Program(Exit::Code(1));
    const OOM: Usage = Usage {
        oom_kills: 1,
        cpu_us: 0,
        memory_peak_bytes: 0,
        processes_peak: 0,
        process_refusals: 0,
        disk_full: false,
    };

    #[test]
    fn a_limit_is_the_verdict_only_when_the_program_failed() {
        assert_eq!(outcome_of(FAILED, OOM), Outcome::OutOfMemory);
        let verdict = judge(End::Program(Exit::Code(0)), &OOM, &Limits::default());
        assert_eq!(verdict.outcome, Outcome::Completed);
        assert_eq!(verdict.warnings.len(), 1);
        let refused = Usage { process_refusals: 1, ..Usage::default() };
        let verdict = judge(End::Clock, &refused, &Limits::default());
        assert_eq!((verdict.outcome, verdict.warnings.len()), (Outcome::TimedOut, 1));
    }

    #[test]
    fn each_counter_has_its_outcome() {
        let none = Usage::default();
        assert_eq!(outcome_of(FAILED, none), Outcome::Failed);
        assert_eq!(outcome_of(FAILED, Usage { process_refusals: 1, ..none }), Outcome::ProcessLimit);
        assert_eq!(outcome_of(FAILED, Usage { disk_full: true, ..none }), Outcome::DiskFull);
        let all_cpu = Usage { cpu_us: 30_000_000, ..none };
        assert_eq!(outcome_of(End::Program(Exit::Signal(24)), all_cpu), Outcome::TimedOut);
    }

    #[test]
    fn a_program_that_was_never_ready_did_not_compile() {
        let none = Usage::default();
        assert_eq!(outcome_of(End::Compile(Exit::Code(1)), none), Outcome::CompileFailed);
        assert_eq!(outcome_of(End::Compile(Exit::Signal(6)), none), Outcome::CompileFailed);
        assert_eq!(outcome_of(End::Compile(Exit::Signal(9)), OOM), Outcome::OutOfMemory);
    }

    #[test]
    fn a_signal_of_its_own_is_just_a_failure() {
        assert_eq!(outcome_of(End::Program(Exit::Signal(9)), Usage::default()), Outcome::Failed);
        assert_eq!(outcome_of(End::Program(Exit::Signal(24)), Usage::default()), Outcome::Failed);
    }

    #[test]
    fn a_segmentation_fault_may_be_a_stack_overflow_if_the_memory_was_used() {
        let cause = |signal, memory_peak_bytes| {
            let usage = Usage { memory_peak_bytes, ..Usage::default() };
            judge(End::Program(Exit::Signal(signal)), &usage, &Limits::default()).error.unwrap().cause
        };
        assert!(cause(11, 9 << 20).is_some_and(|cause| cause.contains("stack overflow")));
        assert_eq!((cause(11, 1 << 20), cause(6, 9 << 20)), (None, None));
    }

    #[test]
    fn what_the_host_did_is_what_it_says() {
        let none = Usage::default();
        assert_eq!(outcome_of(End::Clock, none), Outcome::TimedOut);
        assert_eq!(outcome_of(End::Output, none), Outcome::OutputLimit);
        assert_eq!(outcome_of(End::Stopped(Stop::Cancelled), none), Outcome::Cancelled);
        assert_eq!(outcome_of(End::Stopped(Stop::Killed), none), Outcome::Killed);
        assert_eq!(outcome_of(End::Lost, none), Outcome::Killed);
        assert_eq!(outcome_of(End::Lost, OOM), Outcome::OutOfMemory);
    }
}
