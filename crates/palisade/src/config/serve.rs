//! The settings of `palisade serve`: their names, valid values, and the values in force.
//!
//! This file checks each value separately, so that an error is reported with its line. [`crate::cli::serve`]
//! checks that all values in force are safe together, whatever their origin.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::settings::{Origin, Valued};
use super::value::{Raw, parse_path};
use service::{Address, Auth, DEFAULT_ADDRESS, ProxyAddress};

/// A flag of `serve` with its unchecked value.
pub(crate) type ServeFlag = (ServeKey, &'static str, Raw);

/// A setting of `serve`; its only number is a [`super::key::Number`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServeKey {
    Listen,
    Auth,
    TlsCert,
    TlsKey,
    BehindProxy,
    Hosts,
    Origins,
}

impl ServeKey {
    pub(crate) const ALL: [Self; 7] = [
        Self::Listen,
        Self::Auth,
        Self::TlsCert,
        Self::TlsKey,
        Self::BehindProxy,
        Self::Hosts,
        Self::Origins,
    ];

    /// The last part of the setting's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Auth => "auth",
            Self::TlsCert => "tls_cert",
            Self::TlsKey => "tls_key",
            Self::BehindProxy => "behind_proxy",
            Self::Hosts => "hosts",
            Self::Origins => "origins",
        }
    }

    /// Interprets the text of a variable.
    pub(crate) fn raw(self, text: &str) -> Raw {
        match self {
            Self::Listen | Self::BehindProxy | Self::Hosts | Self::Origins => Raw::list_from_text(text),
            Self::Auth | Self::TlsCert | Self::TlsKey => Raw::Text(text.to_owned()),
        }
    }
}

/// A setting of `serve` with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ServeSetting {
    Listen(Vec<Address>),
    Auth(Auth),
    TlsCert(PathBuf),
    TlsKey(PathBuf),
    BehindProxy(Vec<ProxyAddress>),
    Hosts(Vec<String>),
    Origins(Vec<String>),
}

impl ServeSetting {
    /// Checks a value. The error says what is valid.
    pub(crate) fn parse(key: ServeKey, raw: &Raw) -> Result<Self, String> {
        match key {
            ServeKey::Listen => {
                let addresses = list(raw, |text| text.parse())?;
                match addresses.is_empty() {
                    true => Err(format!("it must name at least one address, such as {DEFAULT_ADDRESS}")),
                    false => Ok(Self::Listen(addresses)),
                }
            }
            ServeKey::Auth => match raw {
                Raw::Text(text) if text == "token" => Ok(Self::Auth(Auth::Token)),
                Raw::Text(text) if text == "none" => Ok(Self::Auth(Auth::Nobody)),
                _ => Err(format!("it must be \"token\" or \"none\", not {}", raw.shown())),
            },
            ServeKey::TlsCert => parse_path(raw).map(Self::TlsCert),
            ServeKey::TlsKey => parse_path(raw).map(Self::TlsKey),
            ServeKey::BehindProxy => match raw {
                Raw::Boolean(_) => {
                    Err("it must name the addresses of the proxy, such as [\"10.0.0.5\"]".to_owned())
                }
                _ => list(raw, |text| text.parse()).map(Self::BehindProxy),
            },
            ServeKey::Hosts => list(raw, host).map(Self::Hosts),
            ServeKey::Origins => list(raw, page).map(Self::Origins),
        }
    }

    pub(crate) fn key(&self) -> ServeKey {
        match self {
            Self::Listen(_) => ServeKey::Listen,
            Self::Auth(_) => ServeKey::Auth,
            Self::TlsCert(_) => ServeKey::TlsCert,
            Self::TlsKey(_) => ServeKey::TlsKey,
            Self::BehindProxy(_) => ServeKey::BehindProxy,
            Self::Hosts(_) => ServeKey::Hosts,
            Self::Origins(_) => ServeKey::Origins,
        }
    }
}

/// Checks every text of a list.
fn list<T>(raw: &Raw, check: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let Raw::List(list) = raw else { return Err(format!("it must be a list of texts, not {}", raw.shown())) };
    let one = |raw: &Raw| match raw {
        Raw::Text(text) => check(text),
        _ => Err(format!("it must be a list of texts, and {} is none", raw.shown())),
    };
    list.iter().map(one).collect()
}

fn host(text: &str) -> Result<String, String> {
    let name = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    // Two or more colons are an IPv6 address; one colon separates a port.
    let has_port = name.matches(':').count() == 1;
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if name.is_empty() || has_port || !name.chars().all(is_good) {
        let shown = Raw::Text(text.to_owned()).shown();
        return Err(format!(
            "{shown} is no host: give a name without scheme and port, such as tools.example"
        ));
    }
    Ok(text.to_owned())
}

fn page(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.strip_suffix('/').unwrap_or(rest)).unwrap_or_default();
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(is_good) {
        let shown = Raw::Text(text.to_owned()).shown();
        return Err(format!("{shown} is no origin: give scheme and host, such as https://app.example.com"));
    }
    Ok(text.to_owned())
}

