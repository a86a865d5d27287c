//! Saves the files of a program: no existing file is changed unless the user asks for it, and no symbolic link is
//! followed.
//!
//! File names come from the sandbox. They were checked to be plain. The target directory may still hold links
//! or files of the caller that a hostile program would like to reach.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use engine::{Artifact, Display};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// What happens to a file that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    /// Nothing is saved.
    Refused,
    /// It is replaced; a link itself is replaced, not its target.
    Replaced,
}

/// Writes all files beneath `directory`.
pub(super) fn files<'a>(
    directory: &Path,
    artifacts: impl Iterator<Item = &'a Artifact> + Clone,
    existing: Existing,
) -> io::Result<()> {
    let root = open_root(directory)?;
    let mut already = artifacts.clone().filter(|artifact| is_there(&root, &artifact.path));
    if let Some(artifact) = already.next().filter(|_| existing == Existing::Refused) {
        let message = format!("{} exists already; nothing was saved", artifact.path);
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    artifacts.into_iter().try_for_each(|artifact| file(&root, artifact, existing))
}

/// The displays of a program as files such as `display-1.png`, and the data behind them as `display-1.data.json`.
/// Their names differ from those of the program's own files.
pub(super) fn displays(displays: &[Display], beside: &[Artifact]) -> Vec<Artifact> {
    let is_taken = |path: &String| beside.iter().any(|artifact| artifact.path == *path);
    let file = |number: usize, ending: &str, content: &[u8]| {
        let names = (0..).map(|extra| format!("display-{number}{}.{ending}", "_".repeat(extra)));
        let path = names.into_iter().find(|path| !is_taken(path))?;
        Some(Artifact { path, content: content.to_vec() })
    };
    let files = |(index, display): (usize, &Display)| {
        let shown = file(index + 1, display.kind.ending(), &display.data);
        let json = display.json.as_ref().and_then(|json| file(index + 1, "data.json", json.as_bytes()));
        [shown, json].into_iter().flatten()
    };
    displays.iter().enumerate().flat_map(files).collect()
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn is_there(root: &OwnedFd, path: &str) -> bool {
    rustix::fs::statat(root, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

fn file(root: &OwnedFd, artifact: &Artifact, existing: Existing) -> io::Result<()> {
    let path = Path::new(&artifact.path);
    make_parent(root, path)?;
    if existing == Existing::Replaced {
        remove(root, path)?;
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = beneath(root, path, flags, Mode::from_raw_mode(0o644))?;
    std::fs::File::from(file).write_all(&artifact.content)
}

/// Creates the folders above a file and opens the last one. No link is followed.
pub(super) fn make_parent(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let mut walked = PathBuf::new();
    for part in path.parent().into_iter().flat_map(Path::components) {
        let parent = beneath(root, &walked, FOLDER, Mode::empty())?;
        match rustix::fs::mkdirat(&parent, Path::new(&part), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        walked.push(part);
    }
    beneath(root, &walked, FOLDER, Mode::empty())
}

/// Opens a folder of the user, beneath which files are saved.
pub(super) fn open_root(directory: &Path) -> io::Result<OwnedFd> {
    std::fs::create_dir_all(directory)?;
    Ok(rustix::fs::openat(CWD, directory, FOLDER, Mode::empty())?)
}

/// Removes a file, so that the new one is not written into a file that has another name elsewhere.
fn remove(root: &OwnedFd, path: &Path) -> io::Result<()> {
    let parent = beneath(root, path.parent().unwrap_or(Path::new("")), FOLDER, Mode::empty())?;
    let name = path.file_name().unwrap_or_default();
    match rustix::fs::unlinkat(&parent, name, rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
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
        let exists = files(&inside, [artifact("fresh"), artifact(".git/config")].iter(), Existing::Refused);
        let through = files(&inside, [artifact("link/sub/file")].iter(), Existing::Replaced);
        let fine = files(&inside, [artifact("a/b/c")].iter(), Existing::Refused);
        let config = std::fs::read_to_string(inside.join(".git/config")).unwrap();
        let (fresh, strayed) = (inside.join("fresh").exists(), outside.join("sub").exists());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(exists.is_err() && through.is_err() && fine.is_ok());
        assert_eq!((config.as_str(), fresh, strayed), ("old", false, false));
    }

    #[test]
    fn files_are_replaced_on_request_and_links_are_not_followed() {
        let folder = harness::TestFolder::new();
        let outside = folder.file("outside", "old");
        folder.file("inside/a/file", "old");
        let inside = folder.path().join("inside");
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let made = [artifact("a/file"), artifact("link")];
        assert_eq!(
            files(&inside, made.iter(), Existing::Refused).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        files(&inside, made.iter(), Existing::Replaced).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(
            (read(&inside.join("a/file")).as_str(), read(&inside.join("link")).as_str()),
            ("new", "new")
        );
        assert_eq!(read(&outside), "old");
    }
}
