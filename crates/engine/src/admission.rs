//! Admission: limits how many runs execute at once and how much memory they are promised, with a bounded queue.
//!
//! A run holds a [`Permit`] for as long as its sandbox lives. Memory is promised only once: the limits of all
//! admitted runs together stay within a budget. The machine must also have that much free memory at the moment,
//! so that several servers on one machine do not overcommit it together.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The unit in which the memory budget is counted.
const PIECE_BYTES: u64 = 1 << 20;
/// Memory reserved for the rest of the machine.
const RESERVE_BYTES: u64 = 256 << 20;
/// How long a run may wait for admission.
const QUEUE_PATIENCE: Duration = Duration::from_secs(30);
const MEMORY_PAUSE: Duration = Duration::from_millis(50);

/// How much may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// The most runs at once.
    pub runs_max: usize,
    /// The most runs that wait beyond that.
    pub queue_max: usize,
    /// The memory promised to all runs together.
    pub memory_bytes: u64,
}

impl AdmissionLimits {
    /// Limits for this machine: four runs per core, three quarters of its memory.
    pub fn for_machine(cores: usize) -> Self {
        let info = rustix::system::sysinfo();
        #[allow(clippy::useless_conversion, reason = "the type differs between architectures")]
        let total = u64::from(info.totalram) * u64::from(info.mem_unit);
        Self { runs_max: cores.max(1) * 4, queue_max: 256, memory_bytes: total / 4 * 3 }
    }
}

/// The run was not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// The reason.
    pub reason: &'static str,
    /// When to try again.
    pub retry_after_ms: u64,
}

/// The admission of one run. Dropping it releases its slot and memory.
#[derive(Debug)]
pub(crate) struct Permit {
    _place: OwnedSemaphorePermit,
    _memory: OwnedSemaphorePermit,
    /// How long the run waited.
    pub(crate) queued: Duration,
    /// Notifies after the slot is released: it is the last field, so it is dropped last.
    _bell: Bell,
}

/// When it is dropped and no run is left, sends the notification.
#[derive(Debug)]
struct Bell {
    places: Arc<Semaphore>,
    runs_max: usize,
    quiet: Arc<Listeners>,
}

/// Who is told each time the last run has ended.
#[derive(Debug, Default)]
struct Listeners(Mutex<Vec<Arc<Notify>>>);

impl Drop for Bell {
    fn drop(&mut self) {
        if self.places.available_permits() >= self.runs_max {
            let listeners = self.quiet.0.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.iter().for_each(|listener| listener.notify_one());
        }
    }
}

pub(crate) struct Admission {
    limits: AdmissionLimits,
    places: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    waiting: AtomicUsize,
    quiet: Arc<Listeners>,
}

impl Admission {
    pub(crate) fn new(limits: AdmissionLimits) -> Self {
        let pieces = usize::try_from(limits.memory_bytes / PIECE_BYTES).unwrap_or(usize::MAX);
        Self {
            limits,
            places: Arc::new(Semaphore::new(limits.runs_max)),
            memory: Arc::new(Semaphore::new(pieces.min(Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
            quiet: Arc::default(),
        }
    }

    /// Whether no run executes or waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting() == 0 && self.places.available_permits() >= self.limits.runs_max
    }

    /// A notification for the end of the last run. Every listener has its own, for as long as there is
    /// admission.
    pub(crate) fn quiet(&self) -> Arc<Notify> {
        let listener = Arc::<Notify>::default();
        self.quiet.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&listener));
        listener
    }

    /// The number of runs that wait for admission now.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// The most memory that one run can ever be promised.
    pub(crate) fn memory_bytes_max(&self) -> u64 {
        self.limits.memory_bytes
    }

    /// How much more memory must be free for a run of that size to begin without waiting for memory.
    pub(crate) fn memory_missing(&self, memory_bytes: u64) -> u64 {
        let free = self.memory.available_permits() as u64 * PIECE_BYTES;
        let promised = memory_bytes.saturating_sub(free);
        if promised == 0 && !machine_has(memory_bytes) { memory_bytes } else { promised }
    }

    /// Whether this much can be promised now.
    pub(crate) fn has_memory(&self, memory_bytes: u64) -> bool {
        self.memory.available_permits() as u64 * PIECE_BYTES >= memory_bytes
    }

