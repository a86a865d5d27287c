//! The location of the state: one private directory.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The requested directory, or the first usable default directory.
pub(crate) fn directory(asked: Option<&Path>) -> io::Result<PathBuf> {
    if let Some(path) = asked {
        return usable(path).map(|()| path.to_owned()).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the state directory {} cannot be used: {error}", path.display()),
            )
        });
    }
    let candidates = customary();
    let found = candidates.iter().find(|path| usable(path).is_ok());
    found
        .cloned()
        .ok_or_else(|| io::Error::other("no state directory can be used; give one with --state-dir"))
}

/// The default that [`directory`] would choose; nothing is created.
pub(crate) fn expected() -> Option<PathBuf> {
    customary().into_iter().find(|path| if path.exists() { check(path).is_ok() } else { could_be_made(path) })
}

fn could_be_made(path: &Path) -> bool {
    let above = path.ancestors().find(|folder| folder.exists());
    above.is_some_and(|folder| {
        folder.is_dir() && rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
    })
}

/// The user's home, if there is one.
pub(crate) fn home() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home.or_else(|| home_of(rustix::process::geteuid().as_raw()));
    home.filter(|path| path.is_absolute() && path.is_dir())
}

/// The user's configuration directory (XDG Base Directory: a relative path counts as unset).
pub(crate) fn config_home() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    named.or_else(|| home().map(|home| home.join(".config")))
}

fn customary() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let mut list = Vec::new();
    if let Some(state) =
        std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute())
    {
        list.push(state.join("palisade"));
    }
    if let Some(home) = home() {
        list.push(home.join(".local/state/palisade"));
    }
    if uid == 0 {
        list.push(PathBuf::from("/var/lib/palisade"));
    }
    list.push(std::env::temp_dir().join(format!("palisade-{uid}")));
    list
}

fn home_of(uid: u32) -> Option<PathBuf> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid.to_string()))?;
    line.split(':').nth(5).map(PathBuf::from)
}

/// The directory exists or can be created, belongs to the user, and no other user may write to it.
fn usable(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    check(path)
}

fn check(path: &Path) -> io::Result<()> {
    const OTHERS_MAY_WRITE: u32 = 0o022;
    let found = fs::symlink_metadata(path)?;
    let is_ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if !is_ours || found.mode() & OTHERS_MAY_WRITE != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it must be a directory that only this user may write",
        ));
    }
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?;
    Ok(())
}