/// All settings of `serve` in force.
#[derive(Debug, Clone)]
pub(crate) struct ServeSettings {
    pub(crate) listen: Valued<Vec<Address>>,
    pub(crate) auth: Valued<Auth>,
    pub(crate) tls_cert: Valued<Option<PathBuf>>,
    pub(crate) tls_key: Valued<Option<PathBuf>>,
    pub(crate) behind_proxy: Valued<Vec<ProxyAddress>>,
    pub(crate) hosts: Valued<Vec<String>>,
    pub(crate) origins: Valued<Vec<String>>,
}

impl ServeSettings {
    /// Loopback, with a token.
    pub(crate) fn built_in() -> Self {
        Self {
            listen: Valued::default(vec![Address::Tcp(DEFAULT_ADDRESS)]),
            auth: Valued::default(Auth::Token),
            tls_cert: Valued::default(None),
            tls_key: Valued::default(None),
            behind_proxy: Valued::default(Vec::new()),
            hosts: Valued::default(Vec::new()),
            origins: Valued::default(Vec::new()),
        }
    }

    pub(crate) fn apply(&mut self, setting: ServeSetting, origin: Origin) {
        match setting {
            ServeSetting::Listen(addresses) => self.listen.set(addresses, origin),
            ServeSetting::Auth(auth) => self.auth.set(auth, origin),
            ServeSetting::TlsCert(path) => self.tls_cert.set(Some(path), origin),
            ServeSetting::TlsKey(path) => self.tls_key.set(Some(path), origin),
            ServeSetting::BehindProxy(proxies) => self.behind_proxy.set(proxies, origin),
            ServeSetting::Hosts(hosts) => self.hosts.set(hosts, origin),
            ServeSetting::Origins(origins) => self.origins.set(origins, origin),
        }
    }

    /// A value for `palisade config show`, and its origin.
    pub(crate) fn shown(&self, key: ServeKey) -> (Value, &Origin) {
        let path = |path: &Option<PathBuf>| json!(path.as_ref().map(|path| path.display().to_string()));
        match key {
            ServeKey::Listen => {
                let addresses: Vec<_> = self.listen.value.iter().map(Address::to_string).collect();
                (json!(addresses), &self.listen.origin)
            }
            ServeKey::Auth => (json!(self.auth.value.name()), &self.auth.origin),
            ServeKey::TlsCert => (path(&self.tls_cert.value), &self.tls_cert.origin),
            ServeKey::TlsKey => (path(&self.tls_key.value), &self.tls_key.origin),
            ServeKey::BehindProxy => {
                let proxies: Vec<_> = self.behind_proxy.value.iter().map(ProxyAddress::to_string).collect();
                (json!(proxies), &self.behind_proxy.origin)
            }
            ServeKey::Hosts => (json!(self.hosts.value), &self.hosts.origin),
            ServeKey::Origins => (json!(self.origins.value), &self.origins.origin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(key: ServeKey, text: &str) -> Result<ServeSetting, String> {
        ServeSetting::parse(key, &key.raw(text))
    }

    #[test]
    fn lists_of_variables_have_commas() {
        let two = from_text(ServeKey::Listen, "127.0.0.1:1, unix:/run/p.sock").unwrap();
        let expected = ["127.0.0.1:1", "unix:/run/p.sock"].map(|text| text.parse().unwrap());
        assert_eq!(two, ServeSetting::Listen(expected.to_vec()));
        assert_eq!(from_text(ServeKey::Hosts, "none"), Ok(ServeSetting::Hosts(Vec::new())));
        for bad in ["none", "127.0.0.1:1,,", "example.com", "127.0.0.1"] {
            assert!(from_text(ServeKey::Listen, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_and_truths_are_exact() {
        assert_eq!(from_text(ServeKey::Auth, "none"), Ok(ServeSetting::Auth(Auth::Nobody)));
        let proxies = ["10.0.0.5", "10.1.0.0/16"].map(|text| text.parse().unwrap());
        assert_eq!(
            from_text(ServeKey::BehindProxy, "10.0.0.5, 10.1.0.0/16"),
            Ok(ServeSetting::BehindProxy(proxies.to_vec()))
        );
        for (key, bad) in [
            (ServeKey::Auth, "off"),
            (ServeKey::Auth, "Token"),
            (ServeKey::BehindProxy, "yes"),
            (ServeKey::BehindProxy, "true"),
            (ServeKey::BehindProxy, "0.0.0.0/0"),
            (ServeKey::TlsCert, "cert.pem"),
        ] {
            assert!(from_text(key, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_are_names_and_origins_are_pages() {
        for good in ["tools.example", "192.0.2.7", "::1", "[2001:db8::1]"] {
            assert!(from_text(ServeKey::Hosts, good).is_ok(), "{good}");
        }
        for bad in ["tools.example:443", "https://tools.example", "*", "a b", ""] {
            assert!(from_text(ServeKey::Hosts, bad).is_err(), "{bad}");
        }
        for good in ["https://app.example", "http://localhost:3000", "https://app.example/"] {
            assert!(from_text(ServeKey::Origins, good).is_ok(), "{good}");
        }
        for bad in ["app.example", "*", "null", "https://", "https://app.example/page", "ftp://x"] {
            assert!(from_text(ServeKey::Origins, bad).is_err(), "{bad}");
        }
    }
}
