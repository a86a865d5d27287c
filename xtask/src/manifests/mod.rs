//! `cargo xtask manifests`: the files by which catalogues and installers know this server, made from the code.
//!
//! What is published comes from the binary itself (its role `__manifest`), what it is made of from Cargo. With
//! `--check` nothing is written: every file that says something else is named. The binary is the one in
//! `PALISADE_BIN`, or else a debug build made for the purpose.

mod compose;
mod inventory;

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use serde_json::Value;

const FOLDER: &str = "manifests";
const ROLE: &str = "__manifest";

/// What to do with files that say something else.
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
    let published = published(root)?;
    let dependencies = inventory::of_product(root)?;
    Ok(compose::all(&published, &dependencies))
}

/// What the binary says about itself.
fn published(root: &Path) -> io::Result<Value> {
    let text = match std::env::var_os("PALISADE_BIN") {
        Some(binary) => output(Command::new(binary).arg(ROLE))?,
        None => {
            output(cargo(root).args(["run", "--quiet", "--locked", "--package", "palisade", "--", ROLE]))?
        }
    };
    serde_json::from_str(&text).map_err(io::Error::from)
}

fn cargo(root: &Path) -> Command {
    // Cargo names itself to what it runs.
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root);
    command
}

/// Standard output of a program that succeeds.
fn output(command: &mut Command) -> io::Result<String> {
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !done.status.success() {
        return Err(io::Error::other(format!("{} failed", command.get_program().to_string_lossy())));
    }
    String::from_utf8(done.stdout).map_err(io::Error::other)
}

/// Names of the files that said something else.
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
    use super::*;

    /// The largest of the files holds all that the others are made from.
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
