//! Which files name the next one: a link its target, a script its interpreter, a program the libraries beside it.
//!
//! A server that writes in a directory can put such a file there, and would so choose what a wall shows at the next start.
//! So what a file beneath a directory of `write` names must be a part of the system, or lie beneath the same directory.

use std::path::{Path, PathBuf};

use super::folders::{self, Around};
use super::links;

/// Directories that every sandbox shows.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32"];

pub(super) fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

/// What commands are checked against.
pub(super) struct Places<'a> {
    state_dir: &'a Path,
    /// The directories that any server may write, without links.
    writable: Vec<PathBuf>,
}

/// The files that named each other, from the one that the operator named.
#[derive(Default)]
pub(super) struct Named {
    /// Those that a server could have made, and the directory in which it could.
    by_servers: Vec<(PathBuf, PathBuf)>,
}

impl<'a> Places<'a> {
    pub(super) fn new(around: &Around<'a>) -> Self {
        Self { state_dir: around.state_dir, writable: around.real_writable() }
    }

    /// The smallest directory of `write` around a path without links.
    pub(super) fn writable_around(&self, real: &Path) -> Option<&Path> {
        let around = self.writable.iter().filter(|folder| real.starts_with(folder));
        around.max_by_key(|folder| folder.components().count()).map(PathBuf::as_path)
    }

    /// Checks what is about to be shown, as `read` and `write` are.
    pub(super) fn check(&self, path: &Path) -> Result<(), String> {
        let real = std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
        folders::check(&real, self.state_dir).map_err(|(reason, _)| reason)
    }
}

impl Named {
    /// The path without links, if every file on the way may name the next one.
    pub(super) fn follow(&mut self, path: &Path, places: &Places<'_>) -> Result<PathBuf, String> {
        let unusable = |error: std::io::Error| format!("{}: {error}", path.display());
        let real = links::followed(path, unusable, |link| {
            self.allow(link)?;
            self.names_the_next(link, places);
            Ok(())
        })?;
        self.allow(&real)?;
        Ok(real)
    }

    /// Notes that a file, by its path without links, names what comes next.
    pub(super) fn names_the_next(&mut self, real: &Path, places: &Places<'_>) {
        if let Some(folder) = places.writable_around(real) {
            self.by_servers.push((real.to_owned(), folder.to_owned()));
        }
    }

    /// Whether the files so far may have named this path.
    fn allow(&self, real: &Path) -> Result<(), String> {
        let is_elsewhere = |(_, folder): &&(PathBuf, PathBuf)| !is_system(real) && !real.starts_with(folder);
        match self.by_servers.iter().find(is_elsewhere) {
            None => Ok(()),
            Some((file, folder)) => Err(format!(
                "{} leads to {}, which is not beneath {}, and a server that writes there may have made it so",
                file.display(),
                real.display(),
                folder.display()
            )),
        }
    }
}
