//! The control socket: the operator of the server uses it from a terminal, without a token.
//!
//! ```text
//! <state_dir>/control.lock (held while the server lives) -> control.sock, 0600 -> peer's uid (SO_PEERCRED)
//!     the server's own uid, or root -> the principal that the token stands for
//!     any other uid                 -> 403 for every request
//! ```
//! The server's own user can read the token's file anyway, and root can read everything, so a token would
//! prove nothing. A server works without this socket, so no failure here stops it.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use axum::Router;
use axum::http::StatusCode;
use tokio::net::UnixStream;

use super::gate;
use super::listen::{self, Listener};

const SOCKET: &str = "control.sock";
const LOCK: &str = "control.lock";
const OWNER_ONLY: u32 = 0o600;
/// Maximum length of a socket's path, without its terminating zero (unix(7)).
const PATH_BYTES_MAX: usize = 107;
const ROOT: u32 = 0;

/// Path of the control socket in a state directory.
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(SOCKET)
}

/// The identity of a peer on the control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The user that runs this server, or root.
    Owner,
    Stranger,
}

/// Marks every request on a connection whose peer is the owner. Only such a connection creates it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromOwner(());

impl FromOwner {
    /// The mark for requests on a connection of this peer.
    pub(crate) fn of(peer: Peer) -> Option<Self> {
        (peer == Peer::Owner).then_some(Self(()))
    }
}

/// Opens the socket, unless a running server of the same state directory has it.
pub(crate) async fn open(state_dir: &Path) -> io::Result<Listener> {
    let path = path(state_dir);
    if path.as_os_str().as_bytes().len() > PATH_BYTES_MAX {
        let message = format!(
            "{} is longer than the {PATH_BYTES_MAX} bytes that the kernel allows for a socket: use a state directory with a \
             shorter path",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let _lock = hold(&state_dir.join(LOCK))?;
    let (listener, _file) = listen::open_socket(&path).await?;
    // The server's umask has denied access to other users since the file was created.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(OWNER_ONLY))?;
    Ok(Listener::Control { listener, _file, _lock })
}

/// Takes the lock until it is dropped. It prevents two servers that start at the same time from both
/// replacing a dead server's socket.
fn hold(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).write(true).truncate(false).mode(OWNER_ONLY);
    let file = options.open(path)?;
    file.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => {
            io::Error::new(io::ErrorKind::AddrInUse, "another server of this state directory has it")
        }
        std::fs::TryLockError::Error(error) => error,
    })?;
    Ok(file)
}

/// Identifies the peer. A peer that cannot be identified is a stranger.
pub(crate) fn peer(stream: &UnixStream) -> Peer {
    let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
    admitted(uid, rustix::process::geteuid().as_raw())
}

fn admitted(uid: Option<u32>, own: u32) -> Peer {
    match uid {
        Some(uid) if uid == own || uid == ROOT => Peer::Owner,
        _ => Peer::Stranger,
    }
}

/// The router for strangers.
pub(crate) fn refusing() -> Router {
    let reason = "only the user that runs this server, and root, may use its control socket";
    Router::new().fallback(move || async move { gate::refusal_of(StatusCode::FORBIDDEN, reason) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness::TestFolder;

    #[test]
    fn only_the_servers_own_user_and_root_are_admitted() {
        assert_eq!(admitted(Some(1000), 1000), Peer::Owner);
        assert_eq!(admitted(Some(0), 1000), Peer::Owner);
        for stranger in [Some(1001), Some(u32::MAX), None] {
            assert_eq!(admitted(stranger, 1000), Peer::Stranger, "{stranger:?}");
            assert_eq!(admitted(stranger, 0), Peer::Stranger, "{stranger:?}");
        }
    }

    #[tokio::test]
    async fn a_living_servers_socket_is_not_taken_and_a_dead_ones_is() {
        let folder = TestFolder::new();
        let first = open(folder.path()).await.unwrap();
        let mode = std::fs::metadata(path(folder.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, OWNER_ONLY);
        let second = open(folder.path()).await.err().unwrap();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        // The state after a killed server: the file exists and no process listens.
        drop(std::os::unix::net::UnixListener::bind(path(folder.path())).unwrap());
        assert!(open(folder.path()).await.is_ok());
    }

    #[tokio::test]
    async fn a_path_that_the_kernel_cannot_take_is_told_with_its_remedy() {
        let folder = TestFolder::new();
        let long = folder.path().join("x".repeat(PATH_BYTES_MAX));
        let error = open(&long).await.err().unwrap();
        assert!(error.to_string().contains("shorter path"), "{error}");
    }
}
