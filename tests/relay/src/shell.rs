//! Runs commands in the sandboxes of a backend, for the conformance suite, which does not know the guest's
//! protocol.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream as StdStream;

use sandbox::BoxFuture;
use sandbox::conformance::{Guest, Shell};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use wire::{
    CHUNK_BYTES_MAX, Fork, FrameBuffer, FromGuest, LINK_WINDOW_BYTES, ListenAt, OpenProcess, ToGuest,
};

/// Speaks to guests over `wire`.
#[derive(Debug, Clone, Copy)]
pub struct WireGuest;

impl Guest for WireGuest {
    fn connect(&self, stream: StdStream) -> BoxFuture<'_, Result<Box<dyn Shell>, String>> {
        Box::pin(async move {
            stream.set_nonblocking(true).map_err(|error| error.to_string())?;
            let stream = UnixStream::from_std(stream).map_err(|error| error.to_string())?;
            let mut shell =
                WireShell { stream, frames: FrameBuffer::default(), started: 0, links: BTreeMap::new() };
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
    links: BTreeMap<u32, Echo>,
}

/// One link whose bytes go back.
struct Echo {
    waiting: Vec<u8>,
    /// How much the guest takes now.
    window: usize,
    has_ended: bool,
}

/// The number of questions about listeners. No command has it.
const LISTEN: u32 = 1 << 30;

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
            terminal: None,
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
                Some(other) => self.echo(other).await?,
                None => return Err("the guest ended before its command".to_owned()),
            }
        }
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    async fn execute_with_echo(&mut self, port: u16, command: &str) -> Result<String, String> {
        let at = ListenAt::Loopback(port);
        self.send(&ToGuest::Listen { request: LISTEN, listener: 0, at }).await?;
        match self.next().await? {
            Some(FromGuest::Listening { request: LISTEN, listener: 0 }) => {}
            other => return Err(format!("the guest listens; found {other:?}")),
        }
        let output = self.execute(command).await?;
        self.send(&ToGuest::EndLinks { request: LISTEN }).await?;
        loop {
            match self.next().await? {
                Some(FromGuest::Done { request: LISTEN }) => break,
                Some(_) => {}
                None => return Err("the guest ended instead of its links".to_owned()),
            }
        }
        self.links.clear();
        Ok(output)
    }

    /// Sends back what comes over a link, as far as the window allows.
    async fn echo(&mut self, message: FromGuest) -> Result<(), String> {
        let number = match message {
            FromGuest::LinkOpened { link, .. } => {
                let echo = Echo { waiting: Vec::new(), window: LINK_WINDOW_BYTES, has_ended: false };
                self.links.insert(link, echo);
                return Ok(());
            }
            FromGuest::LinkClosed { link } => {
                self.links.remove(&link);
                return self.send(&ToGuest::LinkClosed { link }).await;
            }
            FromGuest::Link { link, .. }
            | FromGuest::LinkTaken { link, .. }
            | FromGuest::LinkEnd { link } => link,
            _ => return Ok(()),
        };
        let echo = self.links.get_mut(&number).ok_or("the guest speaks of links that are open")?;
        match message {
            FromGuest::Link { data, .. } => echo.waiting.extend(data),
            FromGuest::LinkTaken { bytes, .. } => echo.window += bytes as usize,
            _ => echo.has_ended = true,
        }
        let mut messages = Vec::new();
        while echo.window > 0 && !echo.waiting.is_empty() {
            let count = echo.waiting.len().min(echo.window).min(CHUNK_BYTES_MAX);
            let data: Vec<u8> = echo.waiting.drain(..count).collect();
            echo.window -= count;
            messages.push(ToGuest::Link { link: number, data });
            let bytes = u32::try_from(count).map_err(|error| error.to_string())?;
            messages.push(ToGuest::LinkTaken { link: number, bytes });
        }
        if echo.has_ended && echo.waiting.is_empty() {
            messages.push(ToGuest::LinkEnd { link: number });
        }
        for message in messages {
            self.send(&message).await?;
        }
        Ok(())
    }
}

impl Shell for WireShell {
    fn run<'a>(&'a mut self, command: &'a str) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(self.execute(command))
    }

    fn run_with_echo<'a>(&'a mut self, port: u16, command: &'a str) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(self.execute_with_echo(port, command))
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
