//! A socket inside the sandbox that programs connect to.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use wire::ListenAt;

/// How many connections wait in the kernel while the guest accepts none.
const BACKLOG: i32 = 64;

/// A listening socket. Dropping it removes the file of a Unix socket.
pub(super) struct Listener {
    socket: OwnedFd,
    /// The file of a Unix socket, and its folder if the guest created it.
    file: Option<(PathBuf, Option<PathBuf>)>,
    is_tcp: bool,
}

impl Listener {
    pub(super) fn open(at: &ListenAt) -> io::Result<Self> {
        match at {
            ListenAt::Socket(path) => Self::at_path(Path::new(path)),
            ListenAt::Loopback(port) => Self::at_port(*port),
        }
    }

    fn at_path(path: &Path) -> io::Result<Self> {
        let (true, Some(folder)) = (path.is_absolute(), path.parent()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let address = SocketAddrUnix::new(path)?;
        let is_ours = match rustix::fs::mkdir(folder, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        // An earlier run may have left a file of that name.
        match rustix::fs::unlink(path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = socket(AddressFamily::UNIX)?;
        rustix::net::bind(&socket, &address)?;
        let file = Some((path.to_owned(), is_ours.then(|| folder.to_owned())));
        let listener = Self { socket, file, is_tcp: false };
        rustix::net::listen(&listener.socket, BACKLOG)?;
        Ok(listener)
    }

    fn at_port(port: u16) -> io::Result<Self> {
        if port == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let socket = socket(AddressFamily::INET)?;
        // Closed connections of an earlier run may still hold the port for seconds. See tcp(7), TIME_WAIT.
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { socket, file: None, is_tcp: true })
    }

    /// The next connection, if one waits.
    pub(super) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.socket, flags) {
            Ok(socket) => {
                if self.is_tcp {
                    // Bytes of the host leave at once. Without this option they only leave later.
                    rustix::net::sockopt::set_tcp_nodelay(&socket, true).ok();
                }
                Ok(Some(socket))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A program may have removed them already.
        if let Some((path, folder)) = &self.file {
            rustix::fs::unlink(path).ok();
            if let Some(folder) = folder {
                rustix::fs::rmdir(folder).ok();
            }
        }
    }
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}
