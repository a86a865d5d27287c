//! How sandboxes end: destroyed, dropped, or by their guest.

use super::stream::ends;
use super::wait::within;
use super::{Subject, destroy, holds};
use crate::{Ending, SandboxSpec};

pub(super) async fn check(subject: Subject<'_>) -> Result<(), String> {
    destroy_ends_the_stream_and_may_be_repeated(subject).await?;
    dropping_destroys(subject).await?;
    dropping_an_unfinished_create_leaves_nothing(subject).await?;
    if subject.guest.is_some() {
        a_guest_that_ends_is_noticed(subject).await?;
    }
    Ok(())
}

async fn destroy_ends_the_stream_and_may_be_repeated(subject: Subject<'_>) -> Result<(), String> {
    let mut sandbox = subject.create().await?;
    let stream = sandbox.take_stream().ok_or("a new sandbox has a stream")?;
    let first = destroy(&mut sandbox).await?;
    let second = destroy(&mut sandbox).await?;
    let after = within("usage returns", sandbox.usage()).await?;
    let all = [first, second, after];
    holds(all.iter().all(|usage| *usage == first), "usage is final after destroy", &all)?;
    ends(stream, "destroy ends the stream").await
}

async fn dropping_destroys(subject: Subject<'_>) -> Result<(), String> {
    let mut sandbox = subject.create().await?;
    let stream = sandbox.take_stream().ok_or("a new sandbox has a stream")?;
    drop(sandbox);
    ends(stream, "dropping a sandbox ends its stream").await
}

/// A caller that is cancelled drops `create`. The backend must still serve the next one.
async fn dropping_an_unfinished_create_leaves_nothing(subject: Subject<'_>) -> Result<(), String> {
    let spec = SandboxSpec::default();
    for _ in 0..3 {
        let mut create = subject.backend.create(&spec);
        // One poll begins it.
        std::future::poll_fn(|context| {
            drop(create.as_mut().poll(context));
            std::task::Poll::Ready(())
        })
        .await;
        drop(create);
    }
    subject.create().await.map(drop)
}

async fn a_guest_that_ends_is_noticed(subject: Subject<'_>) -> Result<(), String> {
    let (mut sandbox, shell) = subject.inhabited(&SandboxSpec::default()).await?;
    within("the stream ends with its guest", shell.end()).await??;
    let ending = within("watch notices a guest that ended", sandbox.watch()).await?;
    holds(ending == Ending::Gone, "watch says that the guest is gone", &ending)?;
    let again = within("watch may be repeated", sandbox.watch()).await?;
    holds(again == Ending::Gone, "a repeated watch says the same", &again)?;
    destroy(&mut sandbox).await.map(drop)
}
