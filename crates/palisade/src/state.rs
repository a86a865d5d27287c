//! Where state is kept: one private directory.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directory asked for, or the first usable of the customary ones.
pub(crate) fn directory(asked: Option<&Path>) -> io::Result<PathBuf> {
    if let Some(path) = asked {
        return usable(path).map(|()| path.to_owned()).map_err(|error| {
            io::Error::new(error.kind(), format!("the state directory {} cannot be used: {error}", path.display()))
        });
    }
    let candidates = customary();
    let found = candidates.iter().find(|path| usable(path).is_ok());
    found.cloned().ok_or_else(|| io::Error::other("no state directory can be used; give one with --state-dir"))
}

fn customary() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let mut list = Vec::new();
    if let Some(state) = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()) {
        list.push(state.join("palisade"));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).or_else(|| home_of(uid));
    if let Some(home) = home.filter(|path| path.is_absolute() && path.is_dir()) {
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

/// Exists or can be made, is ours and nobody else may write there.
fn usable(path: &Path) -> io::Result<()> {
    const OTHERS_MAY_WRITE: u32 = 0o022;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let found = fs::symlink_metadata(path)?;
    let is_ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if !is_ours || found.mode() & OTHERS_MAY_WRITE != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it must be a directory that only this user may write"));
    }
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?;
    Ok(())
}
