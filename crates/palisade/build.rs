//! Builds `crates/zygote` as a library of its own and embeds it: a warm interpreter loads it from memory.
//!
//! Cargo cannot yet depend on a library of that kind, so it is asked again, with a target folder of its own. Always
//! optimised: what it does is on the path of every run.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs, io};

/// Crates whose change changes the library.
const PARTS: [&str; 4] = ["zygote", "jail", "guest", "wire"];
const LIBRARY: &str = "libzygote.so";

fn main() -> io::Result<()> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let crates = folder("CARGO_MANIFEST_DIR").join("..");
    for part in PARTS {
        println!("cargo::rerun-if-changed={}", crates.join(part).display());
    }
    println!("cargo::rerun-if-changed={}", crates.join("../Cargo.lock").display());
    let target = folder("OUT_DIR").join("zygote");
    let triple = env::var("TARGET").unwrap_or_default();
    let mut cargo = Command::new(folder("CARGO"));
    cargo
        .args(["build", "--quiet", "--release", "--lib", "--locked", "--target", &triple, "--manifest-path"])
        .arg(crates.join("zygote/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        // A linter in the compiler's place would build nothing.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        .env_remove("CARGO_TARGET_DIR");
    if env::var_os("CARGO_FEATURE_BREACH").is_some() {
        cargo.args(["--features", "breach"]);
    }
    if !cargo.status()?.success() {
        return Err(io::Error::other("the library for warm interpreters could not be built"));
    }
    fs::copy(target.join(&triple).join("release").join(LIBRARY), folder("OUT_DIR").join(LIBRARY)).map(drop)
}
