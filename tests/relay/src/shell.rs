//! Runs commands in the sandboxes of a backend, for the conformance suite, which does not know the guest's
//! protocol.

use std::os::unix::net::UnixStream as StdStream;

use sandbox::BoxFuture;
use sandbox::conformance::{Guest, Shell};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use wire::{Fork, FrameBuffer, FromGuest, OpenProcess, ToGuest};

/// Speaks to guests over `wire`.
#[derive(Debug, Clone, Copy)]
pub struct WireGuest;

impl Guest for WireGuest {
    fn connect(&self, stream: StdStream) -> BoxFuture<'_, Result<Box<dyn Shell>, String>> {
        Box::pin(async move {
            stream.set_nonblocking(true).map_err(|error| error.to_string())?;
            let stream = UnixStream::from_std(stream).map_err(|error| error.to_string())?;
            let mut shell = WireShell { stream, frames: FrameBuffer::default(), started: 0 };
            match shell.next().await? {
                Some(FromGuest::Hello { version }) if version == wire::VERSION => {
                    Ok(Box::new(shell) as Box<dyn Shell>)
                }
                other => Err(format!("the guest says hello first; found {other:?}")),
            }
        })
    }
}

struct WireShell {
    stream: UnixStream,
    frames: FrameBuffer,
    /// How many commands were started.
    started: u32,
}

impl WireShell {
    /// The guest's next message; `None` at the end of the stream.
    async fn next(&mut self) -> Result<Option<FromGuest>, String> {
        loop {
            if let Some(message) = self.frames.next().map_err(|error| error.to_string())? {
                return Ok(Some(message));
            }
            match self.stream.read_buf(self.frames.room()).await {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    async fn send(&mut self, message: &ToGuest) -> Result<(), String> {
        let frame = wire::encode(message).map_err(|error| error.to_string())?;
        self.stream.write_all(&frame).await.map_err(|error| error.to_string())
    }

    async fn execute(&mut self, command: &str) -> Result<String, String> {
        self.started += 1;
        let process = self.started;
        let open = OpenProcess {
            process,
            after: 0,
            argv: ["/bin/sh", "-c", command].map(str::to_owned).to_vec(),
            env: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
            cwd: sandbox::WORKSPACE.to_owned(),
            has_channel: false,
            fork: Fork::Never,
        };
        self.send(&ToGuest::Open(open)).await?;
        let mut output = Vec::new();
        loop {
            match self.next().await? {
                Some(FromGuest::Output { process: of, data, .. }) if of == process => output.extend(data),
                Some(FromGuest::Exited { process: of, .. }) if of == process => break,
                Some(FromGuest::Failed { request, kind, errno }) if request == process => {
                    return Err(format!("the command could not be started: {kind:?}, errno {errno}"));
                }
                Some(_) => {}
                None => return Err("the guest ended before its command".to_owned()),
            }
        }
        Ok(String::from_utf8_lossy(&output).into_owned())
    }
}

impl Shell for WireShell {
    fn run<'a>(&'a mut self, command: &'a str) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(self.execute(command))
    }

    fn end(mut self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move {
            self.send(&ToGuest::Shutdown).await?;
            // A stream that is reset has ended too.
            while let Ok(Some(_)) = self.next().await {}
            Ok(())
        })
    }
}
