//! Measuring a process tree without control groups: the stand-in for an ordinary user without delegation.
//!
//! Orphans become children of the sandbox's process 1, so its descendants are the whole sandbox.

use std::fs;

use super::status::{Status, cpu_ticks};

/// A tree larger than this is not walked to its end; the limit of processes is far below.
const PROCESSES_MAX: usize = 8192;
/// USER_HZ, fixed by the kernel's interface on every architecture we build for.
const TICKS_PER_SECOND: u64 = 100;

/// What a tree uses at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TreeUse {
    pub(super) memory_bytes: u64,
    pub(super) processes: u64,
    pub(super) cpu_us: u64,
}

pub(super) fn measure(first: i32) -> TreeUse {
    let mut sum = TreeUse::default();
    let mut ticks = cpu_ticks(first).1;
    for pid in members(first) {
        if let Ok(status) = Status::read(pid) {
            sum.memory_bytes += status.bytes("RssAnon");
            sum.processes += status.number("Threads").max(1);
            ticks += cpu_ticks(pid).0;
        }
    }
    sum.cpu_us = ticks * (1_000_000 / TICKS_PER_SECOND);
    sum
}

/// Memory with pages that several processes share counted once, where the kernel lets us look.
pub(super) fn proportional_bytes(first: i32) -> u64 {
    members(first).into_iter().map(proportional_of).sum()
}

fn proportional_of(pid: i32) -> u64 {
    let anonymous = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:").map(str::trim))?;
        line.split(' ').next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    };
    let precise = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok().and_then(anonymous);
    precise.unwrap_or_else(|| Status::read(pid).map_or(0, |status| status.bytes("RssAnon")))
}

fn members(first: i32) -> Vec<i32> {
    let mut found = vec![first];
    let mut next = 0;
    while next < found.len() && found.len() < PROCESSES_MAX {
        let pid = found[next];
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|number| number.parse::<i32>().ok()));
        }
    }
    found
}
