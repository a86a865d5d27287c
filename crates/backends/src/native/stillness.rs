//! Whether anything in a sandbox that was killed can still run.
//!
//! The kernel takes its time to take a process apart, most of it to give back memory. From the moment in which a thread
//! has no memory of its own any more it executes nothing: there is no way back. So whoever waits only until nothing runs need
//! not wait for the rest.
//!
//! ```text
//! no new processes (the group's limit) -> every thread of the group without memory -> once more -> still
//! ```
//! The second look is for whoever was being born during the first: after it nobody is born, and all are listed.

use std::io;
use std::time::Duration;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::cgroup::CgroupSet;
use super::{status, watched};

/// Looks before the death itself is awaited.
const LOOKS_MAX: usize = 24;
/// Between two looks. Who was killed needs a processor to fall still, perhaps this one.
const PAUSE: Duration = Duration::from_micros(40);
/// With more threads than this, looking takes as long as waiting.
const THREADS_MAX: usize = 64;

/// Whether nothing in those groups can run any more, and nothing will be born there. The limit of processes was lowered before,
/// so that nobody forks on.
pub(super) async fn has_come(cgroups: &CgroupSet) -> io::Result<bool> {
    let is_still = || Ok::<_, io::Error>(is_still(cgroups)? && is_still(cgroups)?);
    if is_still()? {
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
            it_value: Timespec::try_from(PAUSE).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 1 }),
        };
        rustix::time::timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        timer.readable().await?.clear_ready();
        if is_still()? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_still(cgroups: &CgroupSet) -> io::Result<bool> {
    let threads = cgroups.threads()?;
    Ok(threads.len() <= THREADS_MAX && !threads.into_iter().any(status::may_run))
}
