//! What `palisade serve` was asked for, and whether that is safe.
//!
//! Loopback and a token by default. What other machines can reach needs a token and either TLS or the word of
//! the operator that a proxy speaks TLS in front of it; everything else is refused before a port is opened.

use std::path::PathBuf;

use clap::Args;

use super::listen::Address;

/// Where it listens when nothing is said.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:8808";

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// IP:PORT or unix:/path, repeatable [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<String>,
    /// Ask for no token; only on loopback and unix sockets
    #[arg(long)]
    pub(crate) no_auth: bool,
    /// Certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A proxy in front speaks TLS; allows other addresses than loopback without it here
    #[arg(long)]
    pub(crate) behind_proxy: bool,
    /// Another name by which this server is called, repeatable
    #[arg(long = "allow-host", value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// A page that may use it from a browser (https://app.example.com), repeatable
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub(crate) origins: Vec<String>,
    /// Serve the fixtures of the official conformance suite as well
    #[arg(long, hide = true)]
    pub(crate) conformance_fixtures: bool,
}

/// The same, checked.
#[derive(Debug)]
pub(crate) struct ServeOptions {
    pub(crate) addresses: Vec<Address>,
    pub(crate) auth: Auth,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) hosts: Vec<String>,
    pub(crate) origins: Vec<String>,
    pub(crate) fixtures: Fixtures,
}

/// Whether a token is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auth {
    Token,
    Nobody,
}

/// Whether the conformance suite's fixtures are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fixtures {
    Served,
    Absent,
}

/// Files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl ServeArguments {
    /// Checked, or what is wrong and what to do.
    pub(crate) fn check(self) -> Result<ServeOptions, String> {
        let mut addresses =
            self.listen.iter().map(|text| text.parse()).collect::<Result<Vec<Address>, _>>()?;
        if addresses.is_empty() {
            addresses.push(DEFAULT_ADDRESS.parse()?);
        }
        let tls = self.tls_cert.zip(self.tls_key).map(|(certificate, key)| TlsFiles { certificate, key });
        let auth = if self.no_auth { Auth::Nobody } else { Auth::Token };
        if let Some(open) = addresses.iter().find(|address| !address.is_local()) {
            if auth == Auth::Nobody {
                return Err(format!("--no-auth works on loopback and unix sockets only, not on {open}"));
            }
            if tls.is_none() && !self.behind_proxy {
                return Err(format!(
                    "other machines can reach {open}: give --tls-cert and --tls-key, or --behind-proxy if a proxy \
                     in front of it speaks TLS"
                ));
            }
        }
        for origin in &self.origins {
            let has_scheme = origin.starts_with("https://") || origin.starts_with("http://");
            if !has_scheme || origin.matches('/').count() > 3 {
                return Err(format!(
                    "`{origin}` is no origin: give scheme and host, such as https://app.example.com"
                ));
            }
        }
        let fixtures = if self.conformance_fixtures { Fixtures::Served } else { Fixtures::Absent };
        Ok(ServeOptions { addresses, auth, tls, hosts: self.hosts, origins: self.origins, fixtures })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: ServeArguments,
    }

    fn check(line: &str) -> Result<ServeOptions, String> {
        let words = std::iter::once("serve").chain(line.split_whitespace());
        Line::try_parse_from(words).map_err(|error| error.to_string())?.arguments.check()
    }

    #[test]
    fn loopback_with_a_token_is_the_default() {
        let options = check("").unwrap();
        assert_eq!(options.addresses, ["127.0.0.1:8808".parse().unwrap()]);
        assert_eq!((options.auth, options.fixtures), (Auth::Token, Fixtures::Absent));
    }

    #[test]
    fn what_others_can_reach_needs_a_token_and_tls() {
        for fine in [
            "--no-auth",
            "--listen unix:/run/p.sock --no-auth",
            "--listen [::1]:0 --no-auth",
            "--listen 0.0.0.0:1 --tls-cert c --tls-key k",
            "--listen 0.0.0.0:1 --behind-proxy",
        ] {
            assert!(check(fine).is_ok(), "{fine}");
        }
        for unsafe_ in [
            "--listen 0.0.0.0:1",
            "--listen [::]:1",
            "--listen 192.0.2.7:1",
            "--listen 127.0.0.1:1 --listen 0.0.0.0:1",
            "--listen 0.0.0.0:1 --no-auth --behind-proxy",
            "--listen 0.0.0.0:1 --no-auth --tls-cert c --tls-key k",
            "--listen 0.0.0.0:1 --tls-cert c",
            "--allow-origin example.com",
        ] {
            assert!(check(unsafe_).is_err(), "{unsafe_}");
        }
    }
}
