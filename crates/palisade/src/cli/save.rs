//! Saves the files of a program: no existing file is changed, and no symbolic link is followed.
//!
//! File names come from the sandbox. They were checked to be plain. The target directory may still hold links
//! or files of the caller that a hostile program would like to reach.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use engine::{Artifact, Display};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// Writes all files beneath `directory`, or none if one of them already exists.
pub(super) fn files<'a>(
    directory: &Path,
    artifacts: impl Iterator<Item = &'a Artifact> + Clone,
) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let root = rustix::fs::openat(CWD, directory, FOLDER, Mode::empty())?;
    if let Some(artifact) = artifacts.clone().find(|artifact| is_there(&root, &artifact.path)) {
        let message = format!("{} exists already; nothing was saved", artifact.path);
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    artifacts.into_iter().try_for_each(|artifact| file(&root, artifact))
}

/// The displays of a program as files such as `display-1.png`. Their names differ from those of the program's
/// own files.
pub(super) fn displays(displays: &[Display], beside: &[Artifact]) -> Vec<Artifact> {
    let is_taken = |path: &String| beside.iter().any(|artifact| artifact.path == *path);
    let file = |(index, display): (usize, &Display)| {
        let ending = display.kind.ending();
        let names = (0..).map(|extra| format!("display-{}{}.{ending}", index + 1, "_".repeat(extra)));
        let path = names.into_iter().find(|path| !is_taken(path))?;
        Some(Artifact { path, content: display.data.clone() })
    };
    displays.iter().enumerate().filter_map(file).collect()
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn is_there(root: &OwnedFd, path: &str) -> bool {
    rustix::fs::statat(root, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

fn file(root: &OwnedFd, artifact: &Artifact) -> io::Result<()> {
    let path = Path::new(&artifact.path);
    let mut walked = PathBuf::new();
    for part in path.parent().into_iter().flat_map(Path::components) {
        let parent = beneath(root, &walked, FOLDER, Mode::empty())?;
        match rustix::fs::mkdirat(&parent, Path::new(&part), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        walked.push(part);
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = beneath(root, path, flags, Mode::from_raw_mode(0o644))?;
    std::fs::File::from(file).write_all(&artifact.content)
}

fn beneath(root: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(rustix::fs::openat2(root, path, flags, mode, resolve)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(path: &str) -> Artifact {
        Artifact { path: path.to_owned(), content: b"new".to_vec() }
    }

    #[test]
    fn what_exists_is_left_alone_and_links_lead_nowhere() {
        let folder = std::env::temp_dir().join(format!("palisade-save-{}", std::process::id()));
        let outside = folder.join("outside");
        let inside = folder.join("inside");
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::create_dir_all(inside.join(".git")).unwrap();
        std::fs::write(inside.join(".git/config"), "old").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let exists = files(&inside, [artifact("fresh"), artifact(".git/config")].iter());
        let through = files(&inside, [artifact("link/sub/file")].iter());
        let fine = files(&inside, [artifact("a/b/c")].iter());
        let config = std::fs::read_to_string(inside.join(".git/config")).unwrap();
        let (fresh, strayed) = (inside.join("fresh").exists(), outside.join("sub").exists());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(exists.is_err() && through.is_err() && fine.is_ok());
        assert_eq!((config.as_str(), fresh, strayed), ("old", false, false));
    }
}
