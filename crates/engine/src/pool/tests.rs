//! Tests of the pool over the fake backend: which requests get a spare, and what happens to unused spares.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use sandbox::fake::FakeBackend;
use sandbox::{PlacedFile, ReadOnlyBind, Usage, ZygoteSpec};
use wire::{FromGuest, VERSION};

use super::*;
use crate::admission::AdmissionLimits;
use crate::test_events::Heard;

const PATIENCE: Duration = Duration::from_secs(20);
const CONFIG: PoolConfig = PoolConfig {
    is_on: true,
    floor: 2,
    ceiling: 4,
    memory_bytes_max: 1 << 30,
    age_max: Duration::from_secs(300),
};

/// The test's end of every guest's stream.
type Guests = Arc<Mutex<Vec<UnixStream>>>;

fn say(stream: &mut UnixStream, message: &FromGuest) {
    stream.write_all(&wire::encode(message).unwrap()).ok();
}

/// A guest that says hello, and reports a ready interpreter as soon as it is told to start one.
fn patient() -> (FakeBackend, Guests) {
    let guests = Guests::default();
    let known = Arc::clone(&guests);
    let fake = FakeBackend::new(move |mut stream| {
        known.lock().unwrap().push(stream.try_clone().unwrap());
        say(&mut stream, &FromGuest::Hello { version: VERSION });
        let mut bytes = [0; 64];
        while let Ok(1..) = stream.read(&mut bytes) {
            let data = b"1\0ready\0".to_vec();
            say(&mut stream, &FromGuest::Control { process: crate::conversation::MAIN, data });
        }
    });
    (fake, guests)
}

struct Scene {
    fake: FakeBackend,
    guests: Guests,
    pool: Pool,
    admission: Arc<Admission>,
    spec: SandboxSpec,
}

impl Scene {
    fn new(config: PoolConfig) -> Self {
        Self::over(patient(), config)
    }

    fn over((fake, guests): (FakeBackend, Guests), config: PoolConfig) -> Self {
        let limits = AdmissionLimits { runs_max: 8, queue_max: 8, memory_bytes: 1 << 30 };
        let admission = Arc::new(Admission::new(limits));
        let backend: Arc<dyn Backend> = Arc::new(fake.clone());
        let parts = PoolParts { config, admission: &admission, failures: &Arc::default() };
        let pool = Pool::new(&parts, &backend);
        Self { fake, guests, pool, admission, spec: SandboxSpec::default() }
    }

    async fn lease_of(&self, spec: &SandboxSpec) -> Option<Lease> {
        let usual = Limits::default();
        let want = Want { spec, usual: &usual, most: &usual, language: "x", purpose: Purpose::Run };
        self.pool.lease(&want).await
    }

    async fn lease(&self) -> Option<Lease> {
        self.lease_of(&self.spec).await
    }

    fn ready(&self) -> usize {
        self.pool.snapshot().levels.iter().map(|level| level.ready).sum()
    }

    fn discarded(&self, reason: Discard) -> u64 {
        self.pool.snapshot().discards[reason as usize]
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.pool.snapshot());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Requests one sandbox and waits for the spares that this demand causes.
    async fn warm(self) -> Self {
        assert!(self.lease().await.is_none(), "nothing is built before anybody asks");
        self.until("the floor is ready", |scene| scene.ready() == CONFIG.floor).await;
        self
    }

    fn shared(&self) -> &Arc<PoolShared> {
        self.pool.shared.as_ref().unwrap()
    }
}

fn limits(memory_mb: u64) -> Limits {
    Limits { memory_bytes: memory_mb << 20, ..Limits::default() }
}

#[tokio::test]
async fn a_run_after_another_gets_a_spare_with_limits_of_its_own() {
    let scene = Scene::new(CONFIG).warm().await;
    let spec = SandboxSpec { limits: limits(77), ..scene.spec.clone() };
    let lease = scene.lease_of(&spec).await.unwrap();
    assert_eq!(scene.fake.taken(), [limits(77)]);
    let names: Vec<&str> = lease.phases.parts_us.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["lease"]);
    let counted = scene.pool.snapshot();
    assert_eq!((counted.hits, counted.misses), (1, 1));
}

