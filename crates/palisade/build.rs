//! Builds `crates/zygote` as a separate library and `crates/static-guest` as a static program, and embeds both, with a
//! list of all crates ([`inventory`]). A warm interpreter loads the library from memory. Walls with a container
//! runtime execute the program.
//!
//! ```text
//! the file has the hash of these sources -> nothing
//! cargo only checks                      -> an empty file, and this script runs again next time
//! else                                   -> its crates are rebuilt, optimised; the file must contain their hash
//! ```
//! Cargo does not support a dependency on such files yet. This script therefore runs Cargo again, with separate
//! target folders. A stale file would mean a stale wall, so sources are compared by content and not by time.
//! `src/zygote.rs` and `src/static_guest.rs` refuse to compile into a program with an empty file.

#[path = "build_inventory.rs"]
mod inventory;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Crates that the embedded files are built from.
const PARTS: [&str; 5] = ["zygote", "static-guest", "jail", "guest", "wire"];
/// Versions and profiles, relative to those crates.
const SETTINGS: [&str; 2] = ["../Cargo.lock", "../Cargo.toml"];
/// Other inputs of the library, which Cargo sets as variables.
const VARIABLES: [&str; 3] = ["TARGET", "CARGO_FEATURE_BREACH", "CARGO_ENCODED_RUSTFLAGS"];
/// What is embedded.
const EMBEDDED: [Embedded; 2] = [
    Embedded { package: "zygote", file: "libzygote.so", target: "--lib", flags: "" },
    Embedded {
        package: "static-guest",
        file: "static-guest",
        target: "--bins",
        flags: "-Ctarget-feature=+crt-static",
    },
];
/// The list of crates that `palisade sbom` tells.
const INVENTORY: &str = "inventory.txt";
/// Clippy sets it.
const WRAPPER_VARIABLE: &str = "RUSTC_WORKSPACE_WRAPPER";
/// `crates/zygote` reads it when it is built.
const SOURCES_VARIABLE: &str = "PALISADE_ZYGOTE_SOURCES";

/// A file that is built from a crate and embedded.
struct Embedded {
    package: &'static str,
    file: &'static str,
    target: &'static str,
    /// Flags of the compiler besides those of this build.
    flags: &'static str,
}

fn main() -> io::Result<()> {
    let crates = folder("CARGO_MANIFEST_DIR").join("..");
    for name in PARTS.iter().chain(&SETTINGS) {
        println!("cargo::rerun-if-changed={}", crates.join(name).display());
    }
    for manifest in manifests(&crates)? {
        println!("cargo::rerun-if-changed={}", manifest.display());
    }
    inventory::write(&crates, &folder("OUT_DIR").join(INVENTORY))?;
    let sources = sources(&crates)?;
    println!("cargo::rustc-env={SOURCES_VARIABLE}={sources}");
    EMBEDDED.iter().try_for_each(|embedded| embedded.provide(&crates, &sources))
}

impl Embedded {
    fn provide(&self, crates: &Path, sources: &str) -> io::Result<()> {
        let file = folder("OUT_DIR").join(self.file);
        if names(&file, sources) {
            return Ok(());
        }
        if is_only_check() {
            fs::write(&file, [])?;
            // Cargo shares the output of this script between a check and a build, but not with a linter in the
            // compiler's place. A file that never exists makes the script run again.
            if env::var_os(WRAPPER_VARIABLE).is_none() {
                println!("cargo::rerun-if-changed={}", file.with_extension("never").display());
            }
            return Ok(());
        }
        let built = self.build(crates, sources)?;
        if !names(&built, sources) {
            return Err(io::Error::other(format!("{} is not of these sources", self.file)));
        }
        fs::copy(built, &file).map(drop)
    }

    /// Builds the file and returns its path.
    fn build(&self, crates: &Path, sources: &str) -> io::Result<PathBuf> {
        let target = folder("OUT_DIR").join("build").join(self.package);
        let triple = env::var("TARGET").unwrap_or_default();
        let inherited = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
        let flags: Vec<&str> =
            [inherited.as_str(), self.flags].into_iter().filter(|flags| !flags.is_empty()).collect();
        let cargo = |verb: &str| {
            let mut cargo = Command::new(folder("CARGO"));
            cargo
                .args([verb, "--quiet", "--release", "--locked", "--target", &triple, "--manifest-path"])
                .arg(crates.join(self.package).join("Cargo.toml"))
                .arg("--target-dir")
                .arg(&target)
                .env(SOURCES_VARIABLE, sources)
                .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
                // A linter in the compiler's place would build nothing.
                .env_remove(WRAPPER_VARIABLE)
                .env_remove("CLIPPY_ARGS")
                .env_remove("CARGO_TARGET_DIR");
            cargo
        };
        // Cargo compares modification times, which may be wrong. The output of other sources is therefore
        // removed.
        let mut clean = cargo("clean");
        let mut make = cargo("build");
        make.arg(self.target);
        let other = if self.package == "zygote" { "static-guest" } else { "zygote" };
        for part in PARTS.into_iter().filter(|part| *part != other) {
            clean.args(["--package", part]);
        }
        if env::var_os("CARGO_FEATURE_BREACH").is_some() {
            make.args(["--features", "breach"]);
        }
        for mut step in [clean, make] {
            if !step.status()?.success() {
                return Err(io::Error::other(format!("{} could not be built", self.file)));
            }
        }
        Ok(target.join(&triple).join("release").join(self.file))
    }
}

/// The manifests of all crates: their features decide what is compiled.
fn manifests(crates: &Path) -> io::Result<Vec<PathBuf>> {
    let entries: Result<Vec<_>, _> = fs::read_dir(crates)?.collect();
    let manifests = entries?.into_iter().map(|entry| entry.path().join("Cargo.toml"));
    Ok(manifests.filter(|manifest| manifest.is_file()).collect())
}

fn folder(variable: &str) -> PathBuf {
    env::var_os(variable).map(PathBuf::from).unwrap_or_default()
}

/// A hash of everything that the library is built from.
fn sources(crates: &Path) -> io::Result<String> {
    let mut files = BTreeSet::new();
    for name in PARTS.iter().chain(&SETTINGS) {
        collect(&crates.join(name), &mut files)?;
    }
    let mut hasher = DefaultHasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.write_usize(bytes.len());
        hasher.write(bytes);
    };
    for file in files {
        add(file.strip_prefix(crates).unwrap_or(&file).as_os_str().as_encoded_bytes());
        add(&fs::read(&file)?);
    }
    for variable in VARIABLES {
        add(env::var_os(variable).unwrap_or_default().as_encoded_bytes());
    }
    Ok(format!("zygote sources {:016x}", hasher.finish()))
}

fn collect(path: &Path, files: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        files.insert(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}

/// Whether a library contains the hash of those sources.
fn names(library: &Path, sources: &str) -> bool {
    let bytes = fs::read(library).unwrap_or_default();
    bytes.windows(sources.len()).any(|window| window == sources.as_bytes())
}

/// Whether Cargo runs a check, directly or for clippy; nothing is linked then. In doubt it is a build.
fn is_only_check() -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", parent_id())).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).skip(1).skip_while(|word| word.starts_with(b"+"));
    matches!(words.next(), Some(b"check" | b"c"))
}
