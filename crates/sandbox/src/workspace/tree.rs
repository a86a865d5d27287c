//! Reading a whole directory of a workspace out, in one pass: the product of a build.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The bounds of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeBounds {
    /// Files, directories and links together.
    pub entries_max: u64,
    /// The content of all files together.
    pub bytes_max: u64,
    /// How long the pass may take.
    pub patience: Duration,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKind<'a> {
    /// A directory. Its entries follow.
    Directory,
    /// A regular file. Its content follows.
    File {
        /// The permission bits, including set-user-id and the like.
        mode: u32,
    },
    /// A symbolic link and its target, which was not followed.
    Link {
        /// As the program wrote it.
        target: &'a str,
    },
    /// A pipe, a socket, a device.
    Other,
}

/// An entry of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeEntry<'a> {
    /// The path from the start of the pass: plain names, separated by `/`.
    pub path: &'a str,
    /// What it is.
    pub kind: TreeKind<'a>,
}

/// Takes the entries of a tree, in any order except that a directory precedes what is in it. An error ends the pass.
pub trait TreeSink: Send {
    /// An entry.
    fn entry(&mut self, entry: &TreeEntry<'_>) -> Result<(), String>;

    /// The next bytes of the file whose entry was the last one.
    fn bytes(&mut self, part: &[u8]) -> Result<(), String>;

    /// The end of the pass. Every entry was given.
    fn finish(&mut self) -> Result<(), String>;
}
