//! Finds an interpreter on the PATH, and notices when it changes.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The first of these commands that is an executable file in an absolute directory of the PATH.
pub(super) fn on_path(commands: &[String], path: &OsStr) -> Option<PathBuf> {
    let directories: Vec<PathBuf> =
        env::split_paths(path).filter(|directory| directory.is_absolute()).collect();
    let candidates =
        commands.iter().flat_map(|command| directories.iter().map(move |directory| directory.join(command)));
    candidates.into_iter().find(|file| is_program(file))
}

/// How many directories of the PATH this user may not read. Programs in them are not found.
pub(super) fn closed_directories(path: &OsStr) -> usize {
    let is_closed = |directory: &PathBuf| {
        let probed = fs::metadata(directory.join("."));
        probed.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    env::split_paths(path).filter(|directory| directory.is_absolute()).filter(is_closed).count()
}

/// Whether the file can be started as an interpreter.
pub fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A number that changes when the interpreter changes. A script is a version manager's shim: its target depends
/// on the manager's version file beside its folder.
pub(super) fn fingerprint(command: &Path, extra: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    command.hash(&mut hasher);
    identity(command).hash(&mut hasher);
    if is_script(command) {
        let manager = command.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        fs::read(manager.join("version")).unwrap_or_default().hash(&mut hasher);
        for variable in ["PYENV_VERSION", "NODENV_VERSION", "RBENV_VERSION"] {
            env::var_os(variable).hash(&mut hasher);
        }
    }
    extra.hash(&mut hasher);
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    hasher.finish()
}

/// The metadata that changes when a file is replaced.
pub(super) fn identity(file: &Path) -> Option<(u64, u64, u64, i64, i64)> {
    let found = fs::metadata(file).ok()?;
    Some((found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}

fn is_script(file: &Path) -> bool {
    let mut start = [0_u8; 2];
    fs::File::open(file).and_then(|mut open| open.read_exact(&mut start)).is_ok() && &start == b"#!"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_directories_of_the_path_are_ignored() {
        let shell = on_path(&["sh".to_owned()], OsStr::new(".:bin:/bin:/usr/bin")).unwrap();
        assert!(shell.is_absolute());
        assert_eq!(on_path(&["sh".to_owned()], OsStr::new(".:bin")), None);
    }

    #[test]
    fn a_changed_file_has_another_fingerprint() {
        let file = env::temp_dir().join(format!("palisade-fingerprint-{}", std::process::id()));
        fs::write(&file, "one").unwrap();
        let first = fingerprint(&file, &[]);
        assert_eq!(fingerprint(&file, &[]), first);
        fs::write(&file, "other").unwrap();
        let second = fingerprint(&file, &[]);
        fs::remove_file(&file).unwrap();
        assert_ne!(first, second);
    }
}
