//! The allow-list: what the operator's rules let a program reach, decided before a name is looked up.
//!
//! A rule is a text: `HOST[:PORT] [WORD ...]`. The host is a name, `*.NAME` for every name beneath it, or an address. The
//! port is 443 by default, and 80 with `http`. The words are `http` (plain requests, and no TLS), `raw` (any bytes instead
//! of TLS) and `private` (the name may have an address of a private network).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::address::{Kind, kind};
use crate::host::{Host, Name, split_port};

/// The longest rule.
const RULE_BYTES_MAX: usize = 512;
const HTTPS_PORT: u16 = 443;
const HTTP_PORT: u16 = 80;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pattern: Pattern,
    port: u16,
    /// What may be spoken.
    pub(crate) speech: Speech,
    /// Which addresses beside public ones a name may have.
    pub(crate) reach: Reach,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Host(Host),
    Beneath(Name),
}

/// What a rule lets a program speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    /// TLS whose server name is the host.
    Tls,
    /// Any bytes, by CONNECT.
    Raw,
    /// Plain HTTP requests.
    Http,
}

/// Which addresses a name may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Public,
    Private,
    /// This machine, for tests.
    #[cfg_attr(not(any(test, feature = "loopback")), allow(dead_code, reason = "test builds construct it"))]
    Loopback,
}

impl Reach {
    /// Why that address must not be dialled; `None` if it may.
    pub(crate) fn objection(self, address: IpAddr) -> Option<&'static str> {
        match (kind(address), self) {
            (Kind::Public, _) | (Kind::Private, Self::Private) | (Kind::Loopback, Self::Loopback) => None,
            (Kind::Private, _) => Some("an address of a private network"),
            (Kind::Loopback, _) => Some("an address of the server's own machine"),
            (Kind::Never(reason), _) => Some(reason),
        }
    }
}

/// What a program wants to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A tunnel.
    Tunnel,
    /// One plain request.
    Request,
}

impl Rule {
    /// Whether it is about this host and port.
    fn covers(&self, host: &Host, port: u16) -> bool {
        let is_host = match (&self.pattern, host) {
            (Pattern::Host(own), host) => own == host,
            (Pattern::Beneath(parent), Host::Name(name)) => name.is_beneath(parent),
            (Pattern::Beneath(_), Host::Address(_)) => false,
        };
        is_host && self.port == port
    }

    fn allows(&self, wanted: Wanted) -> bool {
        match wanted {
            Wanted::Tunnel => matches!(self.speech, Speech::Tls | Speech::Raw),
            Wanted::Request => self.speech == Speech::Http,
        }
    }

    /// Whether one of the other rules covers every host and port of this one.
    pub fn is_within(&self, others: &[Self]) -> bool {
        others.iter().any(|other| {
            other.port == self.port
                && match (&other.pattern, &self.pattern) {
                    (one, own) if one == own => true,
                    (Pattern::Beneath(parent), Pattern::Host(Host::Name(name)) | Pattern::Beneath(name)) => {
                        name.is_beneath(parent)
                    }
                    _ => false,
                }
        })
    }
}

/// What the allow-list says about a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match<'a, T> {
    Allowed(&'a Rule, &'a T),
    /// The destination is allowed, but not in this way.
    OtherSpeech,
    None,
}

