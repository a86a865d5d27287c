//! The byte stream to the guest: given once, the guest speaks first, everything passes, and one sandbox's
//! stream does not depend on another sandbox.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use super::wait::{aside, within};
use super::{Subject, destroy, holds, patience, run};
use crate::SandboxSpec;

/// More than any buffer between the guest and the test.
const MANY_BYTES: usize = 3 << 20;

pub(super) async fn check(subject: Subject<'_>) -> Result<(), String> {
    given_once_and_the_guest_speaks_first(subject).await?;
    sandboxes_live_side_by_side(subject).await?;
    if subject.guest.is_some() {
        everything_passes(subject).await?;
    }
    Ok(())
}

async fn given_once_and_the_guest_speaks_first(subject: Subject<'_>) -> Result<(), String> {
    let mut sandbox = subject.create().await?;
    let stream = sandbox.take_stream().ok_or("a new sandbox has a stream")?;
    holds(sandbox.take_stream().is_none(), "the stream is given once", &"a second one")?;
    let heard = first_byte(stream).await?;
    holds(matches!(heard, Ok(1)), "the guest speaks first", &heard)
}

async fn sandboxes_live_side_by_side(subject: Subject<'_>) -> Result<(), String> {
    let mut ended = subject.create().await?;
    let mut living = subject.create().await?;
    destroy(&mut ended).await?;
    let stream = living.take_stream().ok_or("a new sandbox has a stream")?;
    let heard = first_byte(stream).await?;
    holds(matches!(heard, Ok(1)), "a sandbox outlives its neighbour", &heard)
}

async fn everything_passes(subject: Subject<'_>) -> Result<(), String> {
    let (_sandbox, mut shell) = subject.inhabited(&SandboxSpec::default()).await?;
    let command = format!("head -c {MANY_BYTES} /dev/zero | tr '\\0' x");
    let output = run(&mut shell, &command).await?;
    let is_whole = output.len() == MANY_BYTES && output.bytes().all(|byte| byte == b'x');
    holds(is_whole, "everything that a program writes passes", &output.len())
}

async fn first_byte(mut stream: UnixStream) -> Result<io::Result<usize>, String> {
    let read = aside(move || {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(patience()))?;
        stream.read(&mut [0_u8; 1])
    });
    within("the guest speaks", read).await
}

/// Reads until the end of the stream, which must come.
pub(super) async fn ends(mut stream: UnixStream, clause: &str) -> Result<(), String> {
    let read = aside(move || {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(patience()))?;
        stream.read_to_end(&mut Vec::new())
    });
    match within(clause, read).await? {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(format!("{clause}; found {error}")),
    }
}
