//! The files that the engine itself places in the workspace of a persistent sandbox, and their removal.
//!
//! An interpreter that is started for one run reads its program from a file, under the name that it has in a
//! fresh sandbox (`main.rb`). A name that the workspace has already is not used. Live interpreters get their
//! program by message; the helper files of their runs have the prefix [`OWN_FILES`] and are removed inside
//! before the program begins. Here goes what is left of them.

use sandbox::workspace::{FilePath, Workspace};

use super::live_run::STDIN_FILE;
use crate::run::OWN_FILES;
use crate::runtimes::Runtime;

/// How many names are tried for the program. If the workspace has all of them, its name gets the prefix
/// [`OWN_FILES`].
const NAMES_MAX: u32 = 9;

/// The engine's own files of one run.
pub(super) enum OwnFiles {
    /// Helper files of a live interpreter.
    Helpers([String; 2]),
    /// The program itself.
    Program { name: String, code: String },
    /// A compiled program has none.
    None,
}

impl OwnFiles {
    pub(super) async fn of(runtime: &Runtime, code: &str, files: &dyn Workspace) -> Self {
        if runtime.is_live() {
            return Self::Helpers([runtime.source(), STDIN_FILE].map(|name| format!("{OWN_FILES}{name}")));
        }
        if runtime.is_compiled() {
            return Self::None;
        }
        Self::Program { name: free_name(runtime.source(), files).await, code: code.to_owned() }
    }

    /// The file name of the program, if it is a file.
    pub(super) fn program(&self) -> Option<String> {
        match self {
            Self::Program { name, .. } => Some(name.clone()),
            Self::Helpers(_) | Self::None => None,
        }
    }

    /// Removes them. A program that wrote a file of its own in place of its source keeps that file.
    pub(super) async fn remove(self, files: &dyn Workspace) {
        match self {
            Self::Helpers(names) => files.tidy(&names).await,
            Self::Program { name, code } => {
                if is_unchanged(&name, code.as_bytes(), files).await {
                    files.tidy(&[name]).await;
                }
            }
            Self::None => {}
        }
    }
}

/// `main.rb`, or `main-2.rb` and so on if the workspace has such a file already.
async fn free_name(usual: &str, files: &dyn Workspace) -> String {
    let (stem, ending) = usual.rsplit_once('.').unwrap_or((usual, ""));
    let numbered = (2..=NAMES_MAX).map(|number| format!("{stem}-{number}.{ending}"));
    for name in std::iter::once(usual.to_owned()).chain(numbered) {
        if !files.holds_any(std::slice::from_ref(&name)).await {
            return name;
        }
    }
    format!("{OWN_FILES}{usual}")
}

async fn is_unchanged(name: &str, code: &[u8], files: &dyn Workspace) -> bool {
    // A name with the prefix is the engine's own in any case.
    if name.starts_with(OWN_FILES) {
        return true;
    }
    let Ok(path) = FilePath::parse(name) else { return false };
    // One byte more, to notice a file that has grown.
    let read = files.read(&path, 0, code.len() + 1).await;
    read.is_ok_and(|part| part.size_bytes == code.len() as u64 && part.bytes == code)
}
