//! The settings of the ordinary clients: where pip, npm and the go command of this machine's user get packages from.
//!
//! Read once at the start: variables, then the files of the user, then those of the machine, then the public default.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use egress::Upstream;
use engine::packages::Ecosystem;

use crate::settings::Mirror;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
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
    /// Ecosystems whose registry is named and cannot be read. They have no mirror: the public registry may have other packages of
    /// the same names.
    pub unreadable: Vec<Ecosystem>,
    /// Scopes of npm, such as `@name`, whose packages npm gets from another registry.
    pub scopes: BTreeSet<String>,
    /// Hosts of files beside them.
    pub file_hosts: Vec<String>,
    /// Certificates that they trust.
    pub ca_files: Vec<PathBuf>,
    /// The proxy of the environment.
    pub proxy: Option<Upstream>,
    /// Hosts that are reached without it.
    pub no_proxy: Vec<String>,
}

/// What a client says about its registry.
enum Registry {
    /// Nothing: it uses the public one.
    Unnamed,
    /// That it has none.
    Off,
    /// An address, as it is written.
    Named(String),
}

/// Reads the settings of pip, npm and the go command. `variable` gives a variable of the environment.
pub fn client_settings(home: Option<&Path>, variable: impl Fn(&str) -> Option<String>) -> ClientSettings {
    let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let first = |names: &[&str]| names.iter().find_map(|name| variable(name));
    let in_home = |path: &str| home.map(|home| home.join(path));
    let (in_etc, named) =
        (|path: &str| Some(PathBuf::from(path)), |name: &str| variable(name).map(PathBuf::from));
    let pip = texts(&[
        named("PIP_CONFIG_FILE"),
        in_home(".config/pip/pip.conf"),
        in_home(".pip/pip.conf"),
        in_etc("/etc/pip.conf"),
    ]);
    let npm = texts(&[named("NPM_CONFIG_USERCONFIG"), in_home(".npmrc"), in_etc("/etc/npmrc")]);
    let go = texts(&[named("GOENV").or_else(|| in_home(".config/go/env"))]);
    let pip_value = |name: &str| pip.iter().find_map(|text| pip_setting(text, name));
    let npm_value =
        |name: &str| npm_settings(&npm, &variable).find(|(own, _)| own == name).map(|(_, value)| value);
    let registries = [
        (Ecosystem::Pypi, variable("PIP_INDEX_URL").or_else(|| pip_value("index-url")).map(Registry::Named)),
        (
            Ecosystem::Npm,
            first(&["npm_config_registry", "NPM_CONFIG_REGISTRY"])
                .or_else(|| npm_value("registry"))
                .map(Registry::Named),
        ),
        (
            Ecosystem::Go,
            variable("GOPROXY").or_else(|| go_setting(&go, "GOPROXY")).map(|list| proxy_of_go(&list)),
        ),
    ];
    let mut found = ClientSettings::default();
    for (ecosystem, registry) in registries {
        found.take(ecosystem, registry.unwrap_or(Registry::Unnamed));
    }
    let own = found.mirrors.get(&Ecosystem::Npm);
    let scopes = npm_settings(&npm, &variable).filter_map(|(name, value)| {
        let scope = name.strip_suffix(":registry").filter(|scope| scope.starts_with('@'))?;
        (own.is_none() || readable(&value).as_ref().map(|mirror| &mirror.base) != own.map(|own| &own.base))
            .then(|| scope.to_owned())
    });
    found.scopes = scopes.collect();
    let files = variable("PIP_CERT").or_else(|| pip_value("cert")).into_iter().chain(npm_value("cafile"));
    found.ca_files = files.map(PathBuf::from).filter(|path| path.is_file()).collect();
    found.ca_files.sort();
    found.ca_files.dedup();
    found.proxy =
        first(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]).and_then(|text| text.parse().ok());
    let without = first(&["NO_PROXY", "no_proxy"]);
    found.no_proxy =
        without.iter().flat_map(|list| list.split(',')).map(|one| one.trim().to_owned()).collect();
    found
}

