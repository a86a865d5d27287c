//! Sandboxes that are built ahead: they take the limits of their run, and are torn down in two steps.

use super::stream::ends;
use super::wait::within;
use super::{Subject, destroy, holds};
use crate::{BackendError, Limits, Sandbox, SandboxSpec, Warmable};

pub(super) async fn check(subject: Subject<'_>) -> Result<(), String> {
    limits_are_taken_by_the_living_only(subject).await?;
    usage_is_final_once_quiesced(subject).await
}

fn warmable(sandbox: &mut Box<dyn Sandbox>) -> Result<&mut dyn Warmable, String> {
    sandbox.warmable().ok_or_else(|| "every sandbox of a warmable backend is warmable".to_owned())
}

/// A spare takes the limits of a run, or says that it cannot and stays as it is.
async fn limits_are_taken_by_the_living_only(subject: Subject<'_>) -> Result<(), String> {
    let usual = Limits::default();
    let most = Limits { memory_bytes: usual.memory_bytes * 2, wall_ms: usual.wall_ms * 2, ..usual.clone() };
    let spec = SandboxSpec { limits: usual.clone(), headroom: Some(most.clone()), ..SandboxSpec::default() };
    let smaller = Limits { memory_bytes: usual.memory_bytes / 2, processes: 8, ..usual.clone() };
    for (name, limits) in [("the same", &usual), ("larger", &most), ("smaller", &smaller)] {
        let mut sandbox = subject.create_as(&spec).await?;
        let spare = warmable(&mut sandbox)?;
        spare.settle();
        match within("take_limits returns", spare.take_limits(limits)).await? {
            Ok(()) | Err(BackendError::Unfit { .. }) => {}
            Err(error) => return Err(format!("a spare takes {name} limits or is unfit; found {error}")),
        }
    }
    let mut sandbox = subject.create_as(&spec).await?;
    destroy(&mut sandbox).await?;
    let taken = within("take_limits returns", warmable(&mut sandbox)?.take_limits(&usual)).await?;
    holds(taken.is_err(), "a destroyed sandbox takes no limits", &taken)
}

async fn usage_is_final_once_quiesced(subject: Subject<'_>) -> Result<(), String> {
    let mut sandbox = subject.create().await?;
    let stream = sandbox.take_stream().ok_or("a new sandbox has a stream")?;
    let quiesced = within("quiesce returns", warmable(&mut sandbox)?.quiesce()).await?;
    let quiesced = quiesced.map_err(|error| format!("quiesce: {error}"))?;
    let destroyed = destroy(&mut sandbox).await?;
    holds(quiesced == destroyed, "usage is final once quiesced", &(quiesced, destroyed))?;
    ends(stream, "quiesce and destroy end the stream").await
}
