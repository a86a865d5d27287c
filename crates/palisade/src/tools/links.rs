//! Walks a path link by link, so that each link is judged before it is followed.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The most links of one path, as the kernel has it (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// The path without links. `judge` gets each link before it is followed, and `unusable` words an error of the file system.
pub(super) fn followed<E>(
    path: &Path,
    unusable: impl Fn(io::Error) -> E,
    mut judge: impl FnMut(&Path) -> Result<(), E>,
) -> Result<PathBuf, E> {
    let parts = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut real, mut rest, mut links) = (PathBuf::from("/"), parts(path), 0);
    while let Some(part) = rest.pop() {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) => {
                real.pop();
            }
            Some(Component::Normal(name)) => {
                let next = real.join(name);
                if !std::fs::symlink_metadata(&next).map_err(&unusable)?.is_symlink() {
                    real = next;
                    continue;
                }
                judge(&next)?;
                links += 1;
                if links > LINKS_MAX {
                    return Err(unusable(rustix::io::Errno::LOOP.into()));
                }
                rest.extend(parts(&std::fs::read_link(&next).map_err(&unusable)?));
            }
            // The root begins anew; `.` stays.
            Some(Component::RootDir) => real = PathBuf::from("/"),
            _ => {}
        }
    }
    Ok(real)
}