    /// Reserves this much of the budget, if no run waits for it.
    pub(crate) fn hold_memory(&self, memory_bytes: u64) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.memory).try_acquire_many_owned(pieces(memory_bytes)).ok()
    }

    /// Waits for admission, first come, first served.
    pub(crate) async fn admit(&self, memory_bytes: u64) -> Result<Permit, Busy> {
        if memory_bytes > self.limits.memory_bytes {
            return Err(Busy {
                reason: "the run asks for more memory than this server may promise",
                retry_after_ms: 0,
            });
        }
        let started = Instant::now();
        let _turn = self.queue_up()?;
        match tokio::time::timeout(QUEUE_PATIENCE, self.take(memory_bytes)).await {
            Ok(Some((place, memory))) => Ok(Permit {
                _place: place,
                _memory: memory,
                queued: started.elapsed(),
                _bell: Bell {
                    places: Arc::clone(&self.places),
                    runs_max: self.limits.runs_max,
                    quiet: Arc::clone(&self.quiet),
                },
            }),
            Ok(None) => Err(Busy { reason: "the server is shutting down", retry_after_ms: 1000 }),
            Err(_) => Err(self.busy("no place became free in time")),
        }
    }

    fn queue_up(&self) -> Result<QueueTurn<'_>, Busy> {
        let before = self.waiting.fetch_add(1, Ordering::SeqCst);
        let turn = QueueTurn(&self.waiting);
        let free = self.places.available_permits();
        if before >= self.limits.queue_max.saturating_add(free) {
            return Err(self.busy("too many runs are waiting"));
        }
        Ok(turn)
    }

    async fn take(&self, memory_bytes: u64) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let memory = Arc::clone(&self.memory).acquire_many_owned(pieces(memory_bytes)).await.ok()?;
        while !machine_has(memory_bytes) {
            tokio::time::sleep(MEMORY_PAUSE).await;
        }
        Some((place, memory))
    }

    fn busy(&self, reason: &'static str) -> Busy {
        // An estimate that grows with the queue: about the time of a short run, per slot.
        let waiting = self.waiting.load(Ordering::SeqCst);
        let rounds = waiting / self.limits.runs_max.max(1) + 1;
        Busy { reason, retry_after_ms: u64::try_from(rounds).unwrap_or(60).min(60) * 500 }
    }
}

fn pieces(memory_bytes: u64) -> u32 {
    u32::try_from(memory_bytes.div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX)
}

/// A waiting run. Dropping it removes it from the count.
struct QueueTurn<'a>(&'a AtomicUsize);

impl Drop for QueueTurn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the machine has that much free memory. If the kernel does not report it, admission proceeds.
pub(crate) fn machine_has(memory_bytes: u64) -> bool {
    let wanted = memory_bytes.saturating_add(RESERVE_BYTES);
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit);
    // Free memory gives a quick answer; the complete answer includes reclaimable memory.
    #[allow(clippy::useless_conversion, reason = "the type differs between architectures")]
    let (free, total) = (u64::from(info.freeram) * unit, u64::from(info.totalram) * unit);
    if free >= wanted {
        return true;
    }
    // A machine smaller than one run's limit plus the reserve may still run it when it is mostly idle.
    meminfo("MemAvailable").is_none_or(|available| available >= wanted.min(total / 2))
}

fn meminfo(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().split(' ').next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(runs_max: usize, queue_max: usize, memory_mb: u64) -> Admission {
        Admission::new(AdmissionLimits { runs_max, queue_max, memory_bytes: memory_mb << 20 })
    }

    #[tokio::test]
    async fn beyond_the_queue_the_answer_is_busy_with_a_time() {
        let admission = Arc::new(admission(1, 1, 100));
        let first = admission.admit(1 << 20).await.unwrap();
        let second = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.admit(1 << 20).await.map(drop) }
        });
        while admission.waiting.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let busy = admission.admit(1 << 20).await.unwrap_err();
        assert!(busy.retry_after_ms > 0);
        drop(first);
        second.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn memory_is_promised_only_once() {
        let admission = admission(8, 8, 100);
        let first = admission.admit(80 << 20).await.unwrap();
        let waits = tokio::time::timeout(Duration::from_millis(20), admission.admit(30 << 20)).await;
        assert!(waits.is_err(), "a second run was promised the same memory");
        drop(first);
        admission.admit(30 << 20).await.unwrap();
    }

    #[tokio::test]
    async fn it_is_quiet_when_the_last_run_has_ended_and_that_is_told() {
        let admission = admission(2, 1, 100);
        assert!(admission.is_quiet());
        let (first, second) =
            (admission.admit(1 << 20).await.unwrap(), admission.admit(1 << 20).await.unwrap());
        drop(first);
        let listeners = [admission.quiet(), admission.quiet()];
        let told = |which: usize| tokio::time::timeout(Duration::from_millis(5), listeners[which].notified());
        assert!(told(0).await.is_err() && !admission.is_quiet(), "one still runs");
        drop(second);
        assert!(told(0).await.is_ok() && told(1).await.is_ok() && admission.is_quiet());
    }

    #[tokio::test]
    async fn a_run_that_can_never_fit_is_told_so_at_once() {
        assert_eq!(admission(1, 1, 10).admit(11 << 20).await.unwrap_err().retry_after_ms, 0);
    }
}
