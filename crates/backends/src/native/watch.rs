//! Limits that only the host can watch, and the measurements taken meanwhile.
//!
//! With control groups it periodically checks processor time and disk. Without them it enforces the memory
//! limit. `sandbox` owns one watch per sandbox.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::sandbox::{DiskHeld, Ending, Limits, SandboxSpec, Usage};
use jail::Wall;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::cgroup::CgroupSet;
use super::descriptors::Descriptors;
use super::disk::DiskUse;
use super::nameless::Holders;
use super::sockets::{self, SocketCounts};
use super::status;
use super::tree::{self, Mappings};

/// Short runs get an early look, so that their peak is seen at all.
const FIRST: Duration = Duration::from_millis(2);
/// Then this often. A full disk can be seen only while it is full. Without control groups, memory may exceed
/// its limit by what can be allocated in this time.
const CALM: Duration = Duration::from_millis(10);
/// A look at many processes takes a while. The pause until the next is this many times its duration, up to a maximum: on
/// a machine with much to do, a look mostly waits for a processor.
const LOOKING_SHARE: u32 = 4;
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(300);
/// Minimum pause between two requests to the kernel to release the memory of a group.
const RECLAIM_PAUSE: Duration = Duration::from_millis(500);
/// How long the watch waits for a dying process to release its memory before it kills another one.
const RELEASE_PATIENCE: Duration = Duration::from_secs(1);
/// The kernel's own memory beyond which hidden descriptors count as too many. Ordinary programs need some megabytes.
const HIDDEN_BYTES_MAX: u64 = 48 << 20;
/// Minimum pause between two judgements of it that make the kernel release memory.
const JUDGE_PAUSE: Duration = Duration::from_secs(10);
/// How many processes may be killed for lack of memory before the whole run is ended.
const OOM_KILLS_MAX: u64 = 8;

/// What the host records about one sandbox.
pub(super) struct Watch {
    pid: i32,
    limits: Limits,
    scratch: OwnedFd,
    /// The workspace, if it is on disk.
    workspace: Option<DiskUse>,
    seen: Usage,
    /// The usage when this measurement began.
    before: Usage,
    /// Memory at the last look, where no control group counts it.
    memory_now_bytes: u64,
    /// What the writable space held at the last look.
    scratch_bytes: u64,
    scratch_inodes: u64,
    /// Opened by the first look, because most programs end before it.
    sockets: Option<SocketCounts>,
    reclaimed_at: Option<Instant>,
    judged_at: Option<Instant>,
    /// Since when too much memory is held without interruption.
    beyond_since: Option<Instant>,
    /// Whether programs have a kernel of their own, and with it their descriptors.
    has_kernel: bool,
    descriptors: Descriptors,
    /// Used where no control group counts memory.
    mappings: Arc<Mutex<Mappings>>,
    /// Processes that this watch killed for lack of memory.
    killed: u64,
    /// Processor time when the last look began, where it can be read cheaply.
    looked_at_ns: Option<u64>,
}

impl Watch {
    pub(super) fn new(pid: i32, spec: &SandboxSpec, scratch: OwnedFd) -> Self {
        Self {
            pid,
            limits: spec.limits.clone(),
            scratch,
            workspace: None,
            seen: Usage::default(),
            before: Usage::default(),
            memory_now_bytes: 0,
            scratch_bytes: 0,
            scratch_inodes: 0,
            sockets: None,
            reclaimed_at: None,
            judged_at: None,
            beyond_since: None,
            has_kernel: false,
            descriptors: Descriptors::default(),
            mappings: Arc::default(),
            killed: 0,
            looked_at_ns: None,
        }
    }

    /// Programs run in a kernel of their own.
    pub(super) fn note_kernel(&mut self) {
        self.has_kernel = true;
    }

    /// Watches a workspace on disk too.
    pub(super) fn add_workspace(&mut self, path: PathBuf, holders: Holders) {
        self.workspace = Some(DiskUse::new(path, holders));
    }

    /// Whether no process ran since the last look; then nothing inside can have changed.
    pub(super) fn is_quiet(&self, cgroups: &CgroupSet) -> bool {
        self.looked_at_ns.is_some() && self.looked_at_ns == cgroups.cpu_ns()
    }

    /// Process 1, and a file descriptor of the writable space.
    pub(super) fn watched(&self) -> (i32, BorrowedFd<'_>) {
        (self.pid, self.scratch.as_fd())
    }

