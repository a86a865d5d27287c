//! The conformance suite that every backend passes, including the fake one.
//!
//! A backend's tests call [`check`] inside their runtime. The suite examines the contract from outside:
//! guarantees, streams, destruction. It does not test what a particular backend blocks; the escape suite
//! does.

use std::io::Read;
use std::time::Duration;

use crate::{Backend, BackendError, Guarantee, Limits, Sandbox, SandboxSpec};

const PATIENCE: Duration = Duration::from_secs(10);

/// Runs every check. The error names the first violated clause.
pub async fn check(backend: &dyn Backend) -> Result<(), String> {
    probe_speaks_of_every_guarantee(backend).await?;
    created_sandbox_is_what_probe_promised(backend).await?;
    stream_is_given_once_and_the_guest_speaks_first(backend).await?;
    destroy_ends_the_stream_and_may_be_repeated(backend).await?;
    dropping_destroys(backend).await?;
    limits_are_taken_by_the_living_only(backend).await?;
    sandboxes_live_side_by_side(backend).await
}

async fn create(backend: &dyn Backend) -> Result<Box<dyn Sandbox>, String> {
    let spec = SandboxSpec { limits: Limits::default(), ..SandboxSpec::default() };
    backend.create(&spec).await.map_err(|error| format!("create: {error}"))
}

async fn probe_speaks_of_every_guarantee(backend: &dyn Backend) -> Result<(), String> {
    let enforced = backend.probe().await.map_err(|error| format!("probe: {error}"))?;
    for guarantee in Guarantee::ALL {
        if matches!(enforced.get(guarantee), crate::Enforcement::Absent { reason } if reason == "not examined")
        {
            return Err(format!("probe says nothing about {guarantee}"));
        }
    }
    Ok(())
}

async fn created_sandbox_is_what_probe_promised(backend: &dyn Backend) -> Result<(), String> {
    let promised = backend.probe().await.map_err(|error| format!("probe: {error}"))?;
    let sandbox = create(backend).await?;
    for guarantee in Guarantee::ALL {
        if promised.keeps(guarantee) && !sandbox.enforced().keeps(guarantee) {
            return Err(format!("{guarantee} was promised by probe and is not kept by the sandbox"));
        }
    }
    Ok(())
}

async fn stream_is_given_once_and_the_guest_speaks_first(backend: &dyn Backend) -> Result<(), String> {
    let mut sandbox = create(backend).await?;
    let mut stream = sandbox.take_stream().ok_or("no stream")?;
    if sandbox.take_stream().is_some() {
        return Err("the stream was given out twice".to_owned());
    }
    stream.set_nonblocking(false).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    let mut first = [0_u8; 1];
    match stream.read(&mut first) {
        Ok(1) => Ok(()),
        other => Err(format!("the guest did not speak: {other:?}")),
    }
}

async fn destroy_ends_the_stream_and_may_be_repeated(backend: &dyn Backend) -> Result<(), String> {
    let mut sandbox = create(backend).await?;
    let stream = sandbox.take_stream().ok_or("no stream")?;
    let quiesced = match sandbox.warmable() {
        Some(warmable) => warmable.quiesce().await.map_err(|error| format!("quiesce: {error}"))?,
        None => sandbox.destroy().await.map_err(|error| format!("destroy: {error}"))?,
    };
    let first = sandbox.destroy().await.map_err(|error| format!("destroy: {error}"))?;
    let second = sandbox.destroy().await.map_err(|error| format!("second destroy: {error}"))?;
    if second != first || first != quiesced {
        return Err(format!("usage changed after the end: {quiesced:?}, {first:?}, {second:?}"));
    }
    ends(stream)
}

async fn dropping_destroys(backend: &dyn Backend) -> Result<(), String> {
    let mut sandbox = create(backend).await?;
    let stream = sandbox.take_stream().ok_or("no stream")?;
    drop(sandbox);
    ends(stream)
}

/// A spare takes the limits of a run, or reports that it cannot and stays unchanged. A backend that says that
/// its sandboxes are warmable builds only such sandboxes.
async fn limits_are_taken_by_the_living_only(backend: &dyn Backend) -> Result<(), String> {
    const NOT_WARMABLE: &str = "a sandbox of a warmable backend is not warmable";
    if !backend.is_warmable() {
        return Ok(());
    }
    let usual = Limits::default();
    let most = Limits { memory_bytes: usual.memory_bytes * 2, wall_ms: usual.wall_ms * 2, ..usual.clone() };
    let spec = SandboxSpec { limits: usual.clone(), headroom: Some(most.clone()), ..SandboxSpec::default() };
    let smaller = Limits { memory_bytes: usual.memory_bytes / 2, processes: 8, ..usual.clone() };
    for (name, limits) in [("the same", &usual), ("larger", &most), ("smaller", &smaller)] {
        let mut sandbox = backend.create(&spec).await.map_err(|error| format!("create: {error}"))?;
        match sandbox.warmable().ok_or(NOT_WARMABLE)?.take_limits(limits).await {
            Ok(()) | Err(BackendError::Unfit { .. }) => {}
            Err(error) => return Err(format!("{name} limits: {error}")),
        }
    }
    let mut sandbox = backend.create(&spec).await.map_err(|error| format!("create: {error}"))?;
    sandbox.destroy().await.map_err(|error| format!("destroy: {error}"))?;
    match sandbox.warmable().ok_or(NOT_WARMABLE)?.take_limits(&usual).await {
        Ok(()) => Err("a sandbox took limits after it was destroyed".to_owned()),
        Err(_) => Ok(()),
    }
}

async fn sandboxes_live_side_by_side(backend: &dyn Backend) -> Result<(), String> {
    let mut first = create(backend).await?;
    let mut second = create(backend).await?;
    first.destroy().await.map_err(|error| format!("destroy: {error}"))?;
    let mut stream = second.take_stream().ok_or("no stream")?;
    stream.set_nonblocking(false).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    let mut first_byte = [0_u8; 1];
    match stream.read(&mut first_byte) {
        Ok(1) => Ok(()),
        other => Err(format!("a sandbox did not outlive its neighbour: {other:?}")),
    }
}

fn ends(mut stream: std::os::unix::net::UnixStream) -> Result<(), String> {
    stream.set_nonblocking(false).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(format!("the stream did not end after destruction: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::io::{Read, Write};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::check;
    use crate::fake::FakeBackend;

    /// The fake never waits, so one poll completes it.
    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("the fake waited"),
        }
    }

    #[test]
    fn the_fake_keeps_the_contract() {
        let fake = FakeBackend::new(|mut stream| {
            stream.write_all(b"hello").ok();
            stream.read_to_end(&mut Vec::new()).ok();
        });
        now(check(&fake)).unwrap();
        assert_eq!(fake.alive(), 0);
    }

    #[test]
    fn a_guest_that_never_speaks_breaks_the_contract() {
        let silent = FakeBackend::new(drop);
        assert!(now(check(&silent)).unwrap_err().contains("did not speak"));
    }
}
