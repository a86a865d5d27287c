//! `palisade serve`: checks that the requested settings are safe, and starts the crate `service`.
//!
//! The default is loopback with a token. An address that other machines can reach needs a token, and either
//! TLS or the addresses of a proxy that terminates TLS, which are then the only peers. Everything else is refused before a port is
//! opened. The rules check the values in force, so a file or a variable can open nothing that a flag could
//! not.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use engine::Durability;
use service::{Auth, ServeOptions, TlsFiles};

use crate::config::serve::{ServeFlag, ServeKey};
use crate::config::value::Raw;
use crate::config::{self, Settings};
use crate::machine::{self, Machine, ServerMode};
use crate::options::Options;

/// Arguments of `serve`; each is stronger than the setting of its name.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// IP:PORT or unix:/path, repeatable [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<String>,
    /// Ask for no token; only on loopback and unix sockets
    #[arg(long)]
    pub(crate) no_auth: bool,
    /// Certificate chain, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A proxy at these addresses speaks TLS; only it may connect where other machines could (repeatable)
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) behind_proxy: Vec<String>,
    /// Another name by which this server is called, repeatable
    #[arg(long = "allow-host", value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// A page that may use it from a browser (https://app.example.com), repeatable
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub(crate) origins: Vec<String>,
    /// How others reach this server (https://tools.example.com), for file URLs
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// Serve the fixtures of the official conformance suite as well
    #[cfg(feature = "conformance")]
    #[arg(long, hide = true)]
    pub(crate) conformance_fixtures: bool,
}

pub(crate) fn main(options: &Options, arguments: ServeArguments) -> ExitCode {
    // Only the owner can access files and sockets created from here on.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let served = machine::with_engine(options, ServerMode::Http, |machine| serve(machine, arguments));
    match served.and_then(|served| served) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("palisade: {error}");
            // A configuration error, reported before any port was opened.
            let is_mistake = error.kind() == io::ErrorKind::InvalidInput;
            ExitCode::from(if is_mistake { terminal::BAD_USAGE } else { terminal::OWN_FAILURE })
        }
    }
}

async fn serve(machine: Machine, arguments: ServeArguments) -> io::Result<()> {
    let options = arguments.effective(&machine.settings)?;
    let (runs, state_dir) = (machine.runs(Durability::BeforeReply), &machine.state_dir);
    #[cfg(feature = "conformance")]
    if arguments.conformance_fixtures {
        return service::serve(runs, state_dir, &options, mcp::fixtures::Fixtured::beside).await;
    }
    service::serve(runs, state_dir, &options, Ok).await
}

impl ServeArguments {
    /// The checked settings with these flags applied. The error says what is wrong and what to do.
    pub(crate) fn effective(&self, settings: &Settings) -> io::Result<ServeOptions> {
        let mistaken = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
        let mut settings = settings.clone();
        config::apply_serve_flags(&mut settings, self.flags())
            .map_err(|error| mistaken(error.to_string()))?;
        let options = check(settings, self.public_url.clone()).map_err(mistaken)?;
        #[cfg(feature = "conformance")]
        fixtures_are_local(self.conformance_fixtures, &options).map_err(mistaken)?;
        Ok(options)
    }

    /// The given flags, as unchecked values.
    fn flags(&self) -> Vec<ServeFlag> {
        let texts = |list: &[String]| Raw::List(list.iter().map(|text| Raw::Text(text.clone())).collect());
        // Relative to the working directory of the command, as in every other command.
        let path = |path: &PathBuf| {
            let whole = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            whole.into_os_string().into_string().map_or(Raw::Other("a path that is not UTF-8"), Raw::Text)
        };
        let lists = [
            (ServeKey::Listen, "--listen", &self.listen),
            (ServeKey::BehindProxy, "--behind-proxy", &self.behind_proxy),
            (ServeKey::Hosts, "--allow-host", &self.hosts),
            (ServeKey::Origins, "--allow-origin", &self.origins),
        ];
        let given = lists.into_iter().filter(|(_, _, list)| !list.is_empty());
        let mut flags: Vec<_> = given.map(|(key, flag, list)| (key, flag, texts(list))).collect();
        flags.extend(self.tls_cert.iter().map(|file| (ServeKey::TlsCert, "--tls-cert", path(file))));
        flags.extend(self.tls_key.iter().map(|file| (ServeKey::TlsKey, "--tls-key", path(file))));
        if self.no_auth {
            flags.push((ServeKey::Auth, "--no-auth", Raw::Text(Auth::Nobody.name().to_owned())));
        }
        flags
    }
}

#[cfg(feature = "conformance")]
fn fixtures_are_local(are_served: bool, options: &ServeOptions) -> Result<(), String> {
    match options.addresses.iter().find(|address| are_served && !address.is_local()) {
        Some(open) => Err(format!(
            "--conformance-fixtures is for tests and works on loopback and unix sockets only, not on {open}"
        )),
        None => Ok(()),
    }
}

