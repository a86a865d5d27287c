//! A root filesystem for other sandboxes: empty folders and links. The host's /usr and the interpreters'
//! folders are bind-mounted over it, read-only. Nothing is copied or fetched.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use super::{installations, root_links};
use crate::scene::Scene;

/// Mount points.
const FOLDERS: [&str; 7] = ["usr", "proc", "dev", "sys", "tmp", "etc", "workspace"];

/// A root filesystem and its bind mounts.
#[derive(Debug, Clone)]
pub(super) struct Rootfs {
    pub(super) path: PathBuf,
    /// Host folders that appear at the same path, read-only.
    pub(super) shown: Vec<PathBuf>,
}

impl Rootfs {
    /// Creates it in the folder of the benchmark, or returns the existing one.
    pub(super) fn make(scene: &Scene) -> Result<Self, String> {
        let path = scene.folder.path().join("rootfs");
        let shown: Vec<PathBuf> =
            std::iter::once(PathBuf::from("/usr")).chain(installations(scene)).collect();
        if !path.exists() {
            fill(&path, &shown).map_err(|error| format!("making a root for it: {error}"))?;
        }
        Ok(Self { path, shown })
    }
}

fn fill(root: &Path, shown: &[PathBuf]) -> io::Result<()> {
    let make = |folder: &Path| fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
    for name in FOLDERS {
        make(&root.join(name))?;
    }
    for folder in shown {
        make(&root.join(folder.strip_prefix("/").unwrap_or(folder)))?;
    }
    for (name, target) in root_links() {
        symlink(target, root.join(name))?;
    }
    Ok(())
}
