//! Builds `crates/zygote` as a library of its own and embeds it: a warm interpreter loads it from memory.
//!
//! ```text
//! the library is of these very sources -> nothing
//! cargo only checks                    -> an empty file, and this script runs again next time
//! else                                 -> its crates are built anew, optimised; the library must name their hash
//! ```
//! Cargo cannot yet depend on a library of that kind, so it is asked again, with a target folder of its own. A stale
//! library would be a stale wall: sources are compared by content, not by time, and `src/zygote.rs` refuses to be
//! compiled into a program with an empty one.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Crates whose change changes the library.
const PARTS: [&str; 4] = ["zygote", "jail", "guest", "wire"];
/// Versions and profiles, relative to those.
const SETTINGS: [&str; 2] = ["../Cargo.lock", "../Cargo.toml"];
/// What else it depends on, of what Cargo says.
const VARIABLES: [&str; 3] = ["TARGET", "CARGO_FEATURE_BREACH", "CARGO_ENCODED_RUSTFLAGS"];
const LIBRARY: &str = "libzygote.so";
/// Clippy sets it.
const WRAPPER_VARIABLE: &str = "RUSTC_WORKSPACE_WRAPPER";
/// Read by `crates/zygote` when it is built.
const SOURCES_VARIABLE: &str = "PALISADE_ZYGOTE_SOURCES";

fn main() -> io::Result<()> {
    let crates = folder("CARGO_MANIFEST_DIR").join("..");
    let library = folder("OUT_DIR").join(LIBRARY);
    for name in PARTS.iter().chain(&SETTINGS) {
        println!("cargo::rerun-if-changed={}", crates.join(name).display());
    }
    let sources = sources(&crates)?;
    println!("cargo::rustc-env={SOURCES_VARIABLE}={sources}");
    if names(&library, &sources) {
        return Ok(());
    }
    if is_only_check() {
        fs::write(&library, [])?;
        // Cargo shares what this script did between a check and a build, though not with a linter in the compiler's
        // place. A file that is never there makes the script run again.
        if env::var_os(WRAPPER_VARIABLE).is_none() {
            println!("cargo::rerun-if-changed={}", library.with_extension("never").display());
        }
        return Ok(());
    }
    let built = build(&crates, &sources)?;
    if !names(&built, &sources) {
        return Err(io::Error::other("the library for warm interpreters is not of these sources"));
    }
    fs::copy(built, &library).map(drop)
}

fn folder(variable: &str) -> PathBuf {
    env::var_os(variable).map(PathBuf::from).unwrap_or_default()
}

/// A name for the content of everything that the library is made of.
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

/// Whether a library says that it is of those sources.
fn names(library: &Path, sources: &str) -> bool {
    let bytes = fs::read(library).unwrap_or_default();
    bytes.windows(sources.len()).any(|window| window == sources.as_bytes())
}

/// Whether Cargo was asked for a check, by itself or for clippy: then nothing is linked. When in doubt it is a build.
fn is_only_check() -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", parent_id())).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).skip(1).skip_while(|word| word.starts_with(b"+"));
    matches!(words.next(), Some(b"check" | b"c"))
}

/// Builds it; its place.
fn build(crates: &Path, sources: &str) -> io::Result<PathBuf> {
    let target = folder("OUT_DIR").join("zygote");
    let triple = env::var("TARGET").unwrap_or_default();
    let cargo = |verb: &str| {
        let mut cargo = Command::new(folder("CARGO"));
        cargo
            .args([verb, "--quiet", "--release", "--locked", "--target", &triple, "--manifest-path"])
            .arg(crates.join("zygote/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .env(SOURCES_VARIABLE, sources)
            // A linter in the compiler's place would build nothing.
            .env_remove(WRAPPER_VARIABLE)
            .env_remove("CLIPPY_ARGS")
            .env_remove("CARGO_TARGET_DIR");
        cargo
    };
    // Cargo goes by the time of files, which may lie: what was made of other sources goes.
    let mut clean = cargo("clean");
    let mut make = cargo("build");
    make.arg("--lib");
    for part in PARTS {
        clean.args(["--package", part]);
    }
    if env::var_os("CARGO_FEATURE_BREACH").is_some() {
        make.args(["--features", "breach"]);
    }
    for mut step in [clean, make] {
        if !step.status()?.success() {
            return Err(io::Error::other("the library for warm interpreters could not be built"));
        }
    }
    Ok(target.join(&triple).join("release").join(LIBRARY))
}
