//! The byte stream to a guest. It wakes the host only when there is something to read.
//!
//! A socket that is watched for both directions also reports each time the other side has taken data. These
//! wakeups are useless, because the socket nearly always has room. The host therefore watches it for reading
//! only, and for writing only while the guest takes no more.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, TryIoError};

/// The reading end.
pub(crate) struct ReadEnd(Arc<AsyncFd<UnixStream>>);

/// The writing end.
pub(crate) struct WriteEnd {
    stream: Arc<AsyncFd<UnixStream>>,
    /// Present while the guest takes no more.
    full: Option<AsyncFd<UnixStream>>,
}

/// Creates both ends from a sandbox's stream.
pub(crate) fn split(stream: UnixStream) -> io::Result<(ReadEnd, WriteEnd)> {
    stream.set_nonblocking(true)?;
    let stream = Arc::new(watched(stream, Interest::READABLE)?);
    Ok((ReadEnd(Arc::clone(&stream)), WriteEnd { stream, full: None }))
}

#[expect(
    deprecated,
    reason = "a UnixStream never changes its number, so the case the replacement guards is not ours"
)]
fn watched(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(stream, interest)
}

impl ReadEnd {
    /// Appends the next bytes to `bytes`, up to its spare capacity. Returns 0 at the end of the stream. Cancel
    /// safe.
    pub(crate) async fn read(&self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let room = bytes.capacity() - bytes.len();
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|stream| Ok(rustix::io::read(stream, rustix::buffer::spare_capacity(bytes))?))
            {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => {
                    // A read that returned less than requested has emptied the stream, so the next read need
                    // not try first.
                    if read.as_ref().is_ok_and(|count| (1..room).contains(count)) {
                        ready.clear_ready();
                    }
                    return read;
                }
                Err(TryIoError { .. }) => {}
            }
        }
    }

    /// Reads without waiting. Returns `None` when nothing has arrived.
    pub(crate) fn read_now(&self, bytes: &mut Vec<u8>) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(self.0.get_ref(), rustix::buffer::spare_capacity(bytes)) {
                Ok(count) => return Ok(Some(count)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl WriteEnd {
    /// Sends as much as the guest takes. Cancel safe.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let full = match &self.full {
                None => match send(self.stream.get_ref(), bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let stream = self.stream.get_ref().try_clone()?;
                        self.full.insert(watched(stream, Interest::WRITABLE)?)
                    }
                    sent => return sent,
                },
                Some(full) => full,
            };
            let mut ready = full.writable().await?;
            if let Ok(sent) = ready.try_io(|stream| send(stream.get_ref(), bytes)) {
                drop(ready);
                self.full = None;
                return sent;
            }
        }
    }

    /// Sends as much as the guest takes at once.
    pub(crate) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        send(self.stream.get_ref(), bytes)
    }

    /// Sends all of it.
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = self.write(bytes).await?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }
}

fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match rustix::net::send(stream, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[tokio::test]
    async fn what_is_sent_comes_in_order_and_the_end_is_told() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (read, _write) = split(ours).unwrap();
        let mut bytes = Vec::with_capacity(16);
        theirs.write_all(b"one").unwrap();
        assert_eq!(read.read(&mut bytes).await.unwrap(), 3);
        assert_eq!(read.read_now(&mut bytes).unwrap(), None);
        theirs.write_all(b"two").unwrap();
        drop(theirs);
        assert_eq!(read.read(&mut bytes).await.unwrap(), 3);
        assert_eq!(read.read(&mut bytes).await.unwrap(), 0);
        assert_eq!(bytes, b"onetwo");
    }

    #[tokio::test]
    async fn a_guest_that_reads_slowly_gets_everything() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_read, mut write) = split(ours).unwrap();
        let sent: Vec<u8> = (0..4_000_000_u32).map(|number| number as u8).collect();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).unwrap();
            got
        });
        write.write_all(&sent).await.unwrap();
        drop((write, _read));
        assert!(reader.join().unwrap() == sent);
    }

    #[tokio::test]
    async fn a_write_that_is_given_up_sends_nothing_twice() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_read, mut write) = split(ours).unwrap();
        let mut sent = 0;
        let pause = std::time::Duration::from_millis(20);
        while let Ok(count) = tokio::time::timeout(pause, write.write(&[7; 65_536])).await {
            sent += count.unwrap();
        }
        theirs.set_nonblocking(true).unwrap();
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap_err();
        assert_eq!(got.len(), sent);
        assert!(write.write(b"x").await.unwrap() == 1);
    }
}
