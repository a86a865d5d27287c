//! Embeds `runtimes/` in the binary: one list of (language, file, content), so that a language is only data.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Files that only the tests need.
const NOT_EMBEDDED: [&str; 2] = ["cases", "test_driver.py"];

fn main() -> io::Result<()> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let runtimes = manifest.join("../../runtimes");
    println!("cargo::rerun-if-changed={}", runtimes.display());
    let mut list = String::from("&[\n");
    for language in sorted(&runtimes)? {
        for file in sorted(&language)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if NOT_EMBEDDED.contains(&name.as_str()) || !file.is_file() {
                continue;
            }
            println!("cargo::rerun-if-changed={}", file.display());
            let folder = language.file_name().unwrap_or_default().to_string_lossy().into_owned();
            writeln!(list, "({folder:?}, {name:?}, include_bytes!({:?})),", file.canonicalize()?.display())
                .map_err(io::Error::other)?;
        }
    }
    list.push(']');
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    fs::write(out.join("runtimes.rs"), list)
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<_>>()?;
    paths.sort();
    Ok(paths)
}