impl ClientSettings {
    /// Takes the registry of an ecosystem. The public one is taken only if no other one is named.
    fn take(&mut self, ecosystem: Ecosystem, registry: Registry) {
        let Some((_, host, path)) = PUBLIC.into_iter().find(|public| public.0 == ecosystem) else { return };
        let mirror = match registry {
            Registry::Off => return,
            Registry::Unnamed => readable(&format!("https://{host}{path}")),
            Registry::Named(text) => readable(&text),
        };
        let Some(mirror) = mirror else {
            self.unreadable.push(ecosystem);
            return;
        };
        if mirror.base.host() == Some(host) && ecosystem == Ecosystem::Pypi {
            self.file_hosts.push(PUBLIC_FILES.to_owned());
        }
        self.mirrors.insert(ecosystem, mirror);
    }
}

/// A registry as it is written. A variable that is not set stays in it, and no address has one.
fn readable(text: &str) -> Option<Mirror> {
    Mirror::parse(text).ok().filter(|_| !text.contains("${"))
}

/// The proxy in a list of the go command. `direct` and `off` are none: the server fetches from no repository.
fn proxy_of_go(list: &str) -> Registry {
    let proxy = list.split([',', '|']).map(str::trim).find(|one| one.starts_with("http"));
    proxy.map_or(Registry::Off, |proxy| Registry::Named(proxy.to_owned()))
}

/// The files that are there, as text.
fn texts(files: &[Option<PathBuf>]) -> Vec<String> {
    files.iter().flatten().filter_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    let inner = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(value).trim()
}

/// A value of pip, in any section: `name = value` or `name: value`, also with the value in the line below. Names have `-` or `_`.
fn pip_setting(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((own, value)) = line.split_once(['=', ':']) else { continue };
        let own = own.trim().trim_start_matches("--").to_ascii_lowercase().replace('_', "-");
        let below = lines.peek().filter(|below| below.starts_with([' ', '\t']));
        let value = match (unquoted(value), below) {
            ("", Some(below)) => unquoted(below),
            (value, _) => value,
        };
        if own == name && !value.is_empty() {
            return Some(value.to_owned());
        }
    }
    None
}

/// The values of npm. Variables in them are resolved, those that are not set stay as they are.
fn npm_settings<'a>(
    texts: &'a [String],
    variable: &'a impl Fn(&str) -> Option<String>,
) -> impl Iterator<Item = (String, String)> + 'a {
    texts.iter().flat_map(|text| text.lines()).filter_map(move |line| {
        let (name, value) = line.split_once('=')?;
        // What follows these characters is a comment.
        let value = value.split([';', '#']).next().unwrap_or_default();
        let (name, value) = (unquoted(name).to_owned(), expanded(unquoted(value), variable));
        (!value.is_empty()).then_some((name, value))
    })
}

/// Resolves `${NAME}`.
fn expanded(text: &str, variable: &impl Fn(&str) -> Option<String>) -> String {
    let mut parts = text.split("${");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let known = part.split_once('}').and_then(|(name, rest)| Some((variable(name)?, rest)));
        match known {
            Some((value, rest)) => out.extend([value.as_str(), rest]),
            None => out.extend(["${", part]),
        }
    }
    out
}