/// Checks the safety rules.
fn check(settings: Settings, public_url: Option<String>) -> Result<ServeOptions, String> {
    let connections_max = settings.connections_max();
    let serve = settings.serve;
    let issuers_from = settings.oauth.issuers.origin.clone();
    let oauth = settings.oauth.options()?;
    if oauth.is_some() && serve.auth.value == Auth::Nobody {
        return Err(format!(
            "oauth.issuers ({issuers_from}) says whose tokens are accepted, and no token is asked for (serve.auth, {}): \
             remove one of them",
            serve.auth.origin
        ));
    }
    let tls = match (serve.tls_cert.value, serve.tls_key.value) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (None, None) => None,
        (Some(_), None) => {
            let origin = serve.tls_cert.origin;
            return Err(format!("serve.tls_cert ({origin}) has no key: give --tls-key or serve.tls_key"));
        }
        (None, Some(_)) => {
            let origin = serve.tls_key.origin;
            return Err(format!(
                "serve.tls_key ({origin}) has no certificate: give --tls-cert or serve.tls_cert"
            ));
        }
    };
    if let Some(open) = serve.listen.value.iter().find(|address| !address.is_local()) {
        let from = serve.listen.origin;
        if serve.auth.value == Auth::Nobody {
            return Err(format!(
                "other machines can reach {open} (serve.listen, {from}), and no token is asked for (serve.auth, {}): \
                 that works on loopback and unix sockets only",
                serve.auth.origin
            ));
        }
        if tls.is_none() && serve.behind_proxy.value.is_empty() {
            return Err(format!(
                "other machines can reach {open} (serve.listen, {from}): give --tls-cert and --tls-key, or \
                 --behind-proxy ADDRESS if a proxy at that address speaks TLS"
            ));
        }
    }
    let mut hosts = serve.hosts.value;
    if let Some(url) = &public_url {
        hosts.push(public_host(url)?);
    }
    hosts.extend(oauth.iter().map(|oauth| oauth.resource.host().to_owned()));
    let scheme = if tls.is_some() || !serve.behind_proxy.value.is_empty() { "https" } else { "http" };
    Ok(ServeOptions {
        addresses: serve.listen.value,
        auth: serve.auth.value,
        tls,
        proxies: serve.behind_proxy.value,
        hosts,
        origins: serve.origins.value,
        connections_max,
        public_url,
        scheme,
        oauth,
    })
}

