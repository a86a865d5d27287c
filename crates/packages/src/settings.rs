//! What an operator decides about packages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use egress::Upstream;
use engine::packages::Ecosystem;
use http::Uri;
use sha2::{Digest, Sha256};

use crate::rules::Rules;

/// Where packages of an ecosystem come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The address of the index, without credentials and without a slash at its end.
    pub base: Uri,
    /// The value of the `Authorization` header for this host.
    pub authorization: Option<String>,
}

impl Mirror {
    /// Parses an address with http or https. A user and a password become a header; their percent signs are resolved, and a user
    /// without a password has an empty one, as clients send it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "it must be an address such as https://mirror.example/simple".to_owned();
        let (scheme, rest) = text.trim().split_once("://").ok_or_else(wrong)?;
        if !["http", "https"].contains(&scheme) || rest.contains(['?', '#']) {
            return Err(wrong());
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let path = path.trim_end_matches('/');
        let base: Uri = format!("{scheme}://{host}/{path}").parse().map_err(|_| wrong())?;
        if base.host().is_none_or(str::is_empty) {
            return Err(wrong());
        }
        Ok(Self { base, authorization: user.map(basic) })
    }

    /// The address of something below the index.
    pub(crate) fn below(&self, path: &str) -> String {
        format!("{}/{path}", self.base.to_string().trim_end_matches('/'))
    }
}

/// The header of a user and a password as they are written in an address (RFC 7617).
fn basic(user_info: &str) -> String {
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let plain = [percent_decoded(user), percent_decoded(password)].join(&b':');
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(plain))
}

/// Resolves percent signs (RFC 3986, section 2.1). One without two digits stands for itself.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut plain = Vec::with_capacity(rest.len());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        let is_hex = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        match digits.filter(is_hex).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[2..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

/// The most that one installation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The files of one layer together.
    pub layer_bytes_max: u64,
    /// The number of files, directories and links of one layer.
    pub layer_entries_max: u64,
    /// One file of a mirror.
    pub blob_bytes_max: u64,
    /// Everything that one installation fetches.
    pub fetched_bytes_max: u64,
    /// One document of an index.
    pub document_bytes_max: usize,
    /// The memory of a builder.
    pub memory_bytes: u64,
    /// Layers and blobs together. The least recently used go first.
    pub kept_bytes_max: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            layer_bytes_max: 4 << 30,
            layer_entries_max: 250_000,
            blob_bytes_max: 2 << 30,
            fetched_bytes_max: 4 << 30,
            document_bytes_max: 64 << 20,
            memory_bytes: 2 << 30,
            kept_bytes_max: 20 << 30,
        }
    }
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// To connect to a mirror.
    pub connect: Duration,
    /// From a request to the head of its answer, and between two parts of its body.
    pub idle: Duration,
    /// A whole document of an index.
    pub document: Duration,
    /// A whole installation.
    pub install: Duration,
    /// How long a document of an index is used without asking the mirror again.
    pub fresh: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            document: Duration::from_secs(60),
            install: Duration::from_secs(15 * 60),
            fresh: Duration::from_secs(10 * 60),
        }
    }
}

/// The settings of packages.
#[derive(Debug, Clone)]
pub struct PackagesConfig {
    /// The directory that holds the server's state.
    pub state_dir: PathBuf,
    /// The mirror of each ecosystem that is offered.
    pub mirrors: BTreeMap<Ecosystem, Mirror>,
    /// Scopes of npm that another registry serves, which is not asked. The mirror is not asked for them either.
    pub other_scopes: BTreeSet<String>,
    /// Hosts beside the mirror's own that files may come from.
    pub file_hosts: Vec<String>,
    /// Which packages may be installed.
    pub rules: Rules,
    /// Younger releases are passed over.
    pub min_age: Duration,
    /// Whether releases of unknown age may be installed.
    pub allow_unknown_age: bool,
    /// Whether packages may be built from source, behind the wall.
    pub source_builds: bool,
    /// Whether npm packages may run their install scripts, behind the wall.
    pub install_scripts: bool,
    /// The checksum database of Go modules: a name, a name with its key, or [`NO_DATABASE`].
    pub go_sumdb: String,
    /// Certificates to trust beside those of this machine.
    pub ca_files: Vec<PathBuf>,
    /// The proxy through which mirrors are reached, and the hosts that are reached without it.
    pub proxy: Option<Upstream>,
    /// Host names, or `.suffix` for a domain; `*` for all.
    pub no_proxy: Vec<String>,
    /// What one installation may take.
    pub bounds: Bounds,
    /// How long things may take.
    pub patience: Patience,
}

