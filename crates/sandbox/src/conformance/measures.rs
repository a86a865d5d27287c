//! What the host measures and watches: processor time, memory, disk.
//!
//! A limit is seen in one of two ways. The kernel may stop the program, and then usage says so; or `watch`
//! completes. Both keep the contract.

use super::wait::{First, first, within};
use super::{Shell, Subject, destroy, holds, run};
use crate::{Ending, Limits, Sandbox, SandboxSpec, Usage};

/// Uses some hundred milliseconds of processor time.
const WORK: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done";
/// The least processor time that this can take.
const WORK_US_MIN: u64 = 20_000;
/// Never ends by itself.
const ENDLESS: &str = "while :; do :; done";
/// Doubles a variable until memory ends.
const HUNGRY: &str = "x=0123456789abcdef; while :; do x=$x$x; done";
/// Writes more than the disk may have.
const VERBOSE: &str = "head -c 64000000 /dev/zero > big; sleep 1; echo $?";

const SMALL_MEMORY_BYTES: u64 = 64 << 20;
const SMALL_DISK_BYTES: u64 = 8 << 20;

async fn usage(sandbox: &mut Box<dyn Sandbox>) -> Result<Usage, String> {
    within("usage returns", sandbox.usage()).await
}

async fn measure_anew(sandbox: &mut Box<dyn Sandbox>, limits: &Limits) -> Result<(), String> {
    within("measure_anew returns", sandbox.measure_anew(limits, None)).await
}

pub(super) async fn check_usage(subject: Subject<'_>) -> Result<(), String> {
    let limits = Limits::default();
    let (mut sandbox, mut shell) = subject.inhabited(&SandboxSpec::default()).await?;
    measure_anew(&mut sandbox, &limits).await?;
    run(&mut shell, WORK).await?;
    let worked = usage(&mut sandbox).await?;
    holds(worked.cpu_us >= WORK_US_MIN, "usage counts processor time", &worked)?;
    holds(worked.memory_peak_bytes > 0, "usage counts memory", &worked)?;
    holds(worked.processes_peak > 0, "usage counts processes", &worked)?;
    holds(
        worked.oom_kills == 0 && worked.process_refusals == 0,
        "usage counts no limit before it is reached",
        &worked,
    )?;
    run(&mut shell, WORK).await?;
    let more = usage(&mut sandbox).await?;
    holds(more.cpu_us >= worked.cpu_us + WORK_US_MIN, "usage grows with the work", &(worked, more))?;
    measure_anew(&mut sandbox, &limits).await?;
    let anew = usage(&mut sandbox).await?;
    holds(anew.cpu_us < WORK_US_MIN, "a new measurement begins at nothing", &anew)?;
    run(&mut shell, WORK).await?;
    let last = usage(&mut sandbox).await?;
    let end = destroy(&mut sandbox).await?;
    holds(end.cpu_us >= last.cpu_us, "the final usage includes everything", &(last, end))
}

pub(super) async fn check_watch(subject: Subject<'_>) -> Result<(), String> {
    watch_waits_while_no_limit_is_reached(subject).await?;
    processor_time_is_watched(subject).await?;
    memory_is_limited(subject).await?;
    disk_is_limited(subject).await
}

/// How a command or the watch ended.
async fn raced(
    sandbox: &mut Box<dyn Sandbox>,
    shell: &mut Box<dyn Shell>,
    command: &str,
) -> Result<First<Ending, Result<String, String>>, String> {
    let clause = format!("`{command}` ends or a limit is noticed");
    within(&clause, first(sandbox.watch(), shell.run(command))).await
}

