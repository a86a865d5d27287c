//! Listening addresses: a TCP address or a unix socket.
//!
//! Only the owner can use a socket file, because the process's umask is tightened before it is created. A
//! socket file of a dead server is replaced. A socket file of a running server is not.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::proxies::ProxyAddress;

const UNIX_PREFIX: &str = "unix:";

/// The default address.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8808);

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A unix socket at an absolute path.
    Unix(PathBuf),
}

impl Address {
    /// Whether only this machine can reach the address.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix(UNIX_PREFIX).or_else(|| text.starts_with('/').then_some(text)) {
            let path = PathBuf::from(path);
            return match path.is_absolute() && !path.as_os_str().to_string_lossy().contains('\0') {
                true => Ok(Self::Unix(path)),
                false => {
                    Err("a unix socket needs an absolute path: unix:/run/user/1000/palisade.sock".to_owned())
                }
            };
        }
        if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
            return Ok(Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            format!(
                "`{}` is no address: give IP:PORT such as 127.0.0.1:8808, or unix:/absolute/path",
                terminal::plain(text)
            )
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX_PREFIX}{}", path.display()),
        }
    }
}

/// An open listener.
pub(crate) enum Listener {
    Tcp {
        listener: TcpListener,
        /// The only peers, if there are any.
        proxies: Vec<ProxyAddress>,
    },
    Unix {
        listener: UnixListener,
        _file: SocketFile,
    },
    /// Checks the peer's identity ([`super::control`]). The file is dropped before the lock that guards it.
    Control {
        listener: UnixListener,
        _file: SocketFile,
        _lock: std::fs::File,
    },
}

/// A socket file, removed when the server ends.
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may already be gone.
        std::fs::remove_file(&self.0).ok();
    }
}

/// Opens a listener. Returns the actual address, because port 0 lets the kernel choose. Where other machines can
/// connect, the peers are the proxies, if there are any.
pub(crate) async fn open(address: &Address, proxies: &[ProxyAddress]) -> io::Result<(Listener, Address)> {
    match address {
        Address::Tcp(wanted) => {
            let listener = TcpListener::bind(wanted).await?;
            let found = listener.local_addr()?;
            let proxies = if address.is_local() { Vec::new() } else { proxies.to_vec() };
            Ok((Listener::Tcp { listener, proxies }, Address::Tcp(found)))
        }
        Address::Unix(path) => {
            let (listener, _file) = open_socket(path).await?;
            Ok((Listener::Unix { listener, _file }, address.clone()))
        }
    }
}

/// Opens a unix socket, and replaces the socket file of a dead server.
pub(crate) async fn open_socket(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    remove_abandoned(path).await?;
    let listener = UnixListener::bind(path)?;
    Ok((listener, SocketFile(path.to_owned())))
}

async fn remove_abandoned(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        let message = format!("{} exists and is no socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => {
            let message = format!("another server answers on {}", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert!(matches!("127.0.0.1:8808".parse(), Ok(Address::Tcp(_))));
        assert_eq!("localhost:1".parse::<Address>().unwrap().to_string(), "127.0.0.1:1");
        assert_eq!("unix:/run/p.sock".parse::<Address>().unwrap().to_string(), "unix:/run/p.sock");
        assert!(matches!("/run/p.sock".parse(), Ok(Address::Unix(_))));
        for bad in ["", "8808", "example.com:80", "unix:relative", "unix:"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_loopback_and_sockets_are_local() {
        let is_local = |text: &str| text.parse::<Address>().unwrap().is_local();
        assert!(is_local("127.0.0.1:1") && is_local("127.9.9.9:1") && is_local("[::1]:1") && is_local("/x"));
        assert!(is_local("[::ffff:127.0.0.1]:1"), "a mapped address is what it maps to");
        assert!(!is_local("0.0.0.0:1") && !is_local("[::]:1") && !is_local("192.0.2.1:1"));
    }
}
