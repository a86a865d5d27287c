//! `cargo xtask manifests`: generates the files by which catalogues and installers know this server.
//!
//! The published lists come from the binary itself (its role `__manifest`), the dependencies from Cargo. With
//! `--check` nothing is written, and every differing file is named. The binary is the one in `PALISADE_BIN`,
//! or otherwise a debug build made for this purpose.

mod compose;
mod inventory;

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const FOLDER: &str = "manifests";
const ROLE: &str = "__manifest";
/// The role that prints the document of the admin API.
const OPENAPI_ROLE: &str = "__openapi";
const OPENAPI: &str = "openapi.json";

/// What to do with differing files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Write,
    Check,
}

pub(crate) fn main(root: &Path, mode: Mode) -> ExitCode {
    match manifests(root).and_then(|files| put(root, &files, mode)) {
        Ok(stale) if stale.is_empty() => {
            println!("manifests: all say what the code says");
            ExitCode::SUCCESS
        }
        Ok(stale) => {
            let word = if mode == Mode::Write {
                "written"
            } else {
                "differs; write it with `cargo xtask manifests`"
            };
            stale.iter().for_each(|name| println!("{FOLDER}/{name}: {word}"));
            if mode == Mode::Write { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("manifests: {error}");
            ExitCode::from(2)
        }
    }
}

/// One file: its name in the folder, and its text.
type Manifest = (&'static str, String);

fn manifests(root: &Path) -> io::Result<Vec<Manifest>> {
    let published = serde_json::from_str(&printed(root, ROLE)?).map_err(io::Error::from)?;
    let dependencies = inventory::of_product(root)?;
    let mut files = compose::all(&published, &dependencies);
    files.push((OPENAPI, printed(root, OPENAPI_ROLE)?));
    Ok(files)
}

/// What the binary prints in that role.
fn printed(root: &Path, role: &str) -> io::Result<String> {
    match std::env::var_os("PALISADE_BIN") {
        Some(binary) => output(Command::new(binary).arg(role)),
        None => output(cargo(root).args(["run", "--quiet", "--locked", "--package", "palisade", "--", role])),
    }
}

fn cargo(root: &Path) -> Command {
    // Cargo provides its own path to the programs that it runs.
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root);
    command
}

/// Standard output of a program; an error if it fails.
fn output(command: &mut Command) -> io::Result<String> {
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !done.status.success() {
        return Err(io::Error::other(format!("{} failed", command.get_program().to_string_lossy())));
    }
    String::from_utf8(done.stdout).map_err(io::Error::other)
}

/// Writes or compares the files; returns the names of those that differed.
fn put(root: &Path, files: &[Manifest], mode: Mode) -> io::Result<Vec<&'static str>> {
    let mut stale = Vec::new();
    for (name, text) in files {
        let path = root.join(FOLDER).join(name);
        if fs::read_to_string(&path).ok().as_deref() == Some(text) {
            continue;
        }
        stale.push(*name);
        if mode == Mode::Write {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&path, text)?;
        }
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The largest file contains everything that the others are generated from.
    #[test]
    fn the_files_in_the_tree_agree_with_each_other() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let read = |name: &str| fs::read_to_string(root.join(FOLDER).join(name)).unwrap();
        let tools: Value = serde_json::from_str(&read(compose::TOOLS)).unwrap();
        for (name, text) in compose::all(&tools, &tools["dependencies"]) {
            assert_eq!(read(name), text, "{name}");
        }
    }

    #[test]
    fn checking_names_what_differs_and_writes_nothing() {
        let root = std::env::temp_dir().join(format!("palisade-xtask-{}", std::process::id()));
        let files = [("a.json", "{}\n".to_owned()), ("deep/b.json", "[]\n".to_owned())];
        assert_eq!(put(&root, &files, Mode::Check).unwrap(), ["a.json", "deep/b.json"]);
        assert!(!root.exists());
        put(&root, &files, Mode::Write).unwrap();
        fs::write(root.join(FOLDER).join("a.json"), "{ }\n").unwrap();
        assert_eq!(put(&root, &files, Mode::Check).unwrap(), ["a.json"]);
        fs::remove_dir_all(&root).unwrap();
    }
}
