//! Why a program does not reach a host: the code, the reason and the remedy of each refusal, and the answer with status
//! 403 that a program gets.

use crate::host::NotAHost;

/// A refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The request is malformed.
    BadRequest(&'static str),
    /// The head is too long, or did not come in time.
    HeadTooLong,
    /// The head did not come in time.
    HeadTooSlow,
    /// The host is no host.
    BadHost(NotAHost),
    /// `Host` names another place than the target.
    HostMismatch,
    /// No rule allows the host and port.
    HostDenied,
    /// A rule allows the host and port, but not in this way.
    SpeechDenied,
    /// The name has no address, or no resolver answered.
    Unresolved,
    /// Its addresses must not be dialled.
    AddressDenied(&'static str),
    /// The run asked for too many names.
    TooManyNames,
    /// The run has too many connections.
    TooManyConnections,
    /// The run has transferred as much as it may.
    TooManyBytes,
    /// The host did not accept the connection.
    Unreachable,
    /// The upstream proxy did not open a tunnel.
    UpstreamFailed,
    /// The first bytes are no TLS.
    NotTls(&'static str),
    /// The TLS client names no server.
    SniMissing,
    /// The TLS client names another server.
    SniMismatch,
    /// The audit cannot be written.
    Unrecorded,
}

impl Refusal {
    /// A stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad_request",
            Self::HeadTooLong => "head_too_long",
            Self::HeadTooSlow => "head_too_slow",
            Self::BadHost(_) => "bad_host",
            Self::HostMismatch => "host_mismatch",
            Self::HostDenied => "host_denied",
            Self::SpeechDenied => "protocol_denied",
            Self::Unresolved => "name_unresolved",
            Self::AddressDenied(_) => "address_denied",
            Self::TooManyNames => "names_limit",
            Self::TooManyConnections => "connections_limit",
            Self::TooManyBytes => "bytes_limit",
            Self::Unreachable => "unreachable",
            Self::UpstreamFailed => "upstream_failed",
            Self::NotTls(_) => "not_tls",
            Self::SniMissing => "sni_missing",
            Self::SniMismatch => "sni_mismatch",
            Self::Unrecorded => "audit_unavailable",
        }
    }

    /// What happened.
    pub fn reason(self) -> String {
        let text = match self {
            Self::BadRequest(reason) | Self::NotTls(reason) => reason,
            Self::HeadTooLong => "the request head is longer than 8 KiB",
            Self::HeadTooSlow => "the request head did not arrive within 10 s",
            Self::BadHost(error) => return error.to_string(),
            Self::HostMismatch => "the Host field names another place than the request line",
            Self::HostDenied => "the access of this run does not include that host and port",
            Self::SpeechDenied => {
                "the access of this run does not include that protocol for this host and port"
            }
            Self::Unresolved => "the name has no address",
            Self::AddressDenied(kind) => return format!("the name has {kind}"),
            Self::TooManyNames => "the run has asked for more names than it may",
            Self::TooManyConnections => "the run has as many connections open as it may",
            Self::TooManyBytes => "the run has transferred as many bytes as it may",
            Self::Unreachable => "the host does not accept the connection",
            Self::UpstreamFailed => "the proxy of the operator does not open a connection to that host",
            Self::SniMissing => "the TLS client does not name the server",
            Self::SniMismatch => "the TLS client names another server than the request",
            Self::Unrecorded => "the server cannot write its audit",
        };
        text.to_owned()
    }

    /// What to do.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::BadRequest(_) | Self::HeadTooLong | Self::HeadTooSlow | Self::HostMismatch => {
                "use an ordinary HTTP client with the proxy variables of the environment"
            }
            Self::BadHost(_) => "write the host as a plain name, without a final dot, user or number form",
            Self::HostDenied => {
                "use a host that get_capabilities lists for the access names of the run, or ask the operator"
            }
            Self::SpeechDenied => "use https; plain http works only where the operator allows it",
            Self::Unresolved => "check the name",
            Self::AddressDenied(_) => "use another host; the operator decides about private networks",
            Self::TooManyNames => "use fewer names in one run",
            Self::TooManyConnections => "close connections, or open fewer at once",
            Self::TooManyBytes => "transfer less in one run, or ask the operator for a larger `max`",
            Self::Unreachable | Self::UpstreamFailed | Self::Unrecorded => "try again later",
            Self::NotTls(_) | Self::SniMissing => {
                "use an https client; other protocols need a rule with `raw`"
            }
            Self::SniMismatch => "open a connection for each host",
        }
    }

    /// The answer for the program.
    pub(crate) fn answer(self, place: &str) -> Vec<u8> {
        let body = format!(
            "{{\"error\":{{\"code\":\"{}\",\"host\":\"{}\",\"message\":\"{}\",\"remedy\":\"{}\"}}}}\n",
            self.code(),
            plain(place),
            plain(&self.reason()),
            plain(self.remedy()),
        );
        // Most clients show only the phrase of a failed CONNECT.
        let head = format!(
            "HTTP/1.1 403 Palisade: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nX-Palisade-Code: {}\r\nConnection: close\r\n\r\n",
            self.code(),
            body.len(),
            self.code(),
        );
        [head.into_bytes(), body.into_bytes()].concat()
    }
}

/// Text that needs no escapes in JSON.
fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control() && !['"', '\\'].contains(letter)).collect()
}
