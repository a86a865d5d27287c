//! Maintenance tasks of the workspace, started as `cargo xtask <task>`.
//!
//! - `tidy` reads the whole tree and prints every place that breaks a rule of this repository. It never
//!   changes a file and never starts another program.
//! - `manifests` generates the files in `manifests/` from the code; with `--check` it only compares.

mod lexer;
mod manifests;
mod tidy;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::manifests::Mode;

const USAGE: &str = "usage: cargo xtask tidy | manifests [--check]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => in_workspace(run_tidy),
        ["manifests"] => in_workspace(|root| manifests::main(root, Mode::Write)),
        ["manifests", "--check"] => in_workspace(|root| manifests::main(root, Mode::Check)),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn in_workspace(chore: impl FnOnce(&Path) -> ExitCode) -> ExitCode {
    let Some(root) = workspace_root() else {
        eprintln!("xtask: no workspace found above the working directory");
        return ExitCode::from(2);
    };
    chore(&root)
}

fn run_tidy(root: &Path) -> ExitCode {
    let tree = match tree::Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: reading the tree: {error}");
            return ExitCode::from(2);
        }
    };
    let violations = tidy::check(&tree);
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() {
        println!("tidy: {} files, all in order", tree.len());
        ExitCode::SUCCESS
    } else {
        println!("tidy: {} violations", violations.len());
        ExitCode::FAILURE
    }
}

/// Cargo provides the folder of this crate when it runs it; without Cargo the working directory is used. A
/// path fixed at compile time would point to the wrong tree in a copied target folder.
fn workspace_root() -> Option<PathBuf> {
    if let Some(own) = std::env::var_os("CARGO_MANIFEST_DIR") {
        return Path::new(&own).parent().map(Path::to_path_buf);
    }
    let here = std::env::current_dir().ok()?;
    here.ancestors().find(|folder| folder.join("xtask/Cargo.toml").is_file()).map(Path::to_path_buf)
}
