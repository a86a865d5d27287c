//! What `palisade serve` serves with: values that the command line has checked together.

use std::path::PathBuf;

use crate::listen::Address;

/// Everything the service needs to know of its surroundings.
#[derive(Debug)]
pub struct ServeOptions {
    /// Where to listen.
    pub addresses: Vec<Address>,
    /// Whether callers show a token.
    pub auth: Auth,
    /// The certificate, if this server speaks TLS itself.
    pub tls: Option<TlsFiles>,
    /// Names by which this server is called, besides its addresses.
    pub hosts: Vec<String>,
    /// Pages that may use it from a browser.
    pub origins: Vec<String>,
    /// Connections at once.
    pub connections_max: usize,
    /// Scheme and host, perhaps a folder, for file URLs.
    pub public_url: Option<String>,
    /// The scheme by which others reach this server, as far as it knows.
    pub scheme: &'static str,
}

/// Whether a token is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// Every caller shows one.
    Token,
    /// Nobody is asked: only on local addresses.
    Nobody,
}

impl Auth {
    /// As a setting.
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
    /// The chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}
