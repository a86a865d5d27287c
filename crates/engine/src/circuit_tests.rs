//! Tests of the circuit breaker over a backend that fails on demand. The tests control tokio's clock.

use sandbox::fake::FakeBackend;

use super::*;
use crate::test_events::Heard;

fn fake() -> FakeBackend {
    FakeBackend::new(drop)
}

fn circuit(fake: &FakeBackend) -> Circuit {
    Circuit::new(Arc::new(fake.clone()))
}

async fn build(circuit: &Circuit) -> Result<(), BackendError> {
    circuit.create(&SandboxSpec::default()).await.map(drop)
}

/// Lets builds fail until no more are tried.
async fn open(circuit: &Circuit) {
    for _ in 0..FAILURES_MAX {
        assert!(build(circuit).await.is_err());
    }
    // This build waits for the probe.
    let refused = build(circuit).await;
    assert!(matches!(refused, Err(BackendError::Suspended { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_stop_building_and_are_told_with_their_cause() {
    let fake = fake();
    let circuit = circuit(&fake);
    fake.set_failing(Some("procfs"));
    open(&circuit).await;
    let tried = fake.made();
    for _ in 0..100 {
        let Err(BackendError::Suspended { what, cause, remedy, retry_after_ms }) = build(&circuit).await
        else {
            panic!("it was tried")
        };
        assert_eq!(what, "building the sandbox failed at procfs");
        assert_eq!(cause.as_deref(), Some("timed out"));
        assert!(
            remedy.contains("does not finish this step") && !remedy.contains("palisade doctor"),
            "{remedy}"
        );
        assert!(retry_after_ms.is_some_and(|pause| pause >= 1000));
    }
    assert_eq!(fake.made(), tried, "nothing was built for a call");
}

#[tokio::test(start_paused = true)]
async fn it_recovers_by_itself_and_tells_each_change_once() {
    let fake = fake();
    let circuit = circuit(&fake);
    let heard = Heard::begin();
    fake.set_failing(Some("clone"));
    let regained = tokio::spawn({
        let circuit = circuit.clone();
        async move { circuit.regained().await }
    });
    open(&circuit).await;
    tokio::time::sleep(PAUSE_MAX * 4).await;
    assert!(circuit.failure().is_some());
    let probes = fake.probed();
    assert!((6..20).contains(&probes), "{probes} probes: each comes later than the one before");
    fake.set_failing(None);
    regained.await.unwrap();
    assert!(build(&circuit).await.is_ok());
    assert_eq!(circuit.failure(), None);
    let told = heard.events();
    assert_eq!(told.len(), 2, "{told:?}");
    let wanted = "wall_unavailable reason=building the sandbox failed at clone cause=timed out remedy=";
    assert!(told[0].starts_with(wanted), "{told:?}");
    assert!(told[1].starts_with("wall_available_again after_ms="), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_must_change_is_not_worth_trying_again() {
    let fake = fake();
    let circuit = circuit(&fake);
    fake.set_broken(true);
    open(&circuit).await;
    let Err(BackendError::Suspended { remedy, retry_after_ms, .. }) = build(&circuit).await else {
        panic!("it was tried")
    };
    assert_eq!((remedy.as_str(), retry_after_ms), ("switch it on", None));
    // Once the operator has fixed it, no restart is needed.
    fake.set_broken(false);
    tokio::time::sleep(PAUSE_MIN * 2).await;
    assert!(build(&circuit).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_success_between_failures_leaves_the_wall_undoubted() {
    let fake = fake();
    let circuit = circuit(&fake);
    for _ in 0..FAILURES_MAX {
        fake.set_failing(Some("binds"));
        for _ in 1..FAILURES_MAX {
            assert!(build(&circuit).await.is_err());
        }
        fake.set_failing(None);
        assert!(build(&circuit).await.is_ok());
    }
    assert_eq!(fake.probed(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_kind_of_sandbox_that_cannot_be_built_does_not_stop_the_others() {
    let fake = fake();
    let circuit = circuit(&fake);
    fake.set_failing(Some("bind sources"));
    for _ in 0..FAILURES_MAX {
        assert!(build(&circuit).await.is_err());
    }
    // When the probe runs, the plainest sandbox can be built.
    fake.set_failing(None);
    assert!(build(&circuit).await.is_ok());
    assert_eq!((fake.probed(), circuit.failure()), (1, None));
}

#[tokio::test(start_paused = true)]
async fn a_wall_that_is_away_is_probed_when_it_expects_to_be_back() {
    let fake = fake();
    let circuit = circuit(&fake);
    fake.set_away(Some(4000));
    for _ in 0..FAILURES_MAX {
        // Each of these callers gets the wall's own answer.
        let Err(error) = build(&circuit).await else { panic!("it is away") };
        assert!(matches!(error, BackendError::Unavailable { .. }), "{error:?}");
        assert_eq!(error.retry_after_ms(), Some(4000));
    }
    let Err(error) = build(&circuit).await else { panic!("it is away") };
    assert!(matches!(error, BackendError::Suspended { .. }), "{error:?}");
    assert_eq!(error.retry_after_ms(), Some(4000));
    assert_eq!(circuit.failure().map(|failure| failure.is_permanent), Some(false));
    // The pauses do not grow.
    tokio::time::sleep(Duration::from_secs(41)).await;
    assert_eq!(fake.probed(), 11);
    fake.set_away(None);
    tokio::time::sleep(Duration::from_millis(4001)).await;
    assert!(build(&circuit).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_wall_without_room_that_can_be_probed_stays_in_use() {
    let fake = fake();
    let circuit = circuit(&fake);
    fake.set_away(Some(50));
    for _ in 0..FAILURES_MAX {
        assert!(build(&circuit).await.is_err());
    }
    fake.set_away(None);
    assert!(build(&circuit).await.is_ok());
    assert_eq!((fake.probed(), circuit.failure()), (1, None));
}
