//! The ready spares and the demand of each key. Plain data behind one lock; nothing here waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox::SandboxSpec;

use super::demand::Demand;
use super::spare::Spare;
use super::{PoolConfig, PoolLevel, Purpose, SPARES_MAX, Want};

/// The most keys at once. The least recently requested key makes room.
const KEYS_MAX: usize = 64;
/// A key without a request for this long is removed, with its spares.
const KEY_IDLE: Duration = Duration::from_secs(300);
/// How long spares beyond the current demand are kept after the last request.
const SURPLUS_IDLE: Duration = Duration::from_secs(30);
/// While a run is in progress, the first spares of a key are built this long after the request. The request
/// builds its own sandbox in the meantime, and that build goes first.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
/// While a run is in progress and a spare is left, the next spare is built this much later. The run that leased
/// one goes first.
const REFILL_PAUSE: Duration = Duration::from_millis(10);
/// The pause after a failed build. It doubles with each further failure.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The assumed cost of a spare before the first of its kind was measured.
const COST_GUESS_BYTES: u64 = 64 << 20;

/// The spares of one key.
pub(super) struct Shelf {
    pub(super) id: u64,
    /// The spec with the usual limits.
    pub(super) spec: Arc<SandboxSpec>,
    language: String,
    purpose: Purpose,
    demand: Demand,
    ready: VecDeque<Spare>,
    pub(super) building: usize,
    failures: u32,
    /// No build starts before this time, because the last one failed.
    retry_at: Instant,
    /// No build starts before this time while a run is in progress.
    build_at: Instant,
    pub(super) cost_bytes: u64,
}

/// The shelves of all keys.
#[derive(Default)]
pub(super) struct Shelves {
    pub(super) all: Vec<Shelf>,
    next_id: u64,
    is_closed: bool,
    /// Whether the keeper is running.
    pub(super) is_kept: bool,
}

impl Shelf {
    fn new(id: u64, want: &Want<'_>, now: Instant) -> Self {
        let (limits, headroom) = (want.usual.clone(), Some(want.most.or_more(want.usual)));
        Self {
            id,
            spec: Arc::new(SandboxSpec { limits, headroom, ..want.spec.clone() }),
            language: want.language.to_owned(),
            purpose: want.purpose,
            demand: Demand::new(now),
            ready: VecDeque::new(),
            building: 0,
            failures: 0,
            retry_at: now,
            build_at: now + FIRST_PAUSE,
            cost_bytes: COST_GUESS_BYTES,
        }
    }

    /// The subject under which its failures are reported.
    pub(super) fn subject(&self) -> String {
        format!("{} {}", self.language, self.purpose.name())
    }

    /// Whether the spec has this key, which is everything except the limits. Compares the shortest
    /// distinguishing part first.
    fn is_of(&self, spec: &SandboxSpec) -> bool {
        let own = &self.spec;
        // Names every field: a new one must be compared here, or stated to be a limit.
        let SandboxSpec {
            limits: _,
            headroom: _,
            binds,
            layers,
            attach_points,
            folders,
            // Says nothing about the content.
            in_use: _,
            executable_at,
            files,
            links,
            opening,
            zygote,
            workspace,
            absence_allowed,
        } = spec;
        own.zygote == *zygote
            && own.opening == *opening
            && own.binds == *binds
            && own.links == *links
            && own.layers == *layers
            && own.attach_points == *attach_points
            && own.executable_at == *executable_at
            && own.absence_allowed == *absence_allowed
            && own.workspace == *workspace
            && own.folders == *folders
            && own.files == *files
    }

    pub(super) fn level(&self) -> PoolLevel {
        PoolLevel { language: self.language.clone(), purpose: self.purpose, ready: self.ready.len() }
    }

    fn count(&self) -> usize {
        self.ready.len() + self.building
    }

    /// Adds a spare after a successful build.
    pub(super) fn put(&mut self, spare: Spare, took: Duration) {
        self.failures = 0;
        self.cost_bytes = spare.cost_bytes;
        self.demand.built_in(took);
        self.ready.push_back(spare);
    }