/// The host of the public URL. A client that uses a file URL calls this server by that name.
fn public_host(url: &str) -> Result<String, String> {
    let wrong =
        || format!("`{url}` is no public URL: give scheme and host, such as https://tools.example.com");
    let parsed: http::Uri = url.parse().map_err(|_| wrong())?;
    let has_scheme = ["http", "https"].contains(&parsed.scheme_str().unwrap_or_default());
    let is_plain = parsed.query().is_none() && !url.contains(['#', '@', '"', '<']);
    parsed.host().filter(|_| has_scheme && is_plain).map(str::to_owned).ok_or_else(wrong)
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
        check_with(line, &[])
    }

    /// Checks a command line and variables of the environment.
    fn check_with(line: &str, variables: &[(&str, &str)]) -> Result<ServeOptions, String> {
        let words = std::iter::once("serve").chain(line.split_whitespace());
        let arguments = Line::try_parse_from(words).map_err(|error| error.to_string())?.arguments;
        let settings = config::of_variables(variables).map_err(|error| error.to_string())?;
        arguments.effective(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn loopback_with_a_token_is_the_default() {
        let options = check("").unwrap();
        assert_eq!(options.addresses, ["127.0.0.1:8808".parse().unwrap()]);
        assert_eq!(options.auth, Auth::Token);
    }

    #[test]
    fn a_public_url_is_a_name_of_this_server() {
        let options = check("--public-url https://tools.example.com/sandbox").unwrap();
        assert_eq!(options.hosts, ["tools.example.com"]);
        for bad in ["tools.example.com", "ftp://x", "https://", "https://x/?a", "https://u@x", "/files"] {
            assert!(check(&format!("--public-url {bad}")).is_err(), "{bad}");
        }
        assert_eq!(check("").unwrap().scheme, "http");
        assert_eq!(check("--listen 0.0.0.0:1 --behind-proxy 10.0.0.5").unwrap().scheme, "https");
    }

    #[test]
    fn what_others_can_reach_needs_a_token_and_tls() {
        for fine in [
            "--no-auth",
            "--listen unix:/run/p.sock --no-auth",
            "--listen [::1]:0 --no-auth",
            "--listen 0.0.0.0:1 --tls-cert c --tls-key k",
            "--listen 0.0.0.0:1 --behind-proxy 10.0.0.5",
        ] {
            assert!(check(fine).is_ok(), "{fine}");
        }
        for unsafe_ in [
            "--listen 0.0.0.0:1",
            "--listen 0.0.0.0:1 --behind-proxy 0.0.0.0/0",
            "--listen 0.0.0.0:1 --behind-proxy proxy.example",
            "--listen [::]:1",
            "--listen 192.0.2.7:1",
            "--listen 127.0.0.1:1 --listen 0.0.0.0:1",
            "--listen 0.0.0.0:1 --no-auth --behind-proxy 10.0.0.5",
            "--listen 0.0.0.0:1 --no-auth --tls-cert c --tls-key k",
            "--listen 0.0.0.0:1 --tls-cert c",
            "--tls-key k",
            "--allow-origin example.com",
        ] {
            assert!(check(unsafe_).is_err(), "{unsafe_}");
        }
    }

    #[cfg(feature = "conformance")]
    #[test]
    fn fixtures_are_for_this_machine_alone() {
        assert!(check("--listen 127.0.0.1:0 --listen unix:/run/p.sock --conformance-fixtures").is_ok());
        for open in ["--behind-proxy 10.0.0.5", "--tls-cert c --tls-key k"] {
            let line = format!("--listen 127.0.0.1:0 --listen 0.0.0.0:1 {open} --conformance-fixtures");
            let reason = check(&line).unwrap_err();
            assert!(
                reason.starts_with("--conformance-fixtures") && reason.ends_with("0.0.0.0:1"),
                "{reason}"
            );
        }
        let from_setting =
            [("PALISADE_SERVE_LISTEN", "0.0.0.0:1"), ("PALISADE_SERVE_BEHIND_PROXY", "10.0.0.5")];
        assert!(check_with("--conformance-fixtures", &from_setting).is_err());
    }

    #[test]
    fn the_rules_hold_for_the_values_in_force_whatever_their_origin() {
        let (listen, auth, proxy) =
            ("PALISADE_SERVE_LISTEN", "PALISADE_SERVE_AUTH", "PALISADE_SERVE_BEHIND_PROXY");
        let open = (listen, "0.0.0.0:1");
        for (line, variables) in [
            ("", [open].as_slice()),
            ("--no-auth", &[open, (proxy, "10.0.0.5")]),
            ("--behind-proxy 10.0.0.5", &[open, (auth, "none")]),
            ("--listen 0.0.0.0:1 --behind-proxy 10.0.0.5", &[(auth, "none")]),
            ("--tls-cert c", &[]),
        ] {
            assert!(check_with(line, variables).is_err(), "{line} {variables:?}");
        }
        let message = check_with("--behind-proxy 10.0.0.5", &[open, (auth, "none")]).unwrap_err();
        assert!(
            message.contains("$PALISADE_SERVE_LISTEN") && message.contains("$PALISADE_SERVE_AUTH"),
            "{message}"
        );
        let mixed = check_with("--tls-key /k", &[open, ("PALISADE_SERVE_TLS_CERT", "/c")]).unwrap();
        assert_eq!(mixed.tls, Some(TlsFiles { certificate: "/c".into(), key: "/k".into() }));
        let local = check_with("--listen 127.0.0.1:2", &[open, (auth, "none")]).unwrap();
        assert_eq!((local.addresses, local.auth), (vec!["127.0.0.1:2".parse().unwrap()], Auth::Nobody));
    }

    #[test]
    fn issuers_need_a_resource_and_a_server_that_asks_for_tokens() {
        let issuers = ("PALISADE_OAUTH_ISSUERS", "https://login.example.com");
        let resource = ("PALISADE_OAUTH_RESOURCE", "https://tools.example.com/mcp");
        let options = check_with("", &[issuers, resource]).unwrap();
        assert_eq!(options.hosts, ["tools.example.com"], "clients call the server by that name");
        assert_eq!(options.oauth.unwrap().issuers.len(), 1);
        assert!(check_with("", &[issuers]).unwrap_err().contains("oauth.resource"));
        assert!(check_with("--no-auth", &[issuers, resource]).unwrap_err().contains("serve.auth"));
        assert_eq!(check_with("", &[resource]).unwrap().oauth, None);
    }

    #[test]
    fn other_settings_arrive_and_a_flag_replaces_a_list() {
        let variables = [
            ("PALISADE_SERVE_HOSTS", "a.example,b.example"),
            ("PALISADE_SERVE_ORIGINS", "https://app.example"),
            ("PALISADE_SERVE_CONNECTIONS_MAX", "16"),
        ];
        let options = check_with("--allow-host c.example", &variables).unwrap();
        assert_eq!((options.hosts, options.connections_max), (vec!["c.example".to_owned()], 16));
        assert_eq!(options.origins, ["https://app.example"]);
    }
}
