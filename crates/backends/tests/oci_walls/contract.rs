//! The conformance suite against a wall with an OCI runtime.

use std::path::Path;
use std::time::Duration;

use backends::oci::{OciBackend, OciRuntime};
use libtest_mimic::Failed;
use relay::WireGuest;
use sandbox::conformance::{Area, Subject, check};
use sandbox::{Backend, SandboxSpec};

use crate::place::{Place, executor, told};

pub(crate) fn is_kept(place: &Place, runtime: OciRuntime) -> Result<(), Failed> {
    executor().block_on(async {
        let backend = place.backend(runtime, None);
        let subject = Subject { backend: &backend, guest: Some(&WireGuest) };
        can_build(&backend).await?;
        let areas = check(subject).await?;
        assert_eq!(areas, Area::ALL, "every part of the contract applies");
        let enforced = backend.probe().await.map_err(told)?;
        assert_eq!(enforced.missing(&[]), [], "{enforced:?}");
        many_in_a_row(&backend).await?;
        Ok::<(), Failed>(())
    })?;
    nothing_is_left(&place.folder, runtime)
}

/// The suite tells an error without its cause.
async fn can_build(backend: &OciBackend) -> Result<(), Failed> {
    let built = backend.create(&SandboxSpec::default()).await;
    let sandbox = built.map_err(told)?;
    eprintln!("{}: {:?}", backend.name(), sandbox.phases().parts_us);
    Ok(())
}

/// The number of this server's file descriptors returns to its initial value.
async fn many_in_a_row(backend: &OciBackend) -> Result<(), Failed> {
    let open = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let spec = SandboxSpec::default();
    let mut before = 0;
    for round in 0..5 {
        let mut sandbox = backend.create(&spec).await.map_err(told)?;
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

/// No bundle and no container is left when the wall is gone.
fn nothing_is_left(folder: &Path, runtime: OciRuntime) -> Result<(), Failed> {
    let above = folder.join("walls").join(runtime.name());
    for _ in 0..100 {
        if std::fs::read_dir(&above).map_or(0, Iterator::count) == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let left: Vec<_> = std::fs::read_dir(&above)?.flatten().map(|entry| entry.path()).collect();
    Err(format!("left: {left:?}").into())
}
