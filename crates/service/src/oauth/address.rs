//! The addresses of the settings: issuers of tokens, and the resource that this server is.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;

/// The path of the metadata of a protected resource (RFC 9728, section 3).
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// An issuer of tokens, compared letter by letter with `iss`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    text: String,
    uri: Uri,
}

/// The URL by which clients know this server's `/mcp`, compared letter by letter with `aud`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    text: String,
    uri: Uri,
}

impl Issuer {
    /// The issuer as tokens name it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name in labels of callers: the issuer without its scheme.
    pub fn label(&self) -> &str {
        self.text.split_once("://").map_or(&self.text, |(_, rest)| rest)
    }

    /// Whether keys may come without TLS. Only an issuer on this machine is called over plain http.
    pub(super) fn is_plain(&self) -> bool {
        self.uri.scheme_str() == Some("http")
    }

    /// Where its metadata may be, in the order of MCP's authorization specification: RFC 8414 puts the name before the
    /// path of the issuer, OpenID Connect Discovery behind it.
    pub(super) fn metadata(&self) -> Vec<Uri> {
        const OAUTH: &str = "/.well-known/oauth-authorization-server";
        const OPENID: &str = "/.well-known/openid-configuration";
        let path = self.uri.path().trim_end_matches('/');
        let paths = match path {
            "" => vec![OAUTH.to_owned(), OPENID.to_owned()],
            _ => vec![
                format!("{OAUTH}{path}"),
                format!("{OPENID}{path}"),
                format!("{path}{OPENID}"),
                format!("{path}{OAUTH}"),
            ],
        };
        paths.iter().filter_map(|path| beside(&self.uri, path)).collect()
    }
}

impl Resource {
    /// The resource as tokens name it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host that clients call.
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// The address of this server's metadata.
    pub(super) fn metadata(&self) -> String {
        let scheme = self.uri.scheme_str().unwrap_or_default();
        let authority = self.uri.authority().map(ToString::to_string).unwrap_or_default();
        format!("{scheme}://{authority}{}", self.metadata_path())
    }

    /// The path of the metadata, with the resource's own path behind it.
    pub(super) fn metadata_path(&self) -> String {
        format!("{METADATA_PATH}{}", self.uri.path().trim_end_matches('/'))
    }
}

/// The same host with another path.
fn beside(uri: &Uri, path: &str) -> Option<Uri> {
    let authority = uri.authority()?.as_str();
    Uri::builder().scheme(uri.scheme()?.clone()).authority(authority).path_and_query(path).build().ok()
}

impl FromStr for Issuer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri = checked(text)?;
        Ok(Self { text: text.to_owned(), uri })
    }
}

impl FromStr for Resource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri = checked(text)?;
        match text.ends_with('/') {
            true => Err(format!("`{text}` ends with a slash, and clients leave it out: remove it")),
            false => Ok(Self { text: text.to_owned(), uri }),
        }
    }
}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

fn checked(text: &str) -> Result<Uri, String> {
    let wrong = |what: &str| {
        let shown: String = text.chars().take(200).collect();
        Err(format!("`{}` {what}, such as https://login.example.com", shown.escape_debug()))
    };
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    let Some(uri) = text.parse::<Uri>().ok().filter(|_| is_plain && !text.contains(['"', '\\'])) else {
        return wrong("is no URL: give scheme and host");
    };
    if uri.host().is_none_or(str::is_empty) || text.contains(['?', '#', '@']) {
        return wrong("must have a host, and no user, query or fragment");
    }
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") if is_loopback(&uri) => Ok(uri),
        Some("http") => wrong("must begin with https; http works on loopback only"),
        _ => wrong("must begin with https"),
    }
}

/// Whether a URL names this machine.
pub(super) fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_loopback_are_addresses() {
        for good in [
            "https://login.example.com",
            "https://login.example.com/",
            "https://login.example.com:8443/realms/a",
            "http://127.0.0.1:9000",
            "http://localhost:9000/x",
            "http://[::1]:1",
        ] {
            assert!(good.parse::<Issuer>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "login.example.com",
            "http://login.example.com",
            "http://127.0.0.1.nip.example",
            "ftp://login.example.com",
            "https://",
            "https://u:p@login.example.com",
            "https://login.example.com?x",
            "https://login.example.com#x",
            "https://login.example.com/\"",
            "https://login example.com",
        ] {
            assert!(bad.parse::<Issuer>().is_err(), "{bad}");
        }
        assert!("https://tools.example.com/mcp/".parse::<Resource>().is_err());
    }

    #[test]
    fn metadata_is_looked_for_before_and_behind_the_path() {
        let at = |text: &str| {
            let found = text.parse::<Issuer>().unwrap().metadata();
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let plain = [
            "https://a.example/.well-known/oauth-authorization-server",
            "https://a.example/.well-known/openid-configuration",
        ];
        assert_eq!(at("https://a.example"), plain);
        assert_eq!(at("https://a.example/"), plain);
        assert_eq!(
            at("https://a.example/realms/b")[..3],
            [
                "https://a.example/.well-known/oauth-authorization-server/realms/b",
                "https://a.example/.well-known/openid-configuration/realms/b",
                "https://a.example/realms/b/.well-known/openid-configuration",
            ]
        );
        let resource: Resource = "https://tools.example.com:8443/mcp".parse().unwrap();
        assert_eq!(
            resource.metadata(),
            "https://tools.example.com:8443/.well-known/oauth-protected-resource/mcp"
        );
    }
}
