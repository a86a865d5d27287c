//! The files of the repository in memory, so that every rule is a function from a tree to its violations.
//!
//! Build output, version control, installed packages and every hidden folder are excluded. Symbolic links are
//! listed and not followed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::lexer::{self, Lexed};

/// Folders that are never read, at any depth.
const SKIPPED_FOLDERS: [&str; 3] = ["target", "node_modules", "__pycache__"];

/// File types whose text a rule reads; for other files only the path is kept.
const TEXT_TYPES: [&str; 9] = ["rs", "toml", "md", "txt", "sh", "py", "js", "ts", "html"];

/// One file; `path` is relative to the root, with `/`.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
    /// Empty unless the file is Rust.
    pub(crate) lexed: Lexed,
}

/// All files, by path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, File>,
}

impl Tree {
    /// Reads the repository at `root`.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    /// A tree made of `(path, text)` pairs.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.insert((*path).to_owned(), (*text).to_owned());
        }
        tree
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values()
    }

    pub(crate) fn rust_files(&self) -> impl Iterator<Item = &File> {
        self.files().filter(|file| file.path.ends_with(".rs"))
    }

    /// Files whose path begins with `prefix`.
    pub(crate) fn under(&self, prefix: &str) -> impl Iterator<Item = &File> {
        self.files().filter(move |file| file.path.starts_with(prefix))
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// Whether `path` is a file, or a folder with a file in it.
    pub(crate) fn has_path(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.files.contains_key(path) || self.under(&folder).next().is_some()
    }

    fn insert(&mut self, path: String, text: String) {
        let lexed = if path.ends_with(".rs") { lexer::lex(&text) } else { Lexed::default() };
        self.files.insert(path.clone(), File { path, text, lexed });
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if !name.starts_with('.') && !SKIPPED_FOLDERS.contains(&name.as_str()) {
                    self.read_folder(&entry.path(), &format!("{path}/"))?;
                }
            } else if kind.is_file() && has_text(&name) {
                let bytes = fs::read(entry.path())?;
                self.insert(path, String::from_utf8_lossy(&bytes).into_owned());
            } else {
                self.insert(path, String::new());
            }
        }
        Ok(())
    }
}

fn has_text(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| TEXT_TYPES.contains(&extension))
}