#[tokio::test]
async fn what_was_leased_is_replaced_and_never_comes_back() {
    let scene = Scene::new(CONFIG).warm().await;
    let made = scene.fake.made();
    drop(scene.lease().await.unwrap());
    scene.until("the place is filled", |scene| scene.ready() == CONFIG.floor).await;
    assert_eq!(scene.fake.made(), made + 1, "the spare that is ready now is another one");
    assert_eq!(scene.fake.alive(), CONFIG.floor);
}

#[tokio::test]
async fn a_pool_that_is_off_builds_nothing() {
    let scene = Scene::new(PoolConfig::off());
    for _ in 0..8 {
        assert!(scene.lease().await.is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.fake.made(), 0);
    assert_eq!(scene.pool.snapshot(), PoolSnapshot::default());
}

#[tokio::test]
async fn only_the_very_same_makings_are_shared() {
    let scene = Scene::new(CONFIG).warm().await;
    let other = [
        SandboxSpec { opening: vec![1], ..scene.spec.clone() },
        SandboxSpec { binds: vec![ReadOnlyBind::in_place(PathBuf::from("/x"))], ..scene.spec.clone() },
        SandboxSpec {
            files: vec![PlacedFile { path: PathBuf::from("/x"), content: [].into() }],
            ..scene.spec.clone()
        },
        SandboxSpec { absence_allowed: vec![sandbox::Guarantee::CpuLimited], ..scene.spec.clone() },
        SandboxSpec {
            zygote: Some(ZygoteSpec { argv: vec!["numpy".to_owned()], env: Vec::new() }),
            ..scene.spec.clone()
        },
    ];
    for spec in &other {
        assert!(scene.lease_of(spec).await.is_none(), "{spec:?}");
    }
    assert!(scene.lease().await.is_some());
}

#[tokio::test]
async fn a_spare_is_ready_when_its_interpreter_says_so_and_the_words_are_heard_again() {
    let mut scene = Scene::new(CONFIG);
    scene.spec.opening = vec![1];
    let scene = scene.warm().await;
    let mut lease = scene.lease().await.unwrap();
    let (mut reader, _writer) = lease.connect().await.unwrap();
    let said = reader.next().await.unwrap();
    assert!(matches!(said, FromGuest::Control { data, .. } if data == b"1\0ready\0"));
}

#[tokio::test]
async fn an_interpreter_that_ends_instead_is_no_spare() {
    let fake = FakeBackend::new(|mut stream| {
        say(&mut stream, &FromGuest::Hello { version: VERSION });
        say(&mut stream, &FromGuest::Exited { process: 1, exit: wire::Exit::Code(1) });
        stream.read_to_end(&mut Vec::new()).ok();
    });
    let mut scene = Scene::over((fake, Guests::default()), CONFIG);
    scene.spec.opening = vec![1];
    assert!(scene.lease().await.is_none());
    scene.until("the build failed", |scene| scene.pool.snapshot().build_failures > 0).await;
    assert_eq!(scene.ready(), 0);
}

#[tokio::test]
async fn a_spare_whose_guest_died_is_not_handed_out_and_is_replaced() {
    let scene = Scene::new(CONFIG).warm().await;
    scene.guests.lock().unwrap().iter().for_each(|guest| drop(guest.shutdown(Shutdown::Both)));
    assert!(scene.lease().await.is_none(), "both are dead");
    assert_eq!(scene.discarded(Discard::Dead), 2);
    scene.until("others are ready", |scene| scene.ready() >= CONFIG.floor).await;
    assert!(scene.lease().await.is_some());
}

#[tokio::test]
async fn a_spare_that_cannot_have_the_limits_stays_for_others() {
    let (fake, guests) = patient();
    let scene = Scene::over((fake.with_fixed_disk(), guests), CONFIG).warm().await;
    let larger = Limits { disk_bytes: 1 << 30, ..Limits::default() };
    let spec = SandboxSpec { limits: larger, ..scene.spec.clone() };
    assert!(scene.lease_of(&spec).await.is_none());
    assert_eq!((scene.ready(), scene.fake.taken().len()), (CONFIG.floor, 0));
    assert!(scene.lease().await.is_some());
}

#[tokio::test]
async fn builds_that_fail_are_nobodys_error_and_not_repeated_at_once() {
    let scene = Scene::new(CONFIG);
    scene.fake.set_broken(true);
    assert!(scene.lease().await.is_none());
    scene.until("it was tried", |scene| scene.pool.snapshot().build_failures > 0).await;
    let tried = scene.fake.made();
    for _ in 0..50 {
        assert!(scene.lease().await.is_none());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(scene.fake.made() <= tried + 1, "{} tries, then {}", tried, scene.fake.made());
    scene.fake.set_broken(false);
    scene.until("it recovered", |scene| scene.ready() >= CONFIG.floor).await;
}

#[tokio::test]
async fn old_ones_are_replaced() {
    let config = PoolConfig { age_max: Duration::from_millis(30), ..CONFIG };
    let scene = Scene::new(config);
    assert!(scene.lease().await.is_none());
    scene.until("some grew old", |scene| scene.discarded(Discard::Age) >= 2).await;
    scene.until("new ones came", |scene| scene.fake.made() >= 4).await;
}

#[tokio::test]
async fn surplus_goes_when_nobody_asks_for_a_while_and_the_rest_later() {
    let scene = Scene::new(CONFIG).warm().await;
    let now = Instant::now();
    scene.shared().sweep(now + Duration::from_secs(40));
    assert_eq!(scene.ready(), CONFIG.floor);
    scene.shared().sweep(now + Duration::from_secs(299));
    assert_eq!(scene.ready(), CONFIG.floor);
    // The spares are younger than their maximum age, but the key has been idle too long.
    scene.shared().locked().sweep_idle(now + Duration::from_secs(302), &CONFIG).clear();
    assert!(scene.pool.snapshot().levels.is_empty());
}

#[tokio::test]
async fn more_are_kept_of_what_is_asked_for_more_and_never_beyond_the_ceiling() {
    let scene = Scene::new(CONFIG).warm().await;
    let mut leases = Vec::new();
    for _ in 0..12 {
        leases.push(scene.lease().await);
    }
    scene.until("the ceiling is reached", |scene| scene.ready() == CONFIG.ceiling).await;
    drop(leases);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(scene.ready(), CONFIG.ceiling);
}

#[tokio::test]
async fn all_keys_together_stay_within_the_maximum() {
    let scene = Scene::new(PoolConfig { floor: 4, ..CONFIG });
    for number in 0..100 {
        let spec = SandboxSpec { opening: vec![1, number], ..scene.spec.clone() };
        assert!(scene.lease_of(&spec).await.is_none());
    }
    scene.until("full", |scene| scene.ready() == SPARES_MAX).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(scene.ready(), SPARES_MAX);
    assert!(scene.pool.snapshot().levels.len() < 100, "keys are forgotten");
}

/// A pool in which each spare costs this much.
fn costly(cost_mb: u64, config: PoolConfig) -> Scene {
    let (fake, guests) = patient();
    let usage = Usage { memory_peak_bytes: cost_mb << 20, ..Usage::default() };
    Scene::over((fake.using(usage), guests), config)
}

#[tokio::test]
async fn spares_stay_within_their_share_of_memory() {
    let scene = costly(100, PoolConfig { floor: 4, memory_bytes_max: 250 << 20, ..CONFIG });
    assert!(scene.lease().await.is_none());
    scene.until("two fit", |scene| scene.ready() == 2).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(scene.ready(), 2);
}

#[tokio::test]
async fn spares_make_way_for_a_run_that_lacks_memory() {
    let scene = costly(200, CONFIG).warm().await;
    let needed = 900 << 20;
    let missing = scene.admission.memory_missing(needed);
    assert!(missing > 0, "spares are part of what is promised");
    scene.pool.give_way(missing);
    assert_eq!(scene.admission.memory_missing(needed), 0);
    assert!(scene.discarded(Discard::Memory) > 0);
}

#[tokio::test]
async fn closing_destroys_all_and_builds_no_more() {
    let scene = Scene::new(CONFIG).warm().await;
    scene.pool.close().await;
    assert_eq!(scene.fake.alive(), 0);
    let made = scene.fake.made();
    assert!(scene.lease().await.is_none());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!((scene.fake.made(), scene.fake.alive()), (made, 0));
}

#[tokio::test]
async fn a_pool_that_is_dropped_leaves_nothing() {
    let Scene { fake, pool, .. } = Scene::new(CONFIG).warm().await;
    drop(pool);
    assert_eq!(fake.alive(), 0);
}

#[tokio::test]
async fn while_something_runs_building_waits_a_moment_and_when_it_is_quiet_it_does_not() {
    let (spec, usual, now) = (SandboxSpec::default(), Limits::default(), Instant::now());
    let want = Want { spec: &spec, usual: &usual, most: &usual, language: "x", purpose: Purpose::Run };
    let mut shelves = Shelves::default();
    shelves.ask(&want, now);
    assert!(shelves.next_to_build(now, false, &CONFIG).is_none(), "who asked goes first");
    let later = shelves.next_build_at(now, false, &CONFIG).unwrap();
    assert!(shelves.next_to_build(later, false, &CONFIG).is_some(), "a long run does not hold it up");
    assert!(shelves.next_to_build(now, true, &CONFIG).is_some());
    shelves.blame(&want, now);
    assert!(
        shelves.next_to_build(now, true, &CONFIG).is_none(),
        "one that failed is not tried again at once"
    );
}

/// A guest that records every message, with an interpreter that is ready at once.
fn attentive() -> (FakeBackend, Arc<Mutex<Vec<u8>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let fake = FakeBackend::new(move |mut stream| {
        say(&mut stream, &FromGuest::Hello { version: VERSION });
        let data = b"1\0ready\0".to_vec();
        say(&mut stream, &FromGuest::Control { process: crate::conversation::MAIN, data });
        let mut bytes = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            heard.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
    });
    (fake, told)
}

#[tokio::test]
async fn each_interpreter_rehearses_once_and_only_when_it_is_quiet() {
    let (fake, told) = attentive();
    let rehearsals = || {
        let told = told.lock().unwrap();
        told.windows(8).filter(|window| *window == b"rehearse").count()
    };
    let mut scene = Scene::over((fake, Guests::default()), CONFIG);
    scene.spec.opening = vec![1];
    scene.spec.zygote = Some(ZygoteSpec { argv: vec!["x".to_owned()], env: Vec::new() });
    let running = scene.admission.admit(1 << 20).await.unwrap();
    let scene = scene.warm().await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(rehearsals(), 0, "something runs");
    drop(running);
    scene.until("both rehearse", |_| rehearsals() == CONFIG.floor).await;
    scene.shared().wake.notify_one();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(rehearsals(), CONFIG.floor, "once each");
}

#[tokio::test]
async fn spares_that_cannot_be_built_are_told_once_with_their_cause_and_counted() {
    let heard = Heard::begin();
    let scene = Scene::new(CONFIG);
    let failures = || scene.shared().failures.counts()[FailureKind::Spare as usize];
    scene.fake.set_failing(Some("clone"));
    assert!(scene.lease().await.is_none());
    scene.until("it failed twice", |_| failures() >= 2).await;
    scene.fake.set_failing(None);
    scene.until("it recovered", |scene| scene.ready() >= CONFIG.floor).await;
    let told = heard.events();
    assert_eq!(told.len(), 2, "{told:?}");
    let wanted = "spare_failed subject=x run reason=the wall was not built cause=building the sandbox failed at clone: timed out count=1";
    assert_eq!(told[0], wanted);
    assert!(told[1].starts_with("spare_recovered subject=x run failures="), "{told:?}");
}
