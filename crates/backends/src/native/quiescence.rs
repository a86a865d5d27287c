//! Whether any part of a program can still run in a sandbox that was killed.
//!
//! The kernel needs time to tear down a process, mostly to release its memory. A thread that has no memory
//! any more can never execute another instruction. A caller that waits only until nothing runs therefore need
//! not wait for the rest.
//!
//! ```text
//! process 1 killed -> no new processes (the group's limit) -> every other thread of the group without memory
//!                                                          -> all who were counted are listed -> still
//! ```
//! A process that was being created when the limit was lowered is counted, but perhaps not listed yet. Where
//! dead threads are counted as well, a second list settles it: after the first one no process can be created
//! any more. Process 1 is the guest. It was killed before, and the kernel lets no killed process continue.

use std::io;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::cgroup::CgroupSet;
use super::inhabitants::Inhabitants;
use super::watched;

/// Number of looks before the death itself is awaited.
const LOOKS_MAX: usize = 24;
/// Pause between two looks. A killed process needs a processor to come to rest, perhaps this one.
const PAUSE_NS: i64 = 40_000;
/// With more threads than this, looking takes as long as waiting.
const THREADS_MAX: usize = 64;

/// Whether nothing in those groups except process 1 can run any more, and no process can be created there.
/// The caller has killed process 1 and lowered the limit of processes.
pub(super) async fn is_quiesced(
    cgroups: &CgroupSet,
    known: &Inhabitants,
    process_1: i32,
) -> io::Result<bool> {
    let is_quiet_now = || is_quiet_now(cgroups, known, process_1);
    if is_quiet_now()? {
        return Ok(true);
    }
    let timer = watched(rustix::time::timerfd_create(
        TimerfdClockId::Monotonic,
        TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
    )?)?;
    for _ in 1..LOOKS_MAX {
        // The runtime's own timer has a resolution of milliseconds.
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: 0, tv_nsec: PAUSE_NS },
        };
        rustix::time::timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        timer.readable().await?.clear_ready();
        if is_quiet_now()? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_quiet_now(cgroups: &CgroupSet, known: &Inhabitants, process_1: i32) -> io::Result<bool> {
    // Counted first: from here on the number can only decrease.
    let count = cgroups.threads_count();
    let listed = cgroups.threads()?;
    let may_run = |thread: i32| thread != process_1 && known.may_run(thread);
    if listed.len() > THREADS_MAX || listed.iter().copied().any(may_run) {
        return Ok(false);
    }
    let are_all_listed = count == Some(listed.len() as u64);
    Ok(are_all_listed || cgroups.threads()?.iter().all(|thread| listed.contains(thread)))
}
