//! The subset of HTTP/1.1 that a POST to a collector needs (RFC 9112). It blocks and runs on a separate
//! thread.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use http::Uri;

/// Port of a collector whose address has none (OTLP/HTTP).
const PORT: u16 = 4318;
const PATH: &str = "/v1/traces";
/// Timeout for connecting, and for each write and read.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum length of the status line.
const STATUS_LINE_BYTES_MAX: u64 = 1024;

/// The collector's address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Collector {
    host: String,
    port: u16,
    path: String,
}

impl Collector {
    pub(super) fn new(endpoint: &str) -> io::Result<Self> {
        let uri: Uri = endpoint.parse().map_err(io::Error::other)?;
        let host = uri.host().ok_or(io::ErrorKind::InvalidInput)?;
        let path = format!("{}{PATH}", uri.path().trim_end_matches('/'));
        Ok(Self { host: host.to_owned(), port: uri.port_u16().unwrap_or(PORT), path })
    }

    /// Sends one body. Every status except success is an error.
    pub(super) fn post(&self, body: &[u8]) -> io::Result<()> {
        let mut stream = self.connect()?;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            self.host,
            self.port,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut line = String::new();
        BufReader::new(stream.take(STATUS_LINE_BYTES_MAX)).read_line(&mut line)?;
        match line.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()) {
            Some(200..300) => Ok(()),
            Some(status) => Err(io::Error::other(format!("the collector answered with status {status}"))),
            None => Err(io::Error::other("the collector did not answer with HTTP")),
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        // An IPv6 address has brackets in a URL but not here.
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in (host, self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_write_timeout(Some(PATIENCE))?;
                    stream.set_read_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