/// Finds the first rule that allows a destination. Each rule stands beside what it belongs to.
pub(crate) fn find<'a, T>(
    rules: impl Iterator<Item = (&'a Rule, &'a T)>,
    (host, port): (&Host, u16),
    wanted: Wanted,
) -> Match<'a, T> {
    let mut found = Match::None;
    for (rule, owner) in rules.filter(|(rule, _)| rule.covers(host, port)) {
        if rule.allows(wanted) {
            return Match::Allowed(rule, owner);
        }
        found = Match::OtherSpeech;
    }
    found
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > RULE_BYTES_MAX {
            return Err(format!("a rule has at most {RULE_BYTES_MAX} bytes"));
        }
        let mut words = text.split_ascii_whitespace();
        let place = words.next().ok_or("a rule is HOST:PORT, for example \"api.github.com:443\"")?;
        let (mut speech, mut reach) = (Speech::Tls, Reach::Public);
        for word in words {
            match word {
                "http" if speech == Speech::Tls => speech = Speech::Http,
                "raw" if speech == Speech::Tls => speech = Speech::Raw,
                "http" | "raw" => return Err("a rule is either `http` or `raw`, once".to_owned()),
                "private" => reach = Reach::Private,
                #[cfg(any(test, feature = "loopback"))]
                "loopback" => reach = Reach::Loopback,
                other => {
                    return Err(format!(
                        "`{}` is no word of a rule; the words are http, raw and private",
                        other.escape_debug()
                    ));
                }
            }
        }
        let default = if speech == Speech::Http { HTTP_PORT } else { HTTPS_PORT };
        let (host, port) = split_port(place).unwrap_or((place, default));
        let pattern = pattern(host).map_err(|reason| format!("`{}`: {reason}", host.escape_debug()))?;
        if let Pattern::Host(Host::Address(address)) = &pattern {
            // An address in a rule is the operator's own word for a private network.
            reach = if reach == Reach::Public { Reach::Private } else { reach };
            if let Some(objection) = reach.objection(*address) {
                return Err(format!("`{address}` is {objection}, which a program never reaches"));
            }
        }
        Ok(Self { pattern, port, speech, reach })
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let Some(parent) = text.strip_prefix("*.") else {
        return Host::parse(text).map(Pattern::Host).map_err(|error| error.to_string());
    };
    let parent = Name::parse(parent).map_err(|error| error.to_string())?;
    // Everybody can have a name beneath a public suffix such as `com`, `co.uk` or `github.io`.
    if psl::suffix_str(parent.as_str()).is_none_or(|suffix| suffix == parent.as_str()) {
        return Err(format!("everybody can have a name beneath `{parent}`; name the hosts instead"));
    }
    Ok(Pattern::Beneath(parent))
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Pattern::Host(host) => write!(f, "{host}:{}", self.port)?,
            Pattern::Beneath(parent) => write!(f, "*.{parent}:{}", self.port)?,
        }
        match self.speech {
            Speech::Tls => Ok(()),
            Speech::Raw => f.write_str(" raw"),
            Speech::Http => f.write_str(" http"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    fn is_allowed(rules: &[&str], place: &str, wanted: Wanted) -> bool {
        let rules: Vec<Rule> = rules.iter().map(|text| rule(text)).collect();
        let (host, port) = split_port(place).unwrap();
        let host = Host::parse(host).unwrap();
        matches!(find(rules.iter().map(|rule| (rule, &())), (&host, port), wanted), Match::Allowed(..))
    }

    #[test]
    fn a_rule_covers_one_host_and_one_port() {
        let rules = ["api.github.com", "Example.ORG:8443", "plain.example:80 http", "db.example:5432 raw"];
        assert!(is_allowed(&rules, "api.github.com:443", Wanted::Tunnel));
        assert!(is_allowed(&rules, "example.org:8443", Wanted::Tunnel));
        assert!(is_allowed(&rules, "plain.example:80", Wanted::Request));
        assert!(is_allowed(&rules, "db.example:5432", Wanted::Tunnel));
        for other in [
            "api.github.com:80",
            "github.com:443",
            "a.api.github.com:443",
            "example.org:443",
            "plain.example:80",
        ] {
            assert!(!is_allowed(&rules, other, Wanted::Tunnel), "{other}");
        }
        assert!(!is_allowed(&rules, "db.example:5432", Wanted::Request));
        assert!(!is_allowed(&rules, "api.github.com:443", Wanted::Request));
    }

    #[test]
    fn a_wildcard_covers_whole_labels() {
        let rules = ["*.example.org"];
        assert!(is_allowed(&rules, "a.example.org:443", Wanted::Tunnel));
        assert!(is_allowed(&rules, "a.b.example.org:443", Wanted::Tunnel));
        for other in ["example.org:443", "badexample.org:443", "example.org.evil.net:443", "10.0.0.1:443"] {
            assert!(!is_allowed(&rules, other, Wanted::Tunnel), "{other}");
        }
    }

    #[test]
    fn a_wildcard_above_a_public_suffix_is_refused() {
        for text in [
            "*.com",
            "*.co.uk",
            "*.github.io",
            "*.internal",
            "*",
            "*.",
            "*example.org",
            "a.*.org",
            "*.*.org",
            "*.10.0.0.1",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
        rule("*.example.co.uk");
        rule("*.me.github.io");
    }

    #[test]
    fn loopback_and_link_local_cannot_be_allowed() {
        for text in [
            "127.0.0.1:80",
            "[::1]:443",
            "169.254.169.254:80 http",
            "169.254.169.254:80 http private",
            "127.0.0.1:80 private",
            "[::ffff:127.0.0.1]:443",
            "0.0.0.0:1",
            "100.64.0.1:443 private",
            "224.0.0.1:1",
            "2130706433:80",
            "a.example:0",
            "a.example:443 tls",
            "a.example:80 http raw",
            "",
            "user@a.example:443",
            "https://a.example",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
        assert_eq!(rule("10.1.2.3:443").reach, Reach::Private);
        assert_eq!(rule("git.example.org:443 private").reach, Reach::Private);
        assert!(Reach::Private.objection("127.0.0.1".parse().unwrap()).is_some());
        assert!(Reach::Private.objection("169.254.1.1".parse().unwrap()).is_some());
    }

    #[test]
    fn rules_within_others_are_recognised() {
        let others = [rule("*.example.org"), rule("a.example.net:8443")];
        assert!(rule("x.example.org:443").is_within(&others) && rule("*.x.example.org").is_within(&others));
        assert!(rule("a.example.net:8443").is_within(&others));
        assert!(!rule("example.org").is_within(&others) && !rule("x.example.org:80 http").is_within(&others));
        assert!(!rule("*.example.org:8443").is_within(&others));
    }
}