    /// Records a failed build. The pause before the next one grows each time.
    pub(super) fn fail(&mut self, now: Instant) {
        let pause = BACKOFF_FIRST.saturating_mul(1 << self.failures.min(16)).min(BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now + pause;
    }

    /// When the next build may start.
    fn due_at(&self, is_quiet: bool) -> Instant {
        if is_quiet { self.retry_at } else { self.retry_at.max(self.build_at) }
    }

    fn is_wanting(&self, now: Instant, config: &PoolConfig) -> bool {
        self.count() < self.demand.worth(now, config.floor, config.ceiling)
    }
}

impl Shelves {
    /// Records a request for this key. Returns the spares that had to make room for a new key.
    pub(super) fn ask(&mut self, want: &Want<'_>, now: Instant) -> Vec<Spare> {
        if let Some(shelf) = self.find(want.spec) {
            shelf.demand.ask(now);
            return Vec::new();
        }
        let mut displaced = Vec::new();
        if self.all.len() >= KEYS_MAX
            && let Some(oldest) = self.longest_unasked(|_| true)
        {
            displaced.extend(self.all.remove(oldest).ready);
        }
        let mut shelf = Shelf::new(self.next_id, want, now);
        shelf.demand.ask(now);
        self.next_id += 1;
        self.all.push(shelf);
        displaced
    }

    /// Records a request that found no spare.
    pub(super) fn miss(&mut self, want: &Want<'_>, now: Instant) {
        if let Some(shelf) = self.find(want.spec) {
            shelf.demand.miss(now);
        }
    }

    /// Records that the limits could not be applied to a spare of this key.
    pub(super) fn blame(&mut self, want: &Want<'_>, now: Instant) {
        if let Some(shelf) = self.find(want.spec) {
            shelf.fail(now);
        }
    }

    /// Takes the newest spare of a key: its memory is still in the processors' caches. The older spares age and
    /// are replaced.
    pub(super) fn take(&mut self, want: &Want<'_>) -> Option<Spare> {
        let shelf = self.find(want.spec)?;
        let spare = shelf.ready.pop_back()?;
        let now = Instant::now();
        let pause = if shelf.ready.is_empty() { Duration::ZERO } else { REFILL_PAUSE };
        if shelf.build_at <= now {
            shelf.build_at = now + pause;
        }
        Some(spare)
    }

    /// Returns an unused spare to its shelf. Gives it back if the key is no longer wanted.
    pub(super) fn put_back(&mut self, want: &Want<'_>, spare: Spare) -> Option<Spare> {
        if self.is_closed {
            return Some(spare);
        }
        match self.find(want.spec) {
            Some(shelf) => {
                shelf.ready.push_front(spare);
                None
            }
            None => Some(spare),
        }
    }

    fn find(&mut self, spec: &SandboxSpec) -> Option<&mut Shelf> {
        self.all.iter_mut().find(|shelf| shelf.is_of(spec))
    }

    /// The shelf for which a build was started, if it still exists.
    pub(super) fn of_build(&mut self, id: u64) -> Option<&mut Shelf> {
        let is_closed = self.is_closed;
        self.all.iter_mut().find(|shelf| shelf.id == id).filter(|_| !is_closed)
    }

    fn longest_unasked(&self, is_meant: impl Fn(&Shelf) -> bool) -> Option<usize> {
        let shelves = self.all.iter().enumerate().filter(|(_, shelf)| is_meant(shelf));
        shelves.min_by_key(|(_, shelf)| shelf.demand.last_asked).map(|(at, _)| at)
    }

    /// Removes spares, from the least recently requested key first, until their cost reaches `bytes`.
    pub(super) fn take_least_wanted(&mut self, bytes: u64) -> Vec<Spare> {
        let (mut taken, mut freed) = (Vec::new(), 0_u64);
        while freed < bytes {
            let found = self.longest_unasked(|shelf| !shelf.ready.is_empty());
            let Some(spare) = found.and_then(|at| self.all[at].ready.pop_front()) else { break };
            freed = freed.saturating_add(spare.cost_bytes);
            taken.push(spare);
        }
        taken
    }

