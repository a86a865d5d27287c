//! Options of `palisade serve`. The command line has checked them together.

use std::path::PathBuf;

use crate::listen::Address;
use crate::oauth::OauthOptions;
use crate::proxies::ProxyAddress;

/// All options of the service.
#[derive(Debug)]
pub struct ServeOptions {
    /// Where to listen.
    pub addresses: Vec<Address>,
    /// Whether callers must show a token.
    pub auth: Auth,
    /// The certificate, if this server terminates TLS itself.
    pub tls: Option<TlsFiles>,
    /// The proxies in front. If there are any, only they may connect to addresses that other machines can reach.
    pub proxies: Vec<ProxyAddress>,
    /// Host names of this server, besides its addresses.
    pub hosts: Vec<String>,
    /// Origins of web pages that may use this server.
    pub origins: Vec<String>,
    /// Maximum number of concurrent connections.
    pub connections_max: usize,
    /// Scheme, host and optionally a path, for file URLs.
    pub public_url: Option<String>,
    /// The scheme that callers use to reach this server, as far as it knows.
    pub scheme: &'static str,
    /// Whose access tokens are accepted, if any.
    pub oauth: Option<OauthOptions>,
}

/// Whether callers must show a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// Every caller must show a token.
    Token,
    /// No token is required; only allowed on local addresses.
    Nobody,
}

impl Auth {
    /// The name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Nobody => "none",
        }
    }
}

/// Files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}