async fn watch_waits_while_no_limit_is_reached(subject: Subject<'_>) -> Result<(), String> {
    let (mut sandbox, mut shell) = subject.inhabited(&SandboxSpec::default()).await?;
    measure_anew(&mut sandbox, &Limits::default()).await?;
    // Twice, because a watch may be dropped and begun again.
    for _ in 0..2 {
        match raced(&mut sandbox, &mut shell, "echo fine").await? {
            First::Other(output) => holds(output == Ok("fine\n".to_owned()), "a command runs", &output)?,
            First::One(ending) => {
                return Err(format!("watch waits while no limit is reached; found {ending:?}"));
            }
        }
    }
    Ok(())
}

async fn processor_time_is_watched(subject: Subject<'_>) -> Result<(), String> {
    let (mut sandbox, mut shell) = subject.inhabited(&SandboxSpec::default()).await?;
    let limits = Limits { wall_ms: 200, ..Limits::default() };
    measure_anew(&mut sandbox, &limits).await?;
    match raced(&mut sandbox, &mut shell, ENDLESS).await? {
        First::One(Ending::Cpu) => {}
        First::One(other) => {
            return Err(format!("watch notices the limit of processor time; found {other:?}"));
        }
        First::Other(output) => return Err(format!("a program does not end by itself; found {output:?}")),
    }
    let used = usage(&mut sandbox).await?;
    holds(used.cpu_us >= 200_000, "usage counts the processor time that was watched", &used)
}

async fn memory_is_limited(subject: Subject<'_>) -> Result<(), String> {
    let limits = Limits { memory_bytes: SMALL_MEMORY_BYTES, ..Limits::default() };
    let spec = SandboxSpec { limits: limits.clone(), ..SandboxSpec::default() };
    let (mut sandbox, mut shell) = subject.inhabited(&spec).await?;
    measure_anew(&mut sandbox, &limits).await?;
    let ended = raced(&mut sandbox, &mut shell, HUNGRY).await?;
    let used = destroy(&mut sandbox).await?;
    match ended {
        First::One(Ending::Memory) => Ok(()),
        // The kernel may kill process 1 itself: a kernel of its own holds the memory of all its programs. Then the
        // stream ends and the watch completes at the same moment.
        First::One(Ending::Gone) | First::Other(_) => {
            holds(used.oom_kills > 0, "usage counts kills for lack of memory", &used)
        }
        First::One(other) => Err(format!("watch notices the limit of memory; found {other:?}")),
    }
}

async fn disk_is_limited(subject: Subject<'_>) -> Result<(), String> {
    let limits = Limits { disk_bytes: SMALL_DISK_BYTES, ..Limits::default() };
    let spec = SandboxSpec { limits: limits.clone(), ..SandboxSpec::default() };
    let (mut sandbox, mut shell) = subject.inhabited(&spec).await?;
    measure_anew(&mut sandbox, &limits).await?;
    match raced(&mut sandbox, &mut shell, VERBOSE).await? {
        First::One(Ending::Disk) => Ok(()),
        First::One(other) => Err(format!("watch notices the limit of the disk; found {other:?}")),
        First::Other(output) => {
            let used = usage(&mut sandbox).await?;
            holds(used.disk_full, "usage says that the disk was full", &(used, output))
        }
    }
}

pub(super) async fn check_look(subject: Subject<'_>) -> Result<(), String> {
    let (mut sandbox, mut shell) = subject.inhabited(&SandboxSpec::default()).await?;
    let limits = Limits { wall_ms: 10, ..Limits::default() };
    measure_anew(&mut sandbox, &Limits::default()).await?;
    let calm = within("look returns", sandbox.look()).await?;
    holds(calm.is_none(), "look finds nothing while no limit is reached", &calm)?;
    measure_anew(&mut sandbox, &limits).await?;
    run(&mut shell, WORK).await?;
    let found = within("look returns", sandbox.look()).await?;
    holds(found == Some(Ending::Cpu), "look finds the limit of processor time", &found)?;
    measure_anew(&mut sandbox, &Limits::default()).await?;
    let anew = within("look returns", sandbox.look()).await?;
    holds(anew.is_none(), "a new measurement forgets the limits before it", &anew)
}