    /// Removes everything. No more spares are accepted.
    pub(super) fn close(&mut self) -> Vec<Spare> {
        self.is_closed = true;
        self.all.drain(..).flat_map(|shelf| shelf.ready).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Removes spares that are no longer healthy.
    pub(super) fn sweep_dead(&mut self) -> Vec<Spare> {
        self.take_all(|spare| !spare.is_well())
    }

    /// Removes spares that are too old.
    pub(super) fn sweep_aged(&mut self, now: Instant, age_max: Duration) -> Vec<Spare> {
        self.take_all(|spare| now.saturating_duration_since(spare.born) >= age_max)
    }

    /// Removes spares beyond the demand, and keys without recent requests.
    pub(super) fn sweep_idle(&mut self, now: Instant, config: &PoolConfig) -> Vec<Spare> {
        let mut taken = Vec::new();
        for shelf in &mut self.all {
            let idle = now.saturating_duration_since(shelf.demand.last_asked);
            let worth = shelf.demand.worth(now, config.floor, config.ceiling);
            let kept = if idle >= KEY_IDLE { 0 } else { worth };
            if idle >= SURPLUS_IDLE {
                let surplus = shelf.ready.len().saturating_sub(kept);
                taken.extend(shelf.ready.drain(..surplus));
            }
        }
        let is_asked_for = |shelf: &Shelf| now.saturating_duration_since(shelf.demand.last_asked) < KEY_IDLE;
        self.all.retain(|shelf| is_asked_for(shelf) || shelf.building > 0);
        taken
    }

    fn take_all(&mut self, mut is_meant: impl FnMut(&mut Spare) -> bool) -> Vec<Spare> {
        let mut taken = Vec::new();
        for shelf in &mut self.all {
            for mut spare in std::mem::take(&mut shelf.ready) {
                if is_meant(&mut spare) { taken.push(spare) } else { shelf.ready.push_back(spare) }
            }
        }
        taken
    }

    /// The key with the greatest need for a spare, if there is room for one more.
    pub(super) fn next_to_build(
        &mut self,
        now: Instant,
        is_quiet: bool,
        config: &PoolConfig,
    ) -> Option<&mut Shelf> {
        let total: usize = self.all.iter().map(Shelf::count).sum();
        if self.is_closed || total >= SPARES_MAX {
            return None;
        }
        let is_due = |shelf: &&mut Shelf| shelf.due_at(is_quiet) <= now && shelf.is_wanting(now, config);
        self.all.iter_mut().filter(is_due).min_by_key(|shelf| shelf.count())
    }

    /// When the next build of a key that needs one may start.
    pub(super) fn next_build_at(&self, now: Instant, is_quiet: bool, config: &PoolConfig) -> Option<Instant> {
        let wanting = self.all.iter().filter(|shelf| shelf.is_wanting(now, config));
        wanting.map(|shelf| shelf.due_at(is_quiet)).filter(|at| *at > now).min()
    }

    /// Starts the warm-up run of one interpreter that has not had one. Spares that are leased first come first.
    pub(super) fn rehearse_one(&mut self) -> bool {
        self.all.iter_mut().any(|shelf| shelf.ready.iter_mut().rev().any(Spare::rehearse))
    }

    /// The number of builds in progress.
    pub(super) fn building(&self) -> usize {
        self.all.iter().map(|shelf| shelf.building).sum()
    }

    /// The cost of all spares, including those being built.
    pub(super) fn cost_bytes(&self) -> u64 {
        let of = |shelf: &Shelf| {
            let ready: u64 = shelf.ready.iter().map(|spare| spare.cost_bytes).sum();
            ready + shelf.cost_bytes * shelf.building as u64
        };
        self.all.iter().map(of).sum()
    }
}
