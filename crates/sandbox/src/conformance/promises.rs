//! What a backend says about guarantees: probe speaks of each, and a sandbox keeps what probe promised.

use super::Subject;
use super::wait::within;
use crate::{Enforced, Enforcement, Guarantee};

pub(super) async fn check(subject: Subject<'_>) -> Result<(), String> {
    let promised = probe(subject).await?;
    for guarantee in Guarantee::ALL {
        if matches!(promised.get(guarantee), Enforcement::Absent { reason } if reason == "not examined") {
            return Err(format!("probe speaks of every guarantee; it says nothing about {guarantee}"));
        }
    }
    let sandbox = subject.create().await?;
    for guarantee in Guarantee::ALL {
        if promised.keeps(guarantee) && !sandbox.enforced().keeps(guarantee) {
            return Err(format!("a sandbox keeps what probe promises; it does not keep {guarantee}"));
        }
    }
    Ok(())
}

async fn probe(subject: Subject<'_>) -> Result<Enforced, String> {
    let probed = within("probe returns", subject.backend.probe()).await?;
    probed.map_err(|error| format!("probe: {error}"))
}
