//! The first bytes of a tunnel: a TLS ClientHello whose server name is the host (RFC 8446, section 4.1.2; RFC 6066,
//! section 3). It may be spread over several records.
//!
//! Only the name is read. Everything else is passed on as it is, and the origin judges it.

use crate::host::Host;
use crate::refusal::Refusal;

/// The largest ClientHello, with the headers of its records.
pub(crate) const HELLO_BYTES_MAX: usize = 16 << 10;
const RECORD_HANDSHAKE: u8 = 22;
const RECORD_BYTES_MAX: usize = 16 << 10;
const CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const NAME_TYPE_HOST: u8 = 0;

/// What is known after some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// More bytes are needed.
    Partial,
    /// The ClientHello is complete, and names this server.
    Name(Option<String>),
}

/// Looks at the first bytes of a tunnel.
pub(crate) fn look(bytes: &[u8]) -> Result<Seen, Refusal> {
    let handshake = handshake(bytes)?;
    if handshake.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(Refusal::NotTls("the first message is no ClientHello"));
    }
    let Some((header, body)) = handshake.split_at_checked(4) else { return partial(bytes) };
    let length = usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
    if length > HELLO_BYTES_MAX {
        return Err(Refusal::NotTls("the ClientHello is too long"));
    }
    match body.get(..length) {
        None => partial(bytes),
        Some(hello) => {
            server_name(hello).map(Seen::Name).ok_or(Refusal::NotTls("the ClientHello is malformed"))
        }
    }
}

fn partial(bytes: &[u8]) -> Result<Seen, Refusal> {
    if bytes.len() < HELLO_BYTES_MAX {
        Ok(Seen::Partial)
    } else {
        Err(Refusal::NotTls("the ClientHello is too long"))
    }
}

/// The bytes of handshake messages in these records.
fn handshake(bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut handshake = Vec::new();
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        if *first != RECORD_HANDSHAKE || rest.get(1).is_some_and(|major| *major != 3) {
            return Err(Refusal::NotTls("the first bytes are no TLS handshake"));
        }
        let Some((header, body)) = rest.split_at_checked(5) else { break };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        // An empty record of a handshake is forbidden (RFC 8446, section 5.1).
        if length == 0 || length > RECORD_BYTES_MAX {
            return Err(Refusal::NotTls("a TLS record has an impossible length"));
        }
        let taken = length.min(body.len());
        handshake.extend_from_slice(&body[..taken]);
        rest = &body[taken..];
        if handshake.len() >= 4 {
            let wanted = 4
                + (usize::from(handshake[1]) << 16
                    | usize::from(handshake[2]) << 8
                    | usize::from(handshake[3]));
            if handshake.len() >= wanted {
                break;
            }
        }
    }
    Ok(handshake)
}

/// Reads lengths and parts. Every length is checked against what is there.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A part with its length in one byte.
    fn short(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.take(1)?[0]);
        self.take(length)
    }

    /// A part with its length in two bytes.
    fn long(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.number()?);
        self.take(length)
    }
}

/// The server name of a ClientHello. `None` if it is malformed: a length that does not fit, an extension that comes
/// twice, several names, or bytes behind its end.
fn server_name(hello: &[u8]) -> Option<Option<String>> {
    let mut reader = Reader(hello);
    reader.take(2 + 32)?;
    let session = reader.short()?;
    let suites = reader.long()?;
    let compression = reader.short()?;
    if session.len() > 32 || suites.len() < 2 || suites.len() % 2 != 0 || compression.is_empty() {
        return None;
    }
    if reader.0.is_empty() {
        return Some(None);
    }
    let mut extensions = Reader(reader.long()?);
    if !reader.0.is_empty() {
        return None;
    }
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let data = extensions.long()?;
        if kind == EXTENSION_SERVER_NAME {
            if name.is_some() {
                return None;
            }
            name = Some(host_name(data)?);
        }
    }
    Some(name)
}

/// The one name of the extension.
fn host_name(data: &[u8]) -> Option<String> {
    let mut reader = Reader(data);
    let mut list = Reader(reader.long()?);
    let (kind, name) = (list.take(1)?[0], list.long()?);
    let is_one = kind == NAME_TYPE_HOST && list.0.is_empty() && reader.0.is_empty() && name.is_ascii();
    is_one.then(|| String::from_utf8_lossy(name).into_owned())
}

/// Refuses a ClientHello for another server than the host.
pub(crate) fn check(name: Option<&str>, host: &Host) -> Result<(), Refusal> {
    match (name, host) {
        // An address is no server name; clients leave it out.
        (None, Host::Address(_)) => Ok(()),
        (None, Host::Name(_)) => Err(Refusal::SniMissing),
        (Some(name), host) if Host::parse(name).is_ok_and(|named| named == *host) => Ok(()),
        (Some(_), _) => Err(Refusal::SniMismatch),
    }
}

#[cfg(test)]
#[path = "hello_tests.rs"]
pub(crate) mod tests;
