//! Starts a relay as a process of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use crate::server::ROLE;

/// A running relay. Dropping it kills it.
#[derive(Debug)]
pub struct RelayProcess {
    child: Child,
}

impl RelayProcess {
    /// Starts this executable again as a relay; its `main` calls [`crate::take_role`]. Returns the client's end
    /// of the stream.
    pub fn start() -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ROLE).current_dir("/").stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        Ok((Self { child: command.spawn()? }, ours))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as the kernel does when memory is short.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Waits until it ends. The stream must be closed.
    pub fn wait(&mut self) -> io::Result<()> {
        self.child.wait().map(drop)
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
