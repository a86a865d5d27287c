//! Whether anything of a program can still run in a sandbox that was killed.
//!
//! The kernel takes its time to take a process apart, most of it to give back memory. From the moment in which a thread
//! has no memory of its own any more it executes nothing: there is no way back. So whoever waits only until nothing runs need
//! not wait for the rest.
//!
//! ```text
//! process 1 killed -> no new processes (the group's limit) -> every other thread of the group without memory
//!                                                          -> all who were counted are listed -> still
//! ```
//! Whoever was being born when the limit was lowered is counted but perhaps not listed yet. Where the dead are counted as
//! well, a second list tells: after the first nobody is born any more. Process 1 is ours: it was killed before, and the
//! kernel lets nobody who was killed go on.

use std::io;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::cgroup::CgroupSet;
use super::inhabitants::Inhabitants;
use super::watched;

/// Looks before the death itself is awaited.
const LOOKS_MAX: usize = 24;
/// Between two looks. Who was killed needs a processor to fall still, perhaps this one.
const PAUSE_NS: i64 = 40_000;
/// With more threads than this, looking takes as long as waiting.
const THREADS_MAX: usize = 64;

/// Whether nothing in those groups but process 1 can run any more, and nothing will be born there. Process 1 was killed and
/// the limit of processes lowered before.
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
        // The runtime's own clock goes by milliseconds.
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
    // Counted first: from here on it can only become less.
    let count = cgroups.threads_count();
    let listed = cgroups.threads()?;
    let may_run = |thread: i32| thread != process_1 && known.may_run(thread);
    if listed.len() > THREADS_MAX || listed.iter().copied().any(may_run) {
        return Ok(false);
    }
    let are_all_listed = count == Some(listed.len() as u64);
    Ok(are_all_listed || cgroups.threads()?.iter().all(|thread| listed.contains(thread)))
}
