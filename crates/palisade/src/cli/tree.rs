//! Finds the files beneath a local folder, for `run --input` and `sandbox cp`.
//!
//! Symbolic links and special files are left out, never followed: a link in a foreign repository could name a
//! secret of the user. The number of files, their size and the depth are bounded.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

const DEPTH_MAX: usize = 64;
/// Folders that tools create and programs do not need.
const JUNK: [&str; 2] = ["__pycache__", "node_modules"];

/// Whether files of tools are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Names that begin with a dot, `__pycache__` and `node_modules` are left out.
    HiddenAndJunk,
    /// Everything is found.
    Nothing,
}

/// The most that is taken from a folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeBounds {
    pub(crate) files_max: usize,
    pub(crate) bytes_max: u64,
}

/// The files beneath a folder, in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<LocalFile>,
    /// How many symbolic links and special files were left out.
    pub(crate) left_out: usize,
}

/// One file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LocalFile {
    pub(crate) path: PathBuf,
    /// The path relative to the folder, with `/` between its parts.
    pub(crate) name: String,
}

/// Why the files of a folder cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} has a name that is not UTF-8", path.display())]
    BadName { path: PathBuf },
    #[error("{} holds more than {most} files", path.display())]
    TooMany { path: PathBuf, most: usize },
    #[error("the files in {} are larger than {} MB together", path.display(), most >> 20)]
    TooLarge { path: PathBuf, most: u64 },
    #[error("{} is nested more than {DEPTH_MAX} folders deep", path.display())]
    TooDeep { path: PathBuf },
}

/// Finds all files beneath `root`.
pub(crate) fn find(root: &Path, leave: Leave, bounds: TreeBounds) -> Result<Tree, TreeError> {
    let mut tree = Tree::default();
    let mut bytes = 0_u64;
    let mut open = vec![(root.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = open.pop() {
        if depth > DEPTH_MAX {
            return Err(TreeError::TooDeep { path: root.to_owned() });
        }
        for entry in fs::read_dir(&folder).map_err(unreadable(&folder))? {
            let entry = entry.map_err(unreadable(&folder))?;
            let path = entry.path();
            let name = entry.file_name().into_string();
            let name = name.map_err(|_| TreeError::BadName { path: path.clone() })?;
            if leave == Leave::HiddenAndJunk && (name.starts_with('.') || JUNK.contains(&name.as_str())) {
                continue;
            }
            // Neither of the two follows a link.
            let kind = entry.file_type().map_err(unreadable(&path))?;
            let name = format!("{prefix}{name}");
            if kind.is_dir() {
                open.push((path, format!("{name}/"), depth + 1));
            } else if kind.is_file() {
                bytes += entry.metadata().map_err(unreadable(&path))?.len();
                tree.files.push(LocalFile { path, name });
            } else {
                tree.left_out += 1;
            }
            if tree.files.len() > bounds.files_max {
                return Err(TreeError::TooMany { path: root.to_owned(), most: bounds.files_max });
            }
            if bytes > bounds.bytes_max {
                return Err(TreeError::TooLarge { path: root.to_owned(), most: bounds.bytes_max });
            }
        }
    }
    tree.files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(tree)
}

impl LocalFile {
    /// Opens the file. Fails if a link or a pipe took its place meanwhile.
    pub(crate) fn open(&self) -> io::Result<File> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let file = File::options().read(true).custom_flags(flags as i32).open(&self.path)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it is no regular file any more")),
        }
    }

    /// The content of the file, up to that size.
    pub(crate) fn read(&self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.open()?.take(bytes_max + 1).read_to_end(&mut content)?;
        Ok(content)
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> TreeError {
    move |source| TreeError::Unreadable { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness::TestFolder;

    const BOUNDS: TreeBounds = TreeBounds { files_max: 4, bytes_max: 100 };

    fn names(tree: &Tree) -> Vec<&str> {
        tree.files.iter().map(|file| file.name.as_str()).collect()
    }

    #[test]
    fn files_are_found_and_links_are_not_followed() {
        let (folder, outside) = (TestFolder::new(), TestFolder::new());
        outside.file("secret", "s");
        folder.file("b.py", "1");
        folder.file("a/c.py", "2");
        folder.file(".git/config", "3");
        folder.file("a/__pycache__/c.pyc", "4");
        std::os::unix::fs::symlink(outside.path(), folder.path().join("folder")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), folder.path().join("file")).unwrap();
        let tree = find(folder.path(), Leave::HiddenAndJunk, BOUNDS).unwrap();
        assert_eq!((names(&tree), tree.left_out), (vec!["a/c.py", "b.py"], 2));
        let all = find(folder.path(), Leave::Nothing, BOUNDS).unwrap();
        assert_eq!(names(&all), [".git/config", "a/__pycache__/c.pyc", "a/c.py", "b.py"]);
        assert_eq!(tree.files[0].read(10).unwrap(), b"2");
        let link = LocalFile { path: folder.path().join("file"), name: String::new() };
        assert!(link.open().is_err());
    }

    #[test]
    fn too_much_is_refused() {
        let folder = TestFolder::new();
        folder.file("large", "x".repeat(101));
        assert!(matches!(find(folder.path(), Leave::Nothing, BOUNDS), Err(TreeError::TooLarge { .. })));
        fs::remove_file(folder.path().join("large")).unwrap();
        for number in 0..5 {
            folder.file(&format!("{number}"), "");
        }
        assert!(matches!(find(folder.path(), Leave::Nothing, BOUNDS), Err(TreeError::TooMany { .. })));
        let missing = folder.path().join("missing");
        assert!(matches!(find(&missing, Leave::Nothing, BOUNDS), Err(TreeError::Unreadable { .. })));
    }
}
