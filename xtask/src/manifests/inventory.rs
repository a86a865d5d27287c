//! Everything that is linked into the shipped binary: name, version and licence of each crate.
//!
//! Build scripts, macros and test dependencies are not in the binary and not in the list. The list is the
//! union over the shipped platforms, so that it does not depend on the machine that generates it.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
const PRODUCT: &str = "palisade";
/// Separator of the columns; it occurs in no name, version or licence.
const COLUMN: char = '|';

/// The list as Cargo resolves it from the lock file.
pub(super) fn of_product(root: &Path) -> io::Result<Value> {
    let mut command = super::cargo(root);
    command.args(["tree", "--locked", "--package", PRODUCT, "--edges", "normal,no-proc-macro"]);
    command.args(["--prefix", "none", "--format", &format!("{{p}}{COLUMN}{{l}}")]);
    for target in TARGETS {
        command.args(["--target", target]);
    }
    parse(&super::output(&mut command)?)
}

fn parse(text: &str) -> io::Result<Value> {
    // A star marks a crate that was listed before.
    let lines: BTreeSet<&str> = text.lines().map(|line| line.trim_end_matches(" (*)").trim()).collect();
    let crates = lines.into_iter().filter(|line| !line.is_empty()).map(|line| {
        let (package, licence) = line.split_once(COLUMN)?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        let licence = Some(licence.trim_end_matches(" (*)")).filter(|licence| !licence.is_empty())?;
        let mut told = json!({ "name": name, "version": version, "license": licence });
        // Cargo shows the folder of a crate that is in no registry.
        if package.contains('(') {
            told["own"] = json!(true);
        }
        Some(told)
    });
    let known: Option<Vec<Value>> = crates.collect();
    known.map(Value::Array).ok_or_else(|| io::Error::other("a crate has no name, version or licence"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_is_there_once_and_without_its_folder() {
        let text = "palisade v0.1.0 (/home/me/palisade)|Apache-2.0\nserde v1.0.2|MIT OR Apache-2.0\n\
                    serde v1.0.2|MIT OR Apache-2.0 (*)\nserde v2.0.0|MIT\n\n";
        let expected = json!([
            { "name": "palisade", "version": "0.1.0", "license": "Apache-2.0", "own": true },
            { "name": "serde", "version": "1.0.2", "license": "MIT OR Apache-2.0" },
            { "name": "serde", "version": "2.0.0", "license": "MIT" },
        ]);
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn a_crate_without_a_licence_is_an_error() {
        assert!(parse("secret v1.0.0|\n").is_err());
    }
}
