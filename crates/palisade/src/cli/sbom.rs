//! `palisade sbom`: the inventory of this program as CycloneDX, for scanners of vulnerabilities and licences.
//!
//! The list comes from the build (`build_inventory.rs`): every crate that is compiled in, with the checksum of the lock
//! file, and the SQLite library that one of them contains. The same build prints the same bytes: the serial number is
//! derived from the content, and there is no time in it.

use std::io::Write;
use std::process::ExitCode;

use engine::store::sqlite_version;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const INVENTORY: &str = include_str!(concat!(env!("OUT_DIR"), "/inventory.txt"));
const PRODUCT: &str = "palisade";
const SPEC_VERSION: &str = "1.6";
/// The crate that contains SQLite.
const SQLITE_CRATE: &str = "libsqlite3-sys";

/// A crate of the list.
struct Crate<'a> {
    name: &'a str,
    version: &'a str,
    licence: &'a str,
    /// Empty for a crate of this repository.
    checksum: &'a str,
    dependencies: Vec<&'a str>,
}

pub(crate) fn main() -> ExitCode {
    let text = format!("{:#}", document(INVENTORY, sqlite_version()));
    // The reader of standard output may be gone.
    match writeln!(std::io::stdout().lock(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn document(inventory: &str, sqlite: &str) -> Value {
    let crates: Vec<Crate<'_>> = inventory.lines().filter_map(Crate::parse).collect();
    let sqlite_ref = format!("pkg:generic/sqlite@{sqlite}");
    let (own, others): (Vec<_>, Vec<_>) = crates.iter().partition(|one| one.name == PRODUCT);
    let mut components: Vec<Value> = others.iter().map(|one| one.component("library")).collect();
    components.push(json!({
        "type": "library",
        "bom-ref": sqlite_ref,
        "name": "sqlite",
        "version": sqlite,
        "purl": sqlite_ref,
        "description": format!("The C library that {SQLITE_CRATE} contains"),
        "licenses": [{ "license": { "name": "Public Domain" } }],
    }));
    let mut dependencies: Vec<Value> = crates.iter().map(|one| one.edges(&crates, &sqlite_ref)).collect();
    dependencies.push(json!({ "ref": sqlite_ref, "dependsOn": [] }));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": serial_number(inventory, sqlite),
        "version": 1,
        "metadata": { "component": own.first().map(|one| one.component("application")) },
        "components": components,
        "dependencies": dependencies,
    })
}

impl<'a> Crate<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut columns = line.split('|');
        let mut next = || columns.next();
        Some(Self {
            name: next()?,
            version: next()?,
            licence: next()?,
            checksum: next()?,
            dependencies: next()?.split(' ').filter(|one| !one.is_empty()).collect(),
        })
    }

    /// Crates of this repository are in no registry.
    fn reference(&self) -> String {
        let Self { name, version, checksum, .. } = self;
        if checksum.is_empty() { format!("{name}@{version}") } else { format!("pkg:cargo/{name}@{version}") }
    }

    fn component(&self, kind: &str) -> Value {
        let mut told = json!({
            "type": kind,
            "bom-ref": self.reference(),
            "name": self.name,
            "version": self.version,
        });
        if !self.licence.is_empty() {
            // Some crates still write the operator as Cargo once did.
            told["licenses"] = json!([{ "expression": self.licence.replace('/', " OR ") }]);
        }
        if !self.checksum.is_empty() {
            told["purl"] = json!(self.reference());
            told["hashes"] = json!([{ "alg": "SHA-256", "content": self.checksum }]);
        }
        told
    }

    fn edges(&self, all: &[Crate<'_>], sqlite: &str) -> Value {
        let known = |package: &str| {
            let (name, version) = package.split_once('@')?;
            all.iter().find(|one| one.name == name && one.version == version).map(Crate::reference)
        };
        let mut needs: Vec<String> = self.dependencies.iter().filter_map(|one| known(one)).collect();
        if self.name == SQLITE_CRATE {
            needs.push(sqlite.to_owned());
        }
        json!({ "ref": self.reference(), "dependsOn": needs })
    }
}

/// A UUID of the content (RFC 9562, version 8).
fn serial_number(inventory: &str, sqlite: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(inventory);
    hasher.update(sqlite);
    let digest = hasher.finalize();
    let mut hex: Vec<char> =
        digest.iter().take(16).flat_map(|byte| format!("{byte:02x}").chars().collect::<Vec<_>>()).collect();
    (hex[12], hex[16]) = ('8', 'a');
    for place in [8, 13, 18, 23] {
        hex.insert(place, '-');
    }
    format!("urn:uuid:{}", hex.into_iter().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "palisade|1.0.0|Apache-2.0||own@1.0.0 serde@1.0.2\nown|1.0.0|Apache-2.0||libsqlite3-sys@0.3.0\n\
                        serde|1.0.2|MIT/Apache-2.0|00ff|\nlibsqlite3-sys|0.3.0|MIT|11ee|\n";

    #[test]
    fn every_crate_is_a_component_with_its_source_checksum_and_dependencies() {
        let bom = document(LIST, "3.50.4");
        assert_eq!((&bom["bomFormat"], &bom["specVersion"]), (&json!("CycloneDX"), &json!("1.6")));
        assert_eq!(bom["metadata"]["component"]["name"], "palisade");
        let names: Vec<_> =
            bom["components"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        assert_eq!(names, ["own", "serde", "libsqlite3-sys", "sqlite"]);
        assert_eq!(
            bom["components"][1],
            json!({
                "type": "library", "bom-ref": "pkg:cargo/serde@1.0.2", "name": "serde", "version": "1.0.2",
                "licenses": [{"expression": "MIT OR Apache-2.0"}], "purl": "pkg:cargo/serde@1.0.2",
                "hashes": [{"alg": "SHA-256", "content": "00ff"}],
            })
        );
        assert_eq!(
            bom["dependencies"][0],
            json!({"ref": "palisade@1.0.0", "dependsOn": ["own@1.0.0", "pkg:cargo/serde@1.0.2"]})
        );
        assert_eq!(bom["dependencies"][3]["dependsOn"], json!(["pkg:generic/sqlite@3.50.4"]));
    }

    #[test]
    fn the_serial_number_is_that_of_the_content() {
        let one = serial_number(LIST, "1");
        assert_eq!(one, serial_number(LIST, "1"));
        assert_ne!(one, serial_number(LIST, "2"));
        let text = one.strip_prefix("urn:uuid:").unwrap();
        assert_eq!(text.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    }
}
