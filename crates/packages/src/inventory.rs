//! What a product holds: packages, by what the broker served, and modules, by the files that are there. And the same
//! as an inventory in CycloneDX.

use std::collections::{BTreeMap, BTreeSet};

use engine::packages::Ecosystem;
use serde_json::{Value, json};

use crate::clock::stamp;
use crate::index::npm::digest;
use crate::layers::{Harvested, LayerPackage, Manifest};
use crate::requirement::normal_name;
use crate::session::Offer;
use crate::tools::npm::INSTALLED;

/// The most packages of one layer.
const PACKAGES_MAX: usize = 20_000;

/// Whether the content of a file is needed to know what was installed.
pub(crate) fn is_noted(path: &str) -> bool {
    path == INSTALLED
}

/// The packages of a product. Fails if the product has one that the broker did not serve.
pub(crate) fn packages(
    ecosystem: Ecosystem,
    made: &Harvested,
    taken: &BTreeMap<String, Offer>,
) -> Result<Vec<LayerPackage>, String> {
    let mut packages = match ecosystem {
        Ecosystem::Pypi => python(made, taken)?,
        Ecosystem::Npm => javascript(made, taken)?,
    };
    packages.sort();
    packages.dedup();
    if packages.len() > PACKAGES_MAX { Err("it has too many packages".to_owned()) } else { Ok(packages) }
}

fn python(made: &Harvested, taken: &BTreeMap<String, Offer>) -> Result<Vec<LayerPackage>, String> {
    let mut packages = Vec::new();
    for path in made.entries.keys().filter(|path| !path.contains('/')) {
        let Some((name, version)) = path.strip_suffix(".dist-info").and_then(|stem| stem.split_once('-'))
        else {
            continue;
        };
        let normal = normal_name(Ecosystem::Pypi, name);
        let offer = taken
            .values()
            .find(|offer| offer.name == normal && normal_version(&offer.version) == normal_version(version));
        let offer =
            offer.ok_or_else(|| format!("it claims to be {normal} {version}, which was not fetched"))?;
        let (name, version) = (offer.name.clone(), offer.version.clone());
        packages.push(LayerPackage { name, version, blob: Some(offer.blob.clone()) });
    }
    Ok(packages)
}

/// Versions are written with different separators in file names and in names of folders.
fn normal_version(version: &str) -> String {
    version.to_ascii_lowercase().replace(['_', '-', '+'], ".")
}

fn javascript(made: &Harvested, taken: &BTreeMap<String, Offer>) -> Result<Vec<LayerPackage>, String> {
    let Some(list) = made.noted.get(INSTALLED) else {
        let is_empty = made.entries.is_empty();
        return if is_empty { Ok(Vec::new()) } else { Err("it has no list of its packages".to_owned()) };
    };
    let list: Value =
        serde_json::from_slice(list).map_err(|_| "the list of packages is not JSON".to_owned())?;
    let mut packages = Vec::new();
    for (path, entry) in list["packages"].as_object().into_iter().flatten() {
        if path.is_empty() {
            continue;
        }
        let offer = entry["integrity"].as_str().and_then(digest).and_then(|blob| taken.get(blob.digest()));
        match offer {
            Some(offer) => {
                let (name, version) = (offer.name.clone(), offer.version.clone());
                packages.push(LayerPackage { name, version, blob: Some(offer.blob.clone()) });
            }
            None if entry["inBundle"] == Value::Bool(true) => {
                let name = path.rsplit("node_modules/").next().unwrap_or(path).to_owned();
                let version = entry["version"].as_str().unwrap_or_default().to_owned();
                packages.push(LayerPackage { name, version, blob: None });
            }
            None if entry["optional"] == Value::Bool(true) && !is_there(made, path) => {}
            None => return Err(format!("it has `{path}`, which was not fetched")),
        }
    }
    Ok(packages)
}

fn is_there(made: &Harvested, path: &str) -> bool {
    path.strip_prefix("node_modules/").is_some_and(|path| made.entries.contains_key(path))
}

/// The names by which programs import what is there.
pub(crate) fn modules(ecosystem: Ecosystem, made: &Harvested) -> Vec<String> {
    let mut modules = BTreeSet::new();
    for path in made.entries.keys() {
        match ecosystem {
            Ecosystem::Pypi => {
                let is_code = [".py", ".so", ".pyi"].iter().any(|end| path.ends_with(end));
                let first = path.split(['/', '.']).next().unwrap_or_default();
                let is_name = first.starts_with(|c: char| c.is_alphabetic() || c == '_')
                    && first.chars().all(|c| c.is_alphanumeric() || c == '_');
                if is_code && is_name && first != "bin" && !path.contains(".data/") {
                    modules.insert(first.to_owned());
                }
            }
            Ecosystem::Npm => {
                if let Some(name) = path.strip_suffix("/package.json") {
                    let parts = name.split('/').count();
                    if parts == 1 && !name.starts_with(['@', '.']) || parts == 2 && name.starts_with('@') {
                        modules.insert(name.to_owned());
                    }
                }
            }
        }
    }
    modules.into_iter().collect()
}

/// The inventory of a layer in CycloneDX 1.6.
pub(crate) fn cyclonedx(manifest: &Manifest) -> Vec<u8> {
    let component = |package: &LayerPackage| {
        let name = match manifest.ecosystem {
            Ecosystem::Pypi => package.name.clone(),
            Ecosystem::Npm => package.name.replace('@', "%40"),
        };
        let purl = format!("pkg:{}/{name}@{}", manifest.ecosystem.name(), package.version);
        let mut component = json!({
            "type": "library",
            "bom-ref": purl,
            "name": package.name,
            "version": package.version,
            "purl": purl,
        });
        if let Some(blob) = &package.blob {
            component["hashes"] = json!([{"alg": blob.algorithm_name(), "content": blob.digest()}]);
        }
        component
    };
    let inventory = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": stamp(manifest.made_ms),
            "tools": {"components": [{
                "type": "application", "name": "palisade", "version": env!("CARGO_PKG_VERSION"),
            }]},
            "component": {
                "type": "container",
                "bom-ref": manifest.digest,
                "name": "palisade-layer",
                "version": manifest.digest,
                "hashes": [{"alg": "SHA-256", "content": manifest.digest}],
            },
        },
        "components": manifest.packages.iter().map(component).collect::<Vec<_>>(),
    });
    let mut text = serde_json::to_vec_pretty(&inventory).unwrap_or_default();
    text.push(b'\n');
    text
}
