//! The head of a program's request, read strictly: two readers must not be able to understand it differently.
//!
//! Accepted are `CONNECT host:port` and `METHOD http://host[:port]/...`, with at most one `Host` that names the same
//! place. Refused are bare line ends, folded lines, white space before a colon, control characters, several lengths, and
//! a length beside a transfer coding. A plain request is written anew from its parts ([`Head::rewritten`]).

use crate::host::{Host, parse_port, split_port};
use crate::refusal::Refusal;

/// The largest head.
pub(crate) const HEAD_BYTES_MAX: usize = 8 << 10;
/// The largest number of header fields.
const FIELDS_MAX: usize = 100;
const METHOD_BYTES_MAX: usize = 32;

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) ask: Ask,
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A tunnel.
    Connect,
    /// One request.
    Plain(Plain),
}

/// A plain request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    method: String,
    /// Path and query.
    target: String,
    version: &'static str,
    fields: Vec<(String, Vec<u8>)>,
    pub(crate) body: Body,
}

/// How long the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Length(u64),
    Chunked,
}

/// Fields that concern one connection, and are not passed on (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "upgrade",
    "transfer-encoding",
    "http2-settings",
];

/// Where the head ends, if it is complete: behind its empty line.
pub(crate) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|start| start + 4)
}

impl Head {
    /// Parses a complete head, with its empty line.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let bytes = bytes.strip_suffix(b"\r\n\r\n").ok_or(Refusal::BadRequest("the head is not complete"))?;
        let mut lines = split_lines(bytes)?;
        let first = lines.next().unwrap_or_default();
        let fields = fields(lines)?;
        let (method, target, version) = request_line(first)?;
        if method == "CONNECT" {
            let (host, port) = split_port(target).ok_or(Refusal::BadRequest("CONNECT needs HOST:PORT"))?;
            let host = Host::parse(host).map_err(Refusal::BadHost)?;
            check_host_field(&fields, &host, port)?;
            if fields.iter().any(|(name, _)| name == "transfer-encoding" || name == "content-length") {
                return Err(Refusal::BadRequest("CONNECT has no body"));
            }
            return Ok(Self { host, port, ask: Ask::Connect });
        }
        let (host, port, target) = absolute(target)?;
        check_host_field(&fields, &host, port)?;
        let body = body(&fields, version)?;
        let (method, target) = (method.to_owned(), target);
        Ok(Self { host, port, ask: Ask::Plain(Plain { method, target, version, fields, body }) })
    }

    /// The head of a plain request for its origin, written anew. The origin closes the connection after its answer.
    pub(crate) fn rewritten(&self, plain: &Plain) -> Vec<u8> {
        let mut head = format!("{} {} {}\r\n", plain.method, plain.target, plain.version).into_bytes();
        let host =
            if self.port == 80 { self.host.to_string() } else { format!("{}:{}", self.host, self.port) };
        head.extend_from_slice(format!("Host: {host}\r\nConnection: close\r\n").as_bytes());
        let named: Vec<String> = plain.connection_options();
        for (name, value) in &plain.fields {
            let is_dropped = HOP_BY_HOP.contains(&name.as_str()) || name == "host" || named.contains(name);
            if !is_dropped {
                head.extend_from_slice(name.as_bytes());
                head.extend_from_slice(b": ");
                head.extend_from_slice(value);
                head.extend_from_slice(b"\r\n");
            }
        }
        if plain.body == Body::Chunked {
            head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

impl Plain {
    /// Fields that `Connection` names, which are not passed on either. The length of the body is never among them.
    fn connection_options(&self) -> Vec<String> {
        let values = self.fields.iter().filter(|(name, _)| name == "connection").map(|(_, value)| value);
        values
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(|option| String::from_utf8_lossy(option).trim().to_ascii_lowercase())
            .filter(|option| option != "content-length")
            .collect()
    }
}

/// Splits at CRLF. A bare CR or LF is refused.
fn split_lines(bytes: &[u8]) -> Result<impl Iterator<Item = &[u8]>, Refusal> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n");
        let line = &rest[..end.unwrap_or(rest.len())];
        if line.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
            return Err(Refusal::BadRequest("lines end with CR LF"));
        }
        lines.push(line);
        match end {
            Some(end) => rest = &rest[end + 2..],
            None => return Ok(lines.into_iter()),
        }
    }
}

