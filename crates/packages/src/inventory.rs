//! What a product holds: packages, by what the broker served, and modules, by the files that are there. And the same
//! as an inventory in CycloneDX.

use std::collections::{BTreeMap, BTreeSet};

use engine::packages::Ecosystem;
use serde_json::{Value, json};

use crate::clock::stamp;
use crate::go::names::escaped;
use crate::index::npm::digest;
use crate::layers::{Form, Harvested, LayerPackage, Manifest};
use crate::requirement::{is_name, normal_name};
use crate::session::Offer;
use crate::tools::npm::INSTALLED;

/// The most packages of one layer.
const PACKAGES_MAX: usize = 20_000;

/// The version of a package inside the file of another one that npm does not list.
pub(crate) const UNKNOWN_VERSION: &str = "unknown";

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
        Ecosystem::Go => go(made, taken)?,
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
    let mut packages = unlisted(made, &list["packages"])?;
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

/// The modules of a product: folders of the module cache, which have the version in their name. Fails if one was not served, or
/// if something is beside them.
fn go(made: &Harvested, taken: &BTreeMap<String, Offer>) -> Result<Vec<LayerPackage>, String> {
    let mut packages = Vec::new();
    for (path, form) in &made.entries {
        let Some(below) = path.strip_prefix("mod/").filter(|below| !below.starts_with("cache/")) else {
            let is_known =
                ["go.mod", "go.sum", "mod"].contains(&path.as_str()) || path.starts_with("mod/cache/");
            if is_known {
                continue;
            }
            return Err(format!("it has `{path}`, which is no module"));
        };
        let Some(at) = below.find('@') else {
            // A folder above modules.
            match form {
                Form::Directory => continue,
                _ => return Err(format!("it has `{path}`, which is no module")),
            }
        };
        let end = below[at..].find('/').map_or(below.len(), |end| at + end);
        if end != below.len() {
            continue;
        }
        let offer = taken.values().find(|offer| {
            below[..at] == escaped(&offer.name) && below[at + 1..end] == escaped(&offer.version)
        });
        let offer = offer.ok_or_else(|| format!("it has `{below}`, which was not fetched"))?;
        let (name, version) = (offer.name.clone(), offer.version.clone());
        packages.push(LayerPackage { name, version, blob: Some(offer.blob.clone()) });
    }
    Ok(packages)
}

