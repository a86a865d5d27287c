//! Bubblewrap, with a wall as similar to Palisade's as its flags allow: new namespaces, a read-only /usr,
//! fresh /tmp, /proc and /dev.
//!
//! It has no control group limits, no Landlock and no system call filter, so it does less work.

use std::path::PathBuf;
use std::process::Command;

use super::{Candidates, Rival, bare, installations, on_path, root_links};
use crate::program::Program;
use crate::scene::Scene;

pub(super) const NAME: &str = "bubblewrap";

/// Its command line up to the program.
struct Bubblewrap {
    binary: String,
    flags: Vec<String>,
}

pub(super) fn find(scene: &Scene) -> Candidates {
    let binary = on_path("bwrap")?.display().to_string();
    let text = |path: PathBuf| path.display().to_string();
    let mut flags: Vec<String> =
        ["--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr"]
            .map(str::to_owned)
            .to_vec();
    for (name, target) in root_links() {
        flags.extend(["--symlink".to_owned(), text(target), format!("/{name}")]);
    }
    let fresh = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/workspace"];
    flags.extend(fresh.map(str::to_owned));
    // Bound after the fresh folders, because an interpreter may be installed beneath one of them.
    for folder in installations(scene) {
        flags.extend(["--ro-bind".to_owned(), text(folder.clone()), text(folder)]);
    }
    flags.extend(["--chdir", "/workspace", "--"].map(str::to_owned));
    Ok(vec![Box::new(Bubblewrap { binary, flags })])
}

impl Rival for Bubblewrap {
    fn name(&self) -> &str {
        NAME
    }

    fn command(&mut self, program: &Program) -> Result<Command, String> {
        let line = program.plain_command().ok_or("it cannot be started without a file")?;
        let mut command = bare(&self.binary);
        command.args(&self.flags).args(line);
        Ok(command)
    }
}
