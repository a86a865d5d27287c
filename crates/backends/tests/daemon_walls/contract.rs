//! The contract of walls, kept by both engines.

use std::time::Duration;

use backends::daemon::{DaemonBackend, Engine};
use libtest_mimic::Failed;
use relay::WireGuest;
use sandbox::conformance::{Area, Subject, check};
use sandbox::{Backend, SandboxSpec};

use crate::place::{Place, executor, told};

pub(crate) fn is_kept(place: &Place, engine: Engine) -> Result<(), Failed> {
    executor().block_on(async {
        let backend = place.backend(engine);
        can_build(&backend).await?;
        let subject = Subject { backend: &backend, guest: Some(&WireGuest) };
        let areas = check(subject).await?;
        assert_eq!(areas, Area::ALL, "every part of the contract applies");
        let enforced = backend.probe().await.map_err(told)?;
        assert_eq!(enforced.missing(&[]), [], "{enforced:?}");
        many_in_a_row(&backend).await
    })
}

/// The suite tells an error without its cause.
async fn can_build(backend: &DaemonBackend) -> Result<(), Failed> {
    for _ in 0..2 {
        let sandbox = backend.create(&SandboxSpec::default()).await.map_err(told)?;
        eprintln!("{}: {:?}", backend.name(), sandbox.phases().parts_us);
    }
    Ok(())
}

/// The number of this server's file descriptors returns to its initial value.
async fn many_in_a_row(backend: &DaemonBackend) -> Result<(), Failed> {
    let open = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let mut before = 0;
    for round in 0..5 {
        let mut sandbox = backend.create(&SandboxSpec::default()).await.map_err(told)?;
        sandbox.destroy().await.map_err(told)?;
        drop(sandbox);
        if round == 0 {
            before = open();
        }
    }
    for _ in 0..100 {
        if open() <= before {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("descriptors grew from {before} to {}", open()).into())
}
