//! The path of a file in a workspace, parsed once: plain names only, nothing that leads upwards or elsewhere.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::FileError;

/// The longest path.
pub const FILE_PATH_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 255;
const NAMES_MAX: usize = 40;
/// Where programs see the workspace. A path may begin with it.
const MOUNT: &str = "/workspace";
/// A link to it, for programs that were written for other sandboxes.
const LINK: &str = "/mnt/data";

/// A path relative to the workspace, such as `data/in.csv`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilePath(Arc<str>);

impl TryFrom<String> for FilePath {
    type Error = FileError;

    fn try_from(text: String) -> Result<Self, FileError> {
        Self::parse(&text)
    }
}

impl From<FilePath> for String {
    fn from(path: FilePath) -> Self {
        path.as_str().to_owned()
    }
}

impl FilePath {
    /// Parses a path of a caller, relative or beginning with `/workspace/` or its link. Drops empty names and `.`; refuses
    /// `..` even where it would stay inside.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        Self::of_directory(text)?
            .ok_or_else(|| FileError::BadPath("it names the workspace itself, not a file in it".into()))
    }

    /// Parses the path of a directory. `None` is the workspace itself.
    pub fn of_directory(text: &str) -> Result<Option<Self>, FileError> {
        if text.len() > FILE_PATH_BYTES_MAX {
            return Err(FileError::BadPath("it is longer than 1024 bytes".into()));
        }
        if text.contains('\0') {
            return Err(FileError::BadPath("it contains a NUL character".into()));
        }
        let mounted = text.strip_prefix(MOUNT).or_else(|| text.strip_prefix(LINK));
        let relative = match mounted {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
            _ if text.starts_with('/') => {
                return Err(FileError::BadPath("it leads out of the workspace".into()));
            }
            _ => text,
        };
        let names: Vec<&str> = relative.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
        if names.contains(&"..") {
            return Err(FileError::BadPath("`..` is not allowed in it".into()));
        }
        if names.len() > NAMES_MAX || names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(FileError::BadPath("it has too many or too long names".into()));
        }
        Ok((!names.is_empty()).then(|| Self(names.join("/").into())))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last name.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// The names of the directories above it, from the workspace downwards.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        let folders = self.0.rsplit_once('/').map(|(folders, _)| folders);
        folders.into_iter().flat_map(|folders| folders.split('/'))
    }

    /// The path as a relative path of a file system.
    pub fn as_path(&self) -> &Path {
        Path::new(&*self.0)
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_brought_into_one_form() {
        for (given, meant) in [
            ("a", "a"),
            ("./a//b.txt", "a/b.txt"),
            ("/workspace/a", "a"),
            ("/workspace//a/", "a"),
            ("/mnt/data/a.csv", "a.csv"),
            ("ünï/ñ ...", "ünï/ñ ..."),
            ("workspace/a", "workspace/a"),
        ] {
            assert_eq!(FilePath::parse(given).unwrap().as_str(), meant, "{given}");
        }
        let path = FilePath::parse("a/b/c.txt").unwrap();
        assert_eq!((path.name(), path.folders().collect::<Vec<_>>()), ("c.txt", vec!["a", "b"]));
        assert_eq!(FilePath::parse("c").unwrap().folders().count(), 0);
    }

    #[test]
    fn what_leads_elsewhere_is_no_path() {
        for bad in [
            "",
            ".",
            "/",
            "/workspace",
            "/workspace/",
            "/etc/passwd",
            "/workspaces/a",
            "/mnt/data",
            "/mnt/database/a",
            "/mnt/data/../a",
            "..",
            "../a",
            "a/../b",
            "/workspace/../etc/passwd",
            "a\0b",
            &"x".repeat(256),
            &"a/".repeat(41),
            &"é/".repeat(400),
        ] {
            assert!(FilePath::parse(bad).is_err(), "{bad}");
        }
        for root in ["", ".", "/workspace", "/workspace/", "./"] {
            assert_eq!(FilePath::of_directory(root).unwrap(), None, "{root}");
        }
    }

    proptest! {
        #![proptest_config(harness::properties())]

        #[test]
        fn plain_names_are_a_path_however_they_are_joined(
            names in vec("[^/\\x00]{1,20}", 1..8),
            joint in prop_oneof![Just("/"), Just("//"), Just("/./")],
            begin in prop_oneof![Just(""), Just("./"), Just("/workspace/")],
        ) {
            prop_assume!(names.iter().all(|name| name != "." && name != ".."));
            let path = FilePath::parse(&format!("{begin}{}", names.join(joint)));
            prop_assert_eq!(path.ok().map(String::from), Some(names.join("/")));
        }
    }
}
