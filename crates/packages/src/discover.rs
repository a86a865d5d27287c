//! The settings of the ordinary clients: where pip, npm and the go command of this machine's user get packages from.
//!
//! Read once at the start: variables, then the files of the user, then those of the machine, then the public default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use egress::Upstream;
use engine::packages::Ecosystem;

use crate::settings::Mirror;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The public registries, which the ordinary clients use without any setting: scheme, host and path apart.
const PUBLIC: [(Ecosystem, &str, &str); 3] = [
    (Ecosystem::Pypi, "pypi.org", "/simple"),
    (Ecosystem::Npm, "registry.npmjs.org", ""),
    (Ecosystem::Go, "proxy.golang.org", ""),
];
/// Where the public index of Python packages has its files.
const PUBLIC_FILES: &str = "files.pythonhosted.org";

/// What the ordinary clients of this machine use.
#[derive(Debug, Clone, Default)]
pub struct ClientSettings {
    /// The mirror of each ecosystem.
    pub mirrors: BTreeMap<Ecosystem, Mirror>,
    /// Hosts of files beside them.
    pub file_hosts: Vec<String>,
    /// Certificates that they trust.
    pub ca_files: Vec<PathBuf>,
    /// The proxy of the environment.
    pub proxy: Option<Upstream>,
    /// Hosts that are reached without it.
    pub no_proxy: Vec<String>,
}

/// Reads the settings of pip, npm and the go command. `variable` gives a variable of the environment.
pub fn client_settings(home: Option<&Path>, variable: impl Fn(&str) -> Option<String>) -> ClientSettings {
    let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let mut found = ClientSettings::default();
    let in_home = |path: &str| home.map(|home| home.join(path));
    let pip_files = [
        variable("PIP_CONFIG_FILE").map(PathBuf::from),
        in_home(".config/pip/pip.conf"),
        in_home(".pip/pip.conf"),
        Some(PathBuf::from("/etc/pip.conf")),
    ];
    let npm_files = [
        variable("NPM_CONFIG_USERCONFIG").map(PathBuf::from),
        in_home(".npmrc"),
        Some(PathBuf::from("/etc/npmrc")),
    ];
    let texts = |files: &[Option<PathBuf>]| -> Vec<String> {
        files.iter().flatten().filter_map(|path| read(path)).collect()
    };
    let (pip, npm) = (texts(&pip_files), texts(&npm_files));
    let pip_value = |name: &str| pip.iter().find_map(|text| setting(text, name));
    let npm_value = |name: &str| npm.iter().find_map(|text| setting(text, name));
    let pypi = variable("PIP_INDEX_URL").or_else(|| pip_value("index-url"));
    let registry = ["npm_config_registry", "NPM_CONFIG_REGISTRY"].iter().find_map(|name| variable(name));
    let registry = registry.or_else(|| npm_value("registry"));
    let go_file = variable("GOENV").map(PathBuf::from).or_else(|| in_home(".config/go/env"));
    let go = variable("GOPROXY").or_else(|| setting(&texts(&[go_file]).concat(), "GOPROXY"));
    for (ecosystem, host, path) in PUBLIC {
        let named = match ecosystem {
            Ecosystem::Pypi => pypi.as_deref(),
            Ecosystem::Npm => registry.as_deref(),
            Ecosystem::Go => match go.as_deref().map(proxy_of_go) {
                // The user of this machine has no proxy, and neither has the server.
                Some(None) => continue,
                named => named.flatten(),
            },
        };
        let mirror = named.and_then(|text| Mirror::parse(text).ok());
        let mirror = mirror.or_else(|| Mirror::parse(&format!("https://{host}{path}")).ok());
        if let Some(mirror) = mirror {
            if mirror.base.host() == Some(host) && ecosystem == Ecosystem::Pypi {
                found.file_hosts.push(PUBLIC_FILES.to_owned());
            }
            found.mirrors.insert(ecosystem, mirror);
        }
    }
    let cert = variable("PIP_CERT").or_else(|| pip_value("cert"));
    found.ca_files.extend(cert.into_iter().chain(npm_value("cafile")).map(PathBuf::from));
    found.ca_files.sort();
    found.ca_files.dedup();
    found.ca_files.retain(|path| path.is_file());
    let proxy =
        ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].iter().find_map(|name| variable(name));
    found.proxy = proxy.and_then(|text| text.parse().ok());
    let without = ["NO_PROXY", "no_proxy"].iter().find_map(|name| variable(name));
    found.no_proxy =
        without.iter().flat_map(|list| list.split(',')).map(|one| one.trim().to_owned()).collect();
    found
}

/// The proxy in a list of the go command. `direct` and `off` are none: the server fetches from no repository.
fn proxy_of_go(list: &str) -> Option<&str> {
    list.split([',', '|']).map(str::trim).find(|one| one.starts_with("http"))
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The value of a line `name = value`, in any section.
fn setting(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (own, value) = line.split_once('=')?;
        let value = value.trim().trim_matches('"');
        (own.trim() == name && !value.is_empty()).then(|| value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_go_before_files_and_files_before_the_public_default() {
        let folder = harness::TestFolder::new();
        folder.file(".npmrc", "registry=http://127.0.0.1:4873/\n");
        let none = client_settings(Some(folder.path()), |_| None);
        assert_eq!(none.mirrors[&Ecosystem::Npm].base.to_string(), "http://127.0.0.1:4873/");
        let set = |name: &str| match name {
            "PIP_INDEX_URL" => Some("https://user:word@mirror.example/root/simple/".to_owned()),
            "npm_config_registry" => Some("https://npm.example".to_owned()),
            _ => None,
        };
        let found = client_settings(Some(folder.path()), set);
        let pypi = &found.mirrors[&Ecosystem::Pypi];
        assert_eq!(pypi.base.to_string(), "https://mirror.example/root/simple");
        assert_eq!(pypi.authorization.as_deref(), Some("Basic dXNlcjp3b3Jk"));
        assert_eq!(found.mirrors[&Ecosystem::Npm].base.host(), Some("npm.example"));
        assert!(found.file_hosts.is_empty(), "a mirror of the operator has its own files");
        assert_eq!(found.mirrors[&Ecosystem::Go].base.host(), Some(PUBLIC[2].1));
    }

    #[test]
    fn the_first_proxy_of_the_go_command_is_used_and_none_if_there_is_none() {
        let folder = harness::TestFolder::new();
        let host = |list: Option<&str>| {
            let set = |name: &str| list.filter(|_| name == "GOPROXY").map(str::to_owned);
            let found = client_settings(Some(folder.path()), set).mirrors;
            found.get(&Ecosystem::Go).and_then(|mirror| mirror.base.host().map(str::to_owned))
        };
        assert_eq!(host(Some("https://go.example/x,direct")).as_deref(), Some("go.example"));
        assert_eq!(host(Some("off,https://one.example|https://two.example")).as_deref(), Some("one.example"));
        assert_eq!((host(Some("direct")), host(Some("off"))), (None, None));
        std::fs::create_dir_all(folder.path().join(".config/go")).unwrap();
        folder.file(".config/go/env", "GOFLAGS=-x\nGOPROXY=https://file.example,off\n");
        assert_eq!(host(None).as_deref(), Some("file.example"));
    }
}