fn request_line(line: &[u8]) -> Result<(&str, &str, &'static str), Refusal> {
    let bad = Refusal::BadRequest("the request line is not METHOD TARGET HTTP/1.1");
    let line = std::str::from_utf8(line).map_err(|_| bad)?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad);
    };
    let version = match version {
        "HTTP/1.1" => "HTTP/1.1",
        "HTTP/1.0" => "HTTP/1.0",
        _ => return Err(bad),
    };
    let is_method = (1..=METHOD_BYTES_MAX).contains(&method.len()) && method.bytes().all(is_token);
    let is_target =
        !target.is_empty() && !target.chars().any(|letter| letter.is_control() || letter.is_whitespace());
    if is_method && is_target { Ok((method, target, version)) } else { Err(bad) }
}

/// Characters of a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn fields<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Result<Vec<(String, Vec<u8>)>, Refusal> {
    let mut fields = Vec::new();
    for line in lines {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return Err(Refusal::BadRequest("a header field is folded over several lines"));
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let colon = colon.ok_or(Refusal::BadRequest("a header field has no colon"))?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.is_empty() || !name.iter().copied().all(is_token) {
            return Err(Refusal::BadRequest("the name of a header field is no token"));
        }
        if value.iter().any(|byte| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f) {
            return Err(Refusal::BadRequest("a header field contains a control character"));
        }
        fields.push((String::from_utf8_lossy(name).to_ascii_lowercase(), value.trim_ascii().to_vec()));
        if fields.len() > FIELDS_MAX {
            return Err(Refusal::BadRequest("there are too many header fields"));
        }
    }
    Ok(fields)
}

/// The parts of `http://host[:port]/path`.
fn absolute(target: &str) -> Result<(Host, u16, String), Refusal> {
    const ONLY: Refusal = Refusal::BadRequest("a request is CONNECT HOST:PORT, or METHOD http://HOST/...");
    if !target.is_ascii() {
        return Err(ONLY);
    }
    let scheme = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://")).ok_or(ONLY)?;
    let rest = &target[scheme.len()..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if path.contains('#') {
        return Err(Refusal::BadRequest("the address has a fragment"));
    }
    let has_port = authority.rfind(':').is_some_and(|colon| !authority[colon..].contains(']'));
    let (host, port) = match authority.rsplit_once(':').filter(|_| has_port) {
        Some((host, port)) => (host, parse_port(port).ok_or(Refusal::BadRequest("the port is no number"))?),
        None => (authority, 80),
    };
    let host = Host::parse(host).map_err(Refusal::BadHost)?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((host, port, path))
}

/// Refuses several `Host` fields, and one that names another place than the target.
fn check_host_field(fields: &[(String, Vec<u8>)], host: &Host, port: u16) -> Result<(), Refusal> {
    let mut named = fields.iter().filter(|(name, _)| name == "host").map(|(_, value)| value);
    let Some(value) = named.next() else { return Ok(()) };
    if named.next().is_some() {
        return Err(Refusal::BadRequest("there are several Host fields"));
    }
    let text = std::str::from_utf8(value).map_err(|_| Refusal::HostMismatch)?;
    let (name, own_port) = match split_port(text) {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let is_same = Host::parse(name).is_ok_and(|own| own == *host) && own_port.is_none_or(|own| own == port);
    if is_same { Ok(()) } else { Err(Refusal::HostMismatch) }
}

fn body(fields: &[(String, Vec<u8>)], version: &str) -> Result<Body, Refusal> {
    let values = |wanted: &str| {
        let of = fields.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.as_slice());
        of.collect::<Vec<_>>()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(Body::Length(0)),
        ([length], []) => {
            let is_number = (1..=18).contains(&length.len()) && length.iter().all(u8::is_ascii_digit);
            let length =
                std::str::from_utf8(length).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
            length.map(Body::Length).ok_or(Refusal::BadRequest("Content-Length is no number"))
        }
        ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") && version == "HTTP/1.1" => {
            Ok(Body::Chunked)
        }
        ([], [_]) => Err(Refusal::BadRequest("the only transfer coding is chunked")),
        _ => Err(Refusal::BadRequest("a request has one Content-Length or one Transfer-Encoding, not both")),
    }
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
