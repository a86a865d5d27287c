//! `palisade sbom`: the inventory is that of the lock file, and the same build always prints the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Build, Palisade, users};
use serde_json::Value;

type Crate = (String, String);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn printed() -> (String, Value) {
    let ended = Palisade::new(Build::Real, users()[0], &["sbom"]).end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let bom = serde_json::from_str(&ended.stdout).expect("JSON");
    (ended.stdout, bom)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn cargo(args: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo).current_dir(root()).args(args).output().expect("cargo starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Crates that Cargo lists for the product.
fn compiled() -> BTreeSet<Crate> {
    let tree = ["tree", "--locked", "--offline", "--package", "palisade", "--edges", "normal,no-proc-macro"];
    let listed = cargo(&[tree.as_slice(), &["--prefix", "none", "--format", "{p}"]].concat());
    let package = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    listed.lines().filter_map(package).collect()
}

/// Crates of the product by the metadata of the workspace: everything that is reached over normal
/// dependencies without entering a macro.
fn resolved() -> BTreeSet<Crate> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let asked = ["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &target];
    let metadata: Value = serde_json::from_str(&cargo(&asked)).expect("JSON");
    let packages: BTreeMap<String, &Value> =
        metadata["packages"].as_array().unwrap().iter().map(|one| (text(&one["id"]), one)).collect();
    let nodes: BTreeMap<String, &Value> =
        metadata["resolve"]["nodes"].as_array().unwrap().iter().map(|one| (text(&one["id"]), one)).collect();
    let is_macro = |id: &str| {
        let targets = packages[id]["targets"].as_array().unwrap();
        targets.iter().any(|target| target["kind"] == serde_json::json!(["proc-macro"]))
    };
    let start = packages.iter().find(|(_, one)| one["name"] == "palisade").unwrap().0.clone();
    let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(id) = open.pop() {
        if is_macro(&id) || !seen.insert(id.clone()) {
            continue;
        }
        for dependency in nodes[&id]["deps"].as_array().unwrap() {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                open.push(text(&dependency["pkg"]));
            }
        }
    }
    seen.iter().map(|id| (text(&packages[id]["name"]), text(&packages[id]["version"]))).collect()
}

/// The checksums of the lock file.
fn locked() -> BTreeMap<Crate, Option<String>> {
    let text = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let lock: toml::Table = toml::from_str(&text).expect("a lock file");
    let field = |package: &toml::Value, name: &str| {
        package.get(name).and_then(|text| Some(text.as_str()?.to_owned()))
    };
    let packages = lock["package"].as_array().unwrap().iter();
    packages
        .map(|one| {
            let name = (field(one, "name").unwrap(), field(one, "version").unwrap());
            (name, field(one, "checksum"))
        })
        .collect()
}

#[test]
fn the_inventory_is_what_cargo_compiles_in_with_the_checksums_of_the_lock_file() {
    let (_, bom) = printed();
    let own = &bom["metadata"]["component"];
    let (crates, others): (Vec<_>, Vec<_>) = bom["components"]
        .as_array()
        .unwrap()
        .iter()
        .chain([own])
        .partition(|one| !one["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:generic/")));
    let told: BTreeSet<Crate> =
        crates.iter().map(|one| (text(&one["name"]), text(&one["version"]))).collect();
    assert_eq!(told.len(), crates.len(), "a crate is there twice");
    assert_eq!(told, compiled());
    // The metadata unite the features of the whole workspace, so they may reach more; never less.
    let (resolved, more) = (resolved(), 12);
    let strangers: Vec<_> = told.difference(&resolved).collect();
    assert!(strangers.is_empty(), "not of the product: {strangers:?}");
    let left_out: Vec<_> = resolved.difference(&told).collect();
    assert!(left_out.len() <= more, "not in the inventory: {left_out:?}");
    let locked = locked();
    for one in &crates {
        let name = (text(&one["name"]), text(&one["version"]));
        let checksum = locked.get(&name).unwrap_or_else(|| panic!("{name:?} is not in the lock file"));
        assert_eq!(one["hashes"][0]["content"].as_str(), checksum.as_deref(), "{name:?}");
        assert_eq!(one["purl"].is_string(), checksum.is_some(), "{name:?}");
        assert!(one["licenses"][0]["expression"].is_string(), "{name:?}");
    }
    assert_eq!(others.iter().map(|one| text(&one["name"])).collect::<Vec<_>>(), ["sqlite"]);
}

#[test]
fn every_dependency_in_the_inventory_leads_to_a_component() {
    let (_, bom) = printed();
    let components = bom["components"].as_array().unwrap().iter().chain([&bom["metadata"]["component"]]);
    let known: BTreeSet<String> = components.map(|one| text(&one["bom-ref"])).collect();
    let edges = bom["dependencies"].as_array().unwrap();
    assert_eq!(edges.iter().map(|one| text(&one["ref"])).collect::<BTreeSet<_>>(), known);
    let named = edges.iter().flat_map(|one| one["dependsOn"].as_array().unwrap());
    let reached: BTreeSet<String> = named.map(text).collect();
    assert!(reached.is_subset(&known));
    assert_eq!(known.len() - reached.len(), 1, "everything but the product is needed by something");
}

#[test]
fn the_inventory_is_the_same_every_time_and_names_no_build_machine() {
    let (first, _) = printed();
    assert_eq!(first, printed().0);
    let root = root().canonicalize().unwrap();
    for word in [root.to_str().unwrap(), "/home", "file://", "timestamp"] {
        assert!(!first.contains(word), "{word}");
    }
}