/// The public checksum database, whose key is part of the go command.
pub const PUBLIC_DATABASE: &str = "sum.golang.org";
/// The setting without a checksum database.
pub const NO_DATABASE: &str = "off";

/// Checks a setting of the checksum database: `off`, or the name of a database, with its key unless the go command knows it.
pub fn is_database(text: &str) -> bool {
    let mut parts = text.splitn(3, '+');
    let (name, number, key) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    // A key has a kind (1 is Ed25519) and 32 bytes, and begins with a digest of its name and itself.
    let is_key = |number: &str, key: &str| {
        let key = base64::engine::general_purpose::STANDARD.decode(key).unwrap_or_default();
        let mut hasher = Sha256::new();
        hasher.update(format!("{name}\n"));
        hasher.update(&key);
        key.len() == 33 && key.first() == Some(&1) && crate::files::hex(&hasher.finalize()[..4]) == number
    };
    match (number, key) {
        (None, None) => text == NO_DATABASE || text == PUBLIC_DATABASE,
        (Some(number), Some(key)) => crate::go::is_module_path(name) && is_key(number, key),
        _ => false,
    }
}

/// The workspace of a builder holds the product, the archives and what is being unpacked.
const BUILDER_DISK_FACTOR: u64 = 3;

impl PackagesConfig {
    /// Whether the go command compares modules with that checksum database.
    pub(crate) fn has_database(&self, name: &str) -> bool {
        self.go_sumdb != NO_DATABASE && self.go_sumdb.split('+').next() == Some(name)
    }

    /// The scope of a package that another registry serves.
    pub(crate) fn other_scope(&self, ecosystem: Ecosystem, name: &str) -> Option<&str> {
        let scope = name.split_once('/').filter(|_| ecosystem == Ecosystem::Npm)?.0;
        self.other_scopes.get(scope).map(String::as_str)
    }

    /// The disk that one builder may use.
    pub(crate) fn builder_disk_bytes(&self) -> u64 {
        self.bounds.layer_bytes_max.saturating_mul(BUILDER_DISK_FACTOR)
    }

    /// The defaults, without a mirror.
    pub fn new(state_dir: PathBuf) -> Self {
        Self {
            state_dir,
            mirrors: BTreeMap::new(),
            other_scopes: BTreeSet::new(),
            file_hosts: Vec::new(),
            rules: Rules::default(),
            min_age: Duration::from_secs(7 * 24 * 60 * 60),
            allow_unknown_age: false,
            source_builds: false,
            install_scripts: false,
            go_sumdb: PUBLIC_DATABASE.to_owned(),
            ca_files: Vec::new(),
            proxy: None,
            no_proxy: Vec::new(),
            bounds: Bounds::default(),
            patience: Patience::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_a_password_of_an_address_are_sent_as_clients_send_them() {
        for (user_info, plain) in [
            ("user:word", "user:word"),
            ("TOKEN", "TOKEN:"),
            ("TOKEN:", "TOKEN:"),
            (":word", ":word"),
            ("me%40mirror.example:p%3Aw%2fd%25", "me@mirror.example:p:w/d%"),
            ("a:b:c", "a:b:c"),
            ("user:100%", "user:100%"),
            ("user:%zz%4", "user:%zz%4"),
            ("user:%+1%c3%bc", "user:%+1\u{fc}"),
        ] {
            let mirror = Mirror::parse(&format!("https://{user_info}@mirror.example/simple")).unwrap();
            let sent = mirror.authorization.unwrap();
            let sent = base64::engine::general_purpose::STANDARD.decode(sent.strip_prefix("Basic ").unwrap());
            assert_eq!(String::from_utf8(sent.unwrap()).unwrap(), plain, "{user_info}");
            assert_eq!(mirror.base.to_string(), "https://mirror.example/simple");
        }
        assert_eq!(Mirror::parse("https://mirror.example").unwrap().authorization, None);
    }

    #[test]
    fn a_checksum_database_is_the_public_one_or_has_a_name_and_a_key() {
        let key = "sums.example+3ad6b0e9+AT+25LkmesQof6IVzyMQ/0SxioJAv06q09p8sFCF2N7e";
        for text in [PUBLIC_DATABASE, NO_DATABASE, key] {
            assert!(is_database(text), "{text}");
        }
        for text in [
            "",
            "other.example",
            "sums.example+3ad6b0e9",
            &key.replace("3ad6", "3ad7"),
            &key.replace("sums", "sum"),
            &key[..60],
        ] {
            assert!(!is_database(text), "{text}");
        }
    }
}