/// A value of the go command.
fn go_setting(texts: &[String], name: &str) -> Option<String> {
    let named = |line: &str| {
        line.split_once('=')
            .filter(|(own, _)| own.trim() == name)
            .map(|(_, value)| unquoted(value).to_owned())
    };
    texts.iter().flat_map(|text| text.lines()).find_map(named).filter(|value| !value.is_empty())
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

    /// What is read from these files with these variables.
    fn found(files: &[(&str, &str)], variables: &[(&str, &str)]) -> ClientSettings {
        let folder = harness::TestFolder::new();
        std::fs::create_dir_all(folder.path().join(".config/pip")).unwrap();
        for (name, content) in files {
            folder.file(name, content);
        }
        let variable = |name: &str| variables.iter().find(|one| one.0 == name).map(|one| one.1.to_owned());
        client_settings(Some(folder.path()), variable)
    }

    fn host(found: &ClientSettings, ecosystem: Ecosystem) -> String {
        match found.mirrors.get(&ecosystem) {
            Some(mirror) => mirror.base.host().unwrap().to_owned(),
            None => format!("none, unreadable: {}", found.unreadable.contains(&ecosystem)),
        }
    }

    #[test]
    fn a_registry_that_cannot_be_read_is_never_replaced_by_the_public_one() {
        let (none, set) = ("none, unreadable: true", [("NPM_HOST", "npm.example")]);
        for (line, wanted) in [
            ("registry=${NPM_REGISTRY}", none),
            ("registry=https://${NPM_REGISTRY}/", none),
            ("registry=https://npm.example/${TEAM}/", none),
            ("registry=npm.example", none),
            ("registry=ftp://npm.example", none),
            ("registry='https://npm.example/", none),
            ("registry=https://${NPM_HOST}/x", "npm.example"),
            ("registry='https://npm.example/x'", "npm.example"),
            ("\"registry\" = \"https://npm.example/x\" ; ours", "npm.example"),
            ("; registry=https://other.example", "registry.npmjs.org"),
            ("registry=", "registry.npmjs.org"),
        ] {
            assert_eq!(host(&found(&[(".npmrc", line)], &set), Ecosystem::Npm), wanted, "{line}");
        }
        for (lines, wanted) in [
            ("[global]\nindex_url = https://pip.example/simple", "pip.example"),
            ("[global]\nindex-url: https://pip.example/simple", "pip.example"),
            ("[global]\nIndex-URL: 'https://pip.example/simple'", "pip.example"),
            ("[global]\nindex-url =\n    https://pip.example/simple", "pip.example"),
            ("[global]\nindex-url = pip.example/simple", none),
            ("[global]\nindex-url = https://${PIP_HOST}/simple", none),
            ("[global]\nextra-index-url = https://pip.example/simple", "pypi.org"),
            ("[global]\n# index-url = https://pip.example/simple", "pypi.org"),
            ("[global]\nindex-url = https://caf\u{e9}.example/simple", none),
        ] {
            let found = found(&[(".config/pip/pip.conf", lines)], &[]);
            assert_eq!(host(&found, Ecosystem::Pypi), wanted, "{lines}");
            assert_eq!(found.file_hosts.is_empty(), wanted != "pypi.org", "{lines}");
        }
        let named = [
            ("PIP_INDEX_URL", "pip.example"),
            ("npm_config_registry", "${X}"),
            ("GOPROXY", "https://:80,direct"),
        ];
        let found = found(&[(".npmrc", "registry=https://npm.example/")], &named);
        assert_eq!(found.unreadable, [Ecosystem::Pypi, Ecosystem::Npm, Ecosystem::Go]);
        assert_eq!((found.mirrors.len(), found.file_hosts.len()), (0, 0));
    }

    #[test]
    fn scopes_with_another_registry_are_known() {
        let own = "registry=https://npm.example/\n@same:registry=https://npm.example\n@team:registry=https://team.example/\n\
                   @unset:registry=${TEAM}\n//team.example/:_authToken=x\n";
        assert_eq!(found(&[(".npmrc", own)], &[]).scopes, ["@team", "@unset"].map(str::to_owned).into());
        let public = found(&[(".npmrc", "@team:registry=https://team.example/\n")], &[]);
        assert_eq!(host(&public, Ecosystem::Npm), "registry.npmjs.org");
        assert_eq!(public.scopes, ["@team".to_owned()].into());
    }
}
