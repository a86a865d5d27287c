//! Opens connections to checked addresses, or through the operator's own proxy.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::head::{HEAD_BYTES_MAX, end_of_head};
use crate::host::{Host, split_port};
use crate::refusal::Refusal;

/// How long one address may take to accept a connection, and how many are tried.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);
const DIALS_MAX: usize = 4;
const UPSTREAM_PATIENCE: Duration = Duration::from_secs(15);

/// A proxy of the operator through which everything is dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    host: Host,
    port: u16,
}

impl FromStr for Upstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").ok_or("it is http://HOST:PORT")?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = split_port(rest).ok_or("it is http://HOST:PORT, without a user or a path")?;
        let host = Host::parse(host).map_err(|error| error.to_string())?;
        Ok(Self { host, port })
    }
}

impl std::fmt::Display for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

/// Whether this build may send anything to an address. Test builds reach this machine only, so that a test whose
/// protection fails sends no packet elsewhere.
fn may_dial(address: &IpAddr) -> bool {
    !cfg!(feature = "loopback") || address.is_loopback()
}

/// Connects to the first of these addresses that accepts.
pub(crate) async fn dial(addresses: &[IpAddr], port: u16) -> Result<TcpStream, Refusal> {
    for address in addresses.iter().take(DIALS_MAX).filter(|address| may_dial(address)) {
        let connect = TcpStream::connect(SocketAddr::new(*address, port));
        if let Ok(Ok(stream)) = tokio::time::timeout(DIAL_PATIENCE, connect).await {
            stream.set_nodelay(true).ok();
            return Ok(stream);
        }
    }
    Err(Refusal::Unreachable)
}

impl Upstream {
    /// Opens a tunnel to a host that the operator named. No rule of access applies to it.
    pub async fn open(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let wrong = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let host = Host::parse(host).map_err(wrong)?;
        let tunnel = tokio::time::timeout(UPSTREAM_PATIENCE, self.tunnel(&host, port)).await;
        tunnel.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Opens a tunnel to a host through the proxy, which looks its name up.
    pub(crate) async fn dial(&self, host: &Host, port: u16) -> Result<TcpStream, Refusal> {
        let tunnel = tokio::time::timeout(UPSTREAM_PATIENCE, self.tunnel(host, port)).await;
        tunnel.ok().and_then(Result::ok).ok_or(Refusal::UpstreamFailed)
    }

    async fn tunnel(&self, host: &Host, port: u16) -> io::Result<TcpStream> {
        let mut stream = match &self.host {
            Host::Name(name) => TcpStream::connect((name.as_str(), self.port)).await?,
            Host::Address(address) => TcpStream::connect(SocketAddr::new(*address, self.port)).await?,
        };
        stream.set_nodelay(true)?;
        let ask = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
        stream.write_all(ask.as_bytes()).await?;
        let mut head = Vec::new();
        // One byte at a time: what follows the head belongs to the tunnel.
        while end_of_head(&head).is_none() {
            if head.len() >= HEAD_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            head.push(stream.read_u8().await?);
        }
        let is_open = head.starts_with(b"HTTP/1.1 200 ") || head.starts_with(b"HTTP/1.0 200 ");
        if is_open { Ok(stream) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "loopback")]
    #[test]
    fn a_test_build_dials_loopback_only() {
        assert!(may_dial(&[127, 0, 0, 1].into()));
        assert!(!may_dial(&[192, 0, 2, 1].into()) && !may_dial(&[169, 254, 169, 254].into()));
    }

    #[test]
    fn an_upstream_proxy_is_a_plain_address() {
        assert_eq!(
            "http://Proxy.example:3128/".parse::<Upstream>().unwrap().to_string(),
            "http://proxy.example:3128"
        );
        for text in ["proxy:1", "https://p:1", "http://u:p@h:1", "http://h", "http://h:1/x", "socks5://h:1"] {
            assert!(text.parse::<Upstream>().is_err(), "{text}");
        }
    }
}
