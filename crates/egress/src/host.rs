//! Hosts: one type for every name and address that a program or an operator writes.
//!
//! A name is lower-case ASCII after IDNA. Forms that a resolver could read as an address (`127.1`, `0x7f000001`,
//! `2130706433`) are no names. What is no [`Host`] is never matched, looked up or dialled.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name (RFC 1035, section 2.3.4, without the final dot).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A host name: lower case, ASCII, whole labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// A host: a name, or an address that was written as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name.
    Name(Name),
    /// An address.
    Address(IpAddr),
}

/// Why a text is no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAHost {
    /// Nothing is there.
    #[error("the host is empty")]
    Empty,
    /// It has a character that no host has.
    #[error("the host contains a character that no host name has")]
    Character,
    /// It ends with a dot.
    #[error("the host ends with a dot")]
    TrailingDot,
    /// It is a number that some resolvers read as an address.
    #[error("the host is a number that is no address in its usual form")]
    Numeric,
    /// Its labels are empty or too long, or are no valid IDNA.
    #[error("the host is no valid name")]
    Malformed,
}

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is beneath another name, by whole labels.
    pub(crate) fn is_beneath(&self, parent: &Self) -> bool {
        self.0.strip_suffix(parent.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }

    /// Parses a name. An address is no name.
    pub fn parse(text: &str) -> Result<Self, NotAHost> {
        check_characters(text)?;
        let ascii = idna::domain_to_ascii_strict(text).map_err(|_| NotAHost::Malformed)?;
        // IDNA maps further characters to dots and digits, so the result is checked again.
        check_characters(&ascii)?;
        let last = ascii.rsplit('.').next().unwrap_or_default();
        if is_numeric(last) {
            return Err(NotAHost::Numeric);
        }
        let is_label = |label: &str| {
            let inner =
                label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            inner
                && (1..=LABEL_BYTES_MAX).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let is_name = ascii.len() <= NAME_BYTES_MAX && ascii.split('.').all(is_label);
        if is_name { Ok(Self(ascii)) } else { Err(NotAHost::Malformed) }
    }
}

impl Host {
    /// Parses a host as it stands before the port: a name, an IPv4 address, or an IPv6 address in brackets.
    pub fn parse(text: &str) -> Result<Self, NotAHost> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(NotAHost::Malformed)?;
            // A zone (`%eth0`) chooses an interface of the host.
            let address = inner.parse::<Ipv6Addr>().map_err(|_| NotAHost::Malformed)?;
            return Ok(Self::Address(IpAddr::V6(address)));
        }
        // This parser accepts four decimal numbers without leading zeros, and nothing else.
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(IpAddr::V4(address)));
        }
        Name::parse(text).map(Self::Name)
    }
}

fn check_characters(text: &str) -> Result<(), NotAHost> {
    if text.is_empty() {
        return Err(NotAHost::Empty);
    }
    if text.len() > NAME_BYTES_MAX * 4 {
        return Err(NotAHost::Malformed);
    }
    let is_forbidden = |character: char| {
        character.is_control()
            || character.is_whitespace()
            || "%@:/\\?#[]<>^|\"'`{}*_,;=+&!$()~".contains(character)
    };
    if text.contains(is_forbidden) {
        return Err(NotAHost::Character);
    }
    // Other full stops that IDNA maps to a dot (UTS 46).
    let ends_with_dot = text.ends_with(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}']);
    if ends_with_dot { Err(NotAHost::TrailingDot) } else { Ok(()) }
}

/// Whether resolvers may read a last label as part of an address (the URL standard, "ends in a number").
fn is_numeric(label: &str) -> bool {
    let is_hex =
        label.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_hex || label.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Splits `host:port`. The port is required, and is a decimal number without a sign.
pub(crate) fn split_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    // An IPv6 address without brackets has colons of its own.
    let is_plain = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    is_plain.then_some(())?;
    Some((host, parse_port(port)?))
}

pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let is_number = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        Name::parse(text).unwrap().to_string()
    }

    #[test]
    fn names_become_lower_case_ascii() {
        assert_eq!(name("API.GitHub.com"), "api.github.com");
        assert_eq!(name("bücher.example"), "xn--bcher-kva.example");
        assert_eq!(name("ＥＸＡＭＰＬＥ.org"), "example.org");
        assert_eq!(name("a-b.c1"), "a-b.c1");
        assert_eq!(Host::parse("192.0.2.7").unwrap().to_string(), "192.0.2.7");
        assert_eq!(Host::parse("[2001:DB8::1]").unwrap().to_string(), "[2001:db8::1]");
    }

    #[test]
    fn numeric_forms_of_addresses_are_no_hosts() {
        for text in [
            "2130706433",
            "127.1",
            "127.0.1",
            "0177.0.0.1",
            "127.0.0.01",
            "0x7f000001",
            "0x7f.0.0.1",
            "0x7f.1",
            "1.2.3.4.5",
            "example.0x1",
            "example.1",
            "256.1.1.1",
            "127.0.0.1.",
            "１２７.0.0.1",
            "127。0。0。1",
            "0x",
            "0X7F000001",
        ] {
            assert!(Host::parse(text).is_err(), "{text}: {:?}", Host::parse(text));
        }
    }

    #[test]
    fn forms_that_two_readers_may_read_differently_are_no_hosts() {
        for text in [
            "",
            ".",
            "example.org.",
            "example.org。",
            "exa mple.org",
            "example.org\0.evil",
            "example%2eorg",
            "user@example.org",
            "a@b",
            "example.org#x",
            "example.org/x",
            "example\\.org",
            "a..b",
            ".a",
            "-a.org",
            "a-.org",
            "*.org",
            "[::1",
            "::1",
            "[::1%lo]",
            "[fe80::1%25eth0]",
            "[127.0.0.1]",
            "[]",
            "xn--a.org",
            "a_b.org",
            "ex\u{ad}\u{0}ample.org",
            "a\tb",
            "a\r\nb",
        ] {
            assert!(Host::parse(text).is_err(), "{text:?}: {:?}", Host::parse(text));
        }
        assert!(Name::parse(&format!("{}.org", "a".repeat(64))).is_err());
        assert!(Name::parse(&["a"; 130].join(".")).is_err());
    }

    #[test]
    fn a_name_is_beneath_another_by_whole_labels() {
        let parent = Name::parse("example.org").unwrap();
        let beneath = |text: &str| Name::parse(text).unwrap().is_beneath(&parent);
        assert!(beneath("a.example.org") && beneath("a.b.example.org"));
        assert!(!beneath("example.org") && !beneath("badexample.org") && !beneath("example.org.evil.net"));
    }

    #[test]
    fn a_port_is_a_plain_number() {
        assert_eq!(split_port("a:443"), Some(("a", 443)));
        assert_eq!(split_port("[::1]:80"), Some(("[::1]", 80)));
        for text in ["a", "a:", "a:0", "a:+1", "a:65536", "a:4 43", "::1:80", "a:443443", "a:4٤"] {
            assert_eq!(split_port(text), None, "{text}");
        }
    }
}
