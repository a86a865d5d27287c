//! Lists the crates of this build, for `palisade sbom`: exactly what Cargo compiles into the binary, by the lock file.
//!
//! One line per crate: `name|version|licence|checksum|name@version ...`. The checksum is that of the lock file and is empty
//! for crates of this repository; the last column has its dependencies. No path and no time is in it, so the same sources
//! give the same list on every machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::{env, fs, io};

/// Separator of the columns; it occurs in no name, version or licence.
const COLUMN: char = '|';
/// Features of the product that a build may have.
const FEATURES: [(&str, &str); 2] =
    [("CARGO_FEATURE_BREACH", "breach"), ("CARGO_FEATURE_CONFORMANCE", "conformance")];

/// A crate: its licence, and what it depends on.
#[derive(Default)]
struct ListedCrate {
    licence: String,
    dependencies: BTreeSet<String>,
}

/// Writes the list. `crates` is the folder of all crates.
pub(crate) fn write(crates: &Path, file: &Path) -> io::Result<()> {
    let tree = tree(crates)?;
    let checksums = checksums(&fs::read_to_string(crates.join("../Cargo.lock"))?);
    let mut text = String::new();
    for (package, ListedCrate { licence, dependencies }) in parse(&tree)? {
        let (name, version) = package.split_once('@').unwrap_or((&package, ""));
        let checksum = checksums.get(&package).map_or("", String::as_str);
        let dependencies: Vec<_> = dependencies.into_iter().collect();
        let columns = [name, version, &licence, checksum, &dependencies.join(" ")];
        text.push_str(&columns.join(&COLUMN.to_string()));
        text.push('\n');
    }
    fs::write(file, text)
}

/// The tree of crates as Cargo resolves it for this target: no build scripts, no macros, no tests.
fn tree(crates: &Path) -> io::Result<String> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "--locked", "--offline", "--edges", "normal,no-proc-macro", "--prefix", "depth"]);
    cargo.args([
        "--format",
        &format!(" {{p}}{COLUMN}{{l}}{COLUMN}"),
        "--charset",
        "ascii",
        "--manifest-path",
    ]);
    cargo.arg(crates.join("palisade/Cargo.toml"));
    cargo.args(["--target", &env::var("TARGET").unwrap_or_default()]);
    let features: Vec<_> =
        FEATURES.iter().filter(|(set, _)| env::var_os(set).is_some()).map(|(_, name)| *name).collect();
    if !features.is_empty() {
        cargo.args(["--features", &features.join(",")]);
    }
    let done = cargo.output()?;
    if !done.status.success() {
        let reason = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(io::Error::other(format!("the crates of this build could not be listed: {reason}")));
    }
    String::from_utf8(done.stdout).map_err(io::Error::other)
}

/// Reads lines such as `2 serde v1.0.2|MIT|`. Cargo shows the dependencies of a crate where it is first listed.
fn parse(tree: &str) -> io::Result<BTreeMap<String, ListedCrate>> {
    let unreadable = |line: &str| io::Error::other(format!("no crate can be read from `{line}`"));
    let mut found: BTreeMap<String, ListedCrate> = BTreeMap::new();
    let mut above: Vec<String> = Vec::new();
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let (depth, rest) = line.split_once(' ').ok_or_else(|| unreadable(line))?;
        let depth: usize = depth.parse().map_err(|_| unreadable(line))?;
        let mut columns = rest.split(COLUMN);
        let mut words = columns.next().unwrap_or_default().split(' ');
        let (name, version) = (words.next(), words.next().and_then(|version| version.strip_prefix('v')));
        let (Some(name), Some(version)) = (name, version) else { return Err(unreadable(line)) };
        let package = format!("{name}@{version}");
        found.entry(package.clone()).or_default().licence = columns.next().unwrap_or_default().to_owned();
        above.truncate(depth);
        if let Some(parent) = above.last() {
            found.entry(parent.clone()).or_default().dependencies.insert(package.clone());
        }
        above.push(package);
    }
    Ok(found)
}

/// The checksums of a lock file.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let mut checksums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
            Some(line.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) =
            (value("name"), value("version"), value("checksum"))
        {
            checksums.insert(format!("{name}@{version}"), checksum);
        }
    }
    checksums
}