/// Packages inside the files of others that npm does not list, because no package says that it brings them. A program can
/// import them all the same. Fails if one is at the top, where only npm puts packages.
fn unlisted(made: &Harvested, listed: &Value) -> Result<Vec<LayerPackage>, String> {
    let mut packages = Vec::new();
    for place in made.entries.keys().filter_map(|path| path.strip_suffix("/package.json")) {
        let names: Vec<&str> = place.split("/node_modules/").collect();
        let is_package = names.iter().all(|name| is_name(Ecosystem::Npm, name));
        if !is_package || listed.get(format!("node_modules/{place}")).is_some() {
            continue;
        }
        match names.as_slice() {
            [_, .., name] => {
                let (name, version) = ((*name).to_owned(), UNKNOWN_VERSION.to_owned());
                packages.push(LayerPackage { name, version, blob: None });
            }
            _ => return Err(format!("it has `{place}`, which was not fetched")),
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
            // Programs import packages by their paths, which the compiler finds.
            Ecosystem::Go => return Vec::new(),
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
            Ecosystem::Go => package.name.to_ascii_lowercase(),
        };
        let version = Some(&package.version).filter(|version| *version != UNKNOWN_VERSION);
        let at = version.map(|version| format!("@{}", version.replace('+', "%2B"))).unwrap_or_default();
        let purl = format!("pkg:{}/{name}{at}", purl_type(manifest.ecosystem));
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

/// The type of a package URL.
fn purl_type(ecosystem: Ecosystem) -> &'static str {
    match ecosystem {
        Ecosystem::Go => "golang",
        other => other.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::{Algorithm, BlobId};

    fn served(algorithm: Algorithm, digest: &str) -> BTreeMap<String, Offer> {
        let blob = BlobId::new(algorithm, digest).unwrap();
        let (name, version, url) = ("good".to_owned(), "1.0.0".to_owned(), String::new());
        BTreeMap::from([(digest.to_owned(), Offer { name, version, url, blob, metadata: None })])
    }

    #[test]
    fn a_python_distribution_that_was_not_served_is_refused() {
        let taken = served(Algorithm::Sha256, &"0".repeat(64));
        let found = |folder: &str| {
            let mut made = Harvested::default();
            made.entries.insert(folder.to_owned(), Form::Directory);
            packages(Ecosystem::Pypi, &made, &taken).map(|packages| packages.len())
        };
        assert_eq!(found("Good-1.0.0.dist-info"), Ok(1));
        assert!(found("good-2.0.0.dist-info").is_err() && found("other-1.0.0.dist-info").is_err());
    }

    #[test]
    fn a_go_module_that_was_not_served_is_refused() {
        let blob = BlobId::new(Algorithm::Sha256, &"0".repeat(64)).unwrap();
        let (name, version, url) = ("example.org/Good".to_owned(), "v1.0.0".to_owned(), String::new());
        let taken = BTreeMap::from([(String::new(), Offer { name, version, url, blob, metadata: None })]);
        let found = |paths: &[&str]| {
            let mut made = Harvested::default();
            let form = |path: &str| match path.ends_with(".go") || path.starts_with("go.") {
                true => Form::File { is_executable: false, bytes: 0, digest: String::new() },
                false => Form::Directory,
            };
            made.entries.extend(paths.iter().map(|path| ((*path).to_owned(), form(path))));
            packages(Ecosystem::Go, &made, &taken).map(|packages| packages.len())
        };
        let good = "mod/example.org/!good@v1.0.0";
        assert_eq!(
            found(&["go.mod", "go.sum", "mod", "mod/cache/download/x", "mod/example.org", good]),
            Ok(1)
        );
        assert_eq!(found(&[good, "mod/example.org/!good@v1.0.0/a@v2.0.0"]), Ok(1), "a folder of the module");
        for odd in [
            "mod/example.org/!good@v1.0.1",
            "mod/example.org/good@v1.0.0",
            "mod/other.org/x@v1.0.0",
            "mod/x.go",
            "other",
        ] {
            assert!(found(&[good, odd]).is_err(), "{odd}");
        }
    }

    #[test]
    fn an_npm_package_that_was_not_served_is_refused() {
        use base64::Engine as _;
        let taken = served(Algorithm::Sha512, &"00".repeat(64));
        let integrity =
            |byte: u8| format!("sha512-{}", base64::engine::general_purpose::STANDARD.encode([byte; 64]));
        let found = |listed: Value, files: &[&str]| {
            let mut made = Harvested::default();
            let list = json!({"packages": listed}).to_string();
            made.noted.insert(INSTALLED.to_owned(), list.into_bytes());
            made.entries.extend(files.iter().map(|path| ((*path).to_owned(), Form::Directory)));
            packages(Ecosystem::Npm, &made, &taken).map(|packages| packages.len())
        };
        let good = json!({"version": "1.0.0", "integrity": integrity(0)});
        assert_eq!(found(json!({"node_modules/good": good}), &["good"]), Ok(1));
        for entry in [
            json!({"version": "1.0.0", "integrity": integrity(1)}),
            json!({"version": "1.0.0"}),
            json!({"version": "1.0.0", "optional": true}),
        ] {
            assert!(found(json!({"node_modules/other": entry}), &["other"]).is_err(), "{entry}");
        }
        let absent = json!({"version": "1.0.0", "optional": true});
        assert_eq!(found(json!({"node_modules/other": absent}), &[]), Ok(0));
        let mut unlisted = Harvested::default();
        unlisted.entries.insert("other".to_owned(), Form::Directory);
        assert!(packages(Ecosystem::Npm, &unlisted, &taken).is_err());
        let listed = json!({"node_modules/good": good});
        let inside = "good/node_modules/other/package.json";
        assert_eq!(found(listed.clone(), &["good/package.json", inside]), Ok(2));
        assert_eq!(
            found(listed.clone(), &["good/package.json", "good/test/node_modules/x/package.json"]),
            Ok(1)
        );
        assert!(found(listed, &["good/package.json", "other/package.json"]).is_err());
    }
}