    /// Begins a new measurement: nothing is used yet, and the given limits apply.
    pub(super) async fn begin(&mut self, limits: &Limits, held: Option<DiskHeld>, cgroups: &CgroupSet) {
        let is_quiet = self.is_quiet(cgroups);
        self.limits = limits.clone();
        self.looked_at_ns = None;
        self.killed = 0;
        cgroups.forget_peaks();
        // The kernel cannot reset this peak. Only if it rises is it the peak of this measurement.
        self.before = Usage { processes_peak: cgroups.usage().processes_peak, ..cgroups.counters() };
        if !cgroups.counts_cpu() {
            self.before.cpu_us = tree::cpu_us(self.pid);
        }
        self.seen = Usage { processes_peak: cgroups.threads_count().unwrap_or(0), ..Usage::default() };
        if let Some(workspace) = &mut self.workspace {
            workspace.begin((limits.disk_bytes, limits.disk_inodes), held, is_quiet).await;
        }
    }

    /// The same in a sandbox that has run no program yet. Nothing was killed or refused there, and its peak
    /// values are those of a starting interpreter.
    pub(super) async fn begin_first(&mut self, limits: &Limits, cgroups: &CgroupSet) {
        let cpu_ns = cgroups.cpu_ns().filter(|_| cgroups.count_everything() && self.workspace.is_none());
        let Some(cpu_ns) = cpu_ns else { return self.begin(limits, None, cgroups).await };
        self.limits = limits.clone();
        self.looked_at_ns = None;
        self.before = Usage { cpu_us: cpu_ns / 1000, ..Usage::default() };
        self.seen = Usage::default();
    }

    /// Completes when a limit is exceeded.
    pub(super) async fn run(&mut self, cgroups: &CgroupSet) -> Ending {
        let mut pause = FIRST;
        let mut next_look = Instant::now();
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(CALM);
            self.look_at_disk();
            let started = Instant::now();
            if started < next_look {
                continue;
            }
            if let Some(ending) = self.look_once(cgroups).await {
                return ending;
            }
            next_look = Instant::now() + self.pause_after(started.elapsed());
        }
    }

    /// A sandbox near its limit is checked again soon, however long a look takes.
    fn pause_after(&self, look: Duration) -> Duration {
        let is_near = self.memory_now_bytes > self.limits.memory_bytes / 2;
        if is_near { CALM } else { (look * LOOKING_SHARE).min(LOOK_PAUSE_MAX) }
    }

    /// Whether a limit is exceeded now.
    pub(super) async fn look_once(&mut self, cgroups: &CgroupSet) -> Option<Ending> {
        // Changes during this look are left to the next one.
        let is_whole = self.workspace.as_ref().is_some_and(DiskUse::is_due);
        let cpu_ns = if is_whole { cgroups.cpu_ns() } else { self.looked_at_ns };
        self.look(cgroups);
        let (bytes, inodes) = (self.limits.disk_bytes, self.limits.disk_inodes);
        if let Some(workspace) = &mut self.workspace
            && workspace.is_beyond(bytes, inodes).await
        {
            self.seen.disk_full = true;
            return Some(Ending::Disk);
        }
        self.looked_at_ns = cpu_ns;
        self.passed(cgroups).await
    }

    /// Everything used so far.
    pub(super) fn usage(&mut self, cgroups: &CgroupSet) -> Usage {
        self.look(cgroups);
        self.seen
    }

    /// The last look while processes exist. The main process is gone already. Where no control group counts
    /// refusals, a tree that is at its process limit counts as a refusal.
    pub(super) fn last_look(&mut self, cgroups: &CgroupSet) {
        self.look_at_disk();
        if cgroups.count_everything() {
            // The groups outlive their processes and are read then.
            return;
        }
        self.look(cgroups);
        if !cgroups.limits_processes() && tree::threads(self.pid) >= u64::from(self.limits.processes) {
            self.seen.process_refusals = self.seen.process_refusals.max(1);
        }
    }

    fn look(&mut self, cgroups: &CgroupSet) {
        self.look_at_disk();
        let counted = since(cgroups.usage(), &self.before);
        let is_counted = cgroups.count_everything();
        let seen = &mut self.seen;
        seen.oom_kills = seen.oom_kills.max(counted.oom_kills + self.killed);
        seen.process_refusals = seen.process_refusals.max(counted.process_refusals);
        let mut walked = if is_counted {
            tree::TreeUse::default()
        } else {
            let mut mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
            tree::measure(self.pid, self.limits.memory_bytes, &mut mappings)
        };
        let is_memory_counted = cgroups.limits_memory();
        if !self.has_kernel {
            self.descriptors.look(self.pid);
        }
        let held = if is_memory_counted { 0 } else { self.descriptors.bytes() };
        walked.memory_bytes = walked.memory_bytes.saturating_add(held);
        walked.cpu_us = walked.cpu_us.saturating_sub(self.before.cpu_us);
        self.memory_now_bytes = walked.memory_bytes;
        seen.cpu_us = seen.cpu_us.max(counted.cpu_us).max(walked.cpu_us);
        // A tree that could not be measured counts as beyond every limit, but this value is not a
        // measurement.
        let walked_bytes = if walked.memory_bytes < tree::BEYOND { walked.memory_bytes } else { 0 };
        seen.memory_peak_bytes = seen.memory_peak_bytes.max(counted.memory_peak_bytes).max(walked_bytes);
        let processes = cgroups.threads_count().unwrap_or(walked.processes);
        seen.processes_peak = seen.processes_peak.max(counted.processes_peak).max(processes);
        if !cgroups.limits_processes() && walked.processes > u64::from(self.limits.processes) {
            seen.process_refusals = seen.process_refusals.max(1);
        }
    }

    /// A file system is full when the next write would fail. Whether a write did fail shows in how the
    /// program ends.
    fn look_at_disk(&mut self) {
        if let Ok(state) = rustix::fs::fstatvfs(&self.scratch) {
            self.seen.disk_full |= state.f_bavail == 0 || state.f_ffree == 0;
            self.scratch_inodes = state.f_files.saturating_sub(state.f_ffree);
            self.scratch_bytes = state.f_blocks.saturating_sub(state.f_bfree).saturating_mul(state.f_frsize);
        }
    }

    async fn passed(&mut self, cgroups: &CgroupSet) -> Option<Ending> {
        if Wall::Watchdog.off() {
            return None;
        }
        if self.seen.cpu_us > self.limits.cpu_ms().saturating_mul(1000) {
            return Some(Ending::Cpu);
        }
        let is_beyond = match cgroups.limits_memory() {
            // As the kernel does at its own limit: the largest process is killed, and the others may continue
            // without it.
            true => match self.excess(cgroups).await {
                Excess::None => {
                    self.beyond_since = None;
                    false
                }
                excess => !self.relieve(cgroups, excess),
            },
            false => self.memory_now_bytes > self.limits.memory_bytes && self.is_really_beyond().await,
        };
        if is_beyond {
            self.seen.oom_kills += 1;
        }
        // A program that continues while its processes are killed for lack of memory fills the host's log.
        if is_beyond || self.seen.oom_kills > OOM_KILLS_MAX {
            return Some(Ending::Memory);
        }
        let takes_too_much = self.descriptors.are_too_many()
            || self.has_too_many_sockets(cgroups)
            || self.hides_too_much(cgroups).await;
        takes_too_much.then_some(Ending::KernelShare)
    }

    /// Kills the process with the most memory, except process 1, unless memory is being released already. Returns
    /// whether the others may continue.
    ///
    /// The group counts the memory of a dying process until it is released, but the process no longer shows it. The
    /// next largest would be killed in its place: a program for the memory of its child.
    fn relieve(&mut self, cgroups: &CgroupSet, excess: Excess) -> bool {
        let Some(Ok(pids)) = cgroups.processes() else { return false };
        let others: Vec<i32> = pids.into_iter().filter(|pid| *pid != self.pid).collect();
        let may_wait = self.beyond_since.get_or_insert_with(Instant::now).elapsed() < RELEASE_PATIENCE;
        if may_wait && others.iter().copied().any(status::is_dying) {
            return true;
        }
        let largest = tree::largest(&others);
        // A process that ended between the measurement and the list has released its memory.
        if self.excess_now(cgroups) < excess {
            return true;
        }
        let Some(largest) = largest.and_then(Pid::from_raw) else { return false };
        let Ok(process) = rustix::process::pidfd_open(largest, PidfdFlags::empty()) else { return may_wait };
        // The number may belong to another process by now, but not while it is in the group and held here.
        let is_inside = |pids: Vec<i32>| pids.contains(&largest.as_raw_nonzero().get());
        if !cgroups.processes().is_some_and(|listed| listed.is_ok_and(is_inside)) {
            return may_wait;
        }
        let is_killed = rustix::process::pidfd_send_signal(&process, Signal::KILL).is_ok();
        self.killed += u64::from(is_killed);
        self.seen.oom_kills += u64::from(is_killed);
        is_killed
    }

    /// Whether memory exceeds the limit when pages that processes share are counted once. This takes long
    /// where they share much, and must not delay other runs.
    async fn is_really_beyond(&self) -> bool {
        let (pid, limit) = (self.pid, self.limits.memory_bytes.saturating_sub(self.descriptors.bytes()));
        let mappings = Arc::clone(&self.mappings);
        let look = move || {
            let mut mappings = mappings.lock().unwrap_or_else(PoisonError::into_inner);
            tree::is_proportionally_beyond(pid, limit, &mut mappings)
        };
        tokio::task::spawn_blocking(look).await.unwrap_or(true)
    }

    fn has_too_many_sockets(&mut self, cgroups: &CgroupSet) -> bool {
        let sockets = self.sockets.get_or_insert_with(|| SocketCounts::of(self.pid));
        let count = sockets.count();
        count > sockets::count_max(self.limits.open_files)
            || (count > sockets::COUNT_FEW && cgroups.socket_bytes() > sockets::bytes_max())
    }

    /// Whether hidden descriptors may hold too much of the kernel. What they are cannot be seen.
    async fn hides_too_much(&mut self, cgroups: &CgroupSet) -> bool {
        if !self.descriptors.are_hidden() {
            return false;
        }
        let Some(held) = cgroups.kernel_held(self.scratch_inodes) else {
            return self.descriptors.may_hide_too_many(self.limits.open_files);
        };
        if held.perhaps <= HIDDEN_BYTES_MAX {
            return held.certain > HIDDEN_BYTES_MAX;
        }
        // Version 1 counts what it can release, page tables and stacks as well. Releasing empties the group's page cache.
        if self.judged_at.is_some_and(|then| then.elapsed() < JUDGE_PAUSE) {
            return false;
        }
        self.judged_at = Some(Instant::now());
        self.reclaim(cgroups).await;
        let held = cgroups.kernel_held(self.scratch_inodes).unwrap_or_default();
        held.perhaps.saturating_sub(tree::kernel_bytes(self.pid)) > HIDDEN_BYTES_MAX
    }

    /// The kernel's own limit covers memory and disk together; this check covers memory alone.
    async fn excess(&mut self, cgroups: &CgroupSet) -> Excess {
        let excess = self.excess_now(cgroups);
        if excess != Excess::Perhaps {
            return excess;
        }
        let is_recent = self.reclaimed_at.is_some_and(|then| then.elapsed() < RECLAIM_PAUSE);
        if is_recent || cgroups.reclaim_file().is_none() {
            return Excess::None;
        }
        // If the kernel releases nothing, its own limit still holds.
        self.reclaim(cgroups).await;
        self.excess_now(cgroups)
    }

    /// Asks the kernel to release memory, which takes as long as there is memory to release.
    async fn reclaim(&mut self, cgroups: &CgroupSet) {
        let Some(file) = cgroups.reclaim_file() else { return };
        self.reclaimed_at = Some(Instant::now());
        tokio::task::spawn_blocking(move || std::fs::write(file, "0").ok()).await.ok();
        self.look_at_disk();
    }

    fn excess_now(&self, cgroups: &CgroupSet) -> Excess {
        let limit = self.limits.memory_bytes;
        let uncounted = if cgroups.counts_sockets() { 0 } else { tree::socket_bytes(self.pid) };
        let held = cgroups.memory_held(self.scratch_bytes, limit);
        if held.certain + uncounted > limit {
            Excess::Certain
        } else if held.certain + held.perhaps + uncounted > limit {
            Excess::Perhaps
        } else {
            Excess::None
        }
    }
}

/// Whether a sandbox holds more memory than its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Excess {
    None,
    /// If the memory counts that the kernel may be able to release.
    Perhaps,
    Certain,
}

/// What was counted since then. The memory peak is reset with each measurement. The peak number of processes is
/// zero if it is not higher than before: then it may belong to an earlier measurement.
fn since(counted: Usage, before: &Usage) -> Usage {
    let is_new_peak = counted.processes_peak > before.processes_peak;
    Usage {
        processes_peak: if is_new_peak { counted.processes_peak } else { 0 },
        cpu_us: counted.cpu_us.saturating_sub(before.cpu_us),
        oom_kills: counted.oom_kills.saturating_sub(before.oom_kills),
        process_refusals: counted.process_refusals.saturating_sub(before.process_refusals),
        ..counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_of_processes_counts_only_for_the_measurement_in_which_it_rose() {
        let peak = |processes_peak| Usage { processes_peak, ..Usage::default() };
        assert_eq!(since(peak(9), &peak(0)).processes_peak, 9);
        assert_eq!(since(peak(9), &peak(9)).processes_peak, 0, "it is of an earlier measurement");
        assert_eq!(since(peak(12), &peak(9)).processes_peak, 12);
    }
}
