//! The calls of the client and the answers of the relay.
//!
//! A call has an id that the client chose. A call that makes something (a sandbox, a workspace, an upload)
//! gives its id to the object, and `Forget` ends both. The answer's type is written beside each call. No
//! message has a path of the client's machine, and the client never learns a path of the relay's.

mod wall;

use std::path::PathBuf;

use sandbox::workspace::{FilePath, Pace, Quota, Reach, WorkspaceRef};
use sandbox::{Limits, ToolchainQuery};
use serde::{Deserialize, Serialize};

use crate::frame::Id;

pub(crate) use wall::{Counted, EndingMessage, Held, Json, Made, NoLanguage, SpecMessage, WallError};

/// What the client asks for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    /// `Result<Json<Enforced>, WallError>`
    Probe,
    /// Makes a sandbox: `Result<Made, WallError>`. Its stream has the same id.
    Create(Box<SpecMessage>),
    /// About a sandbox.
    Sandbox(Id, SandboxCall),
    /// `Result<Json<Toolchain>, NoLanguage>`
    Find(ToolchainQuery),
    /// About a toolchain: `Result<String, NoLanguage>`
    Identity(Json),
    /// About read-only directories of the client.
    Layer(LayerCall),
    /// About the files of persistent sandboxes.
    Store(StoreCall),
    /// About an open workspace.
    Workspace(Id, WorkspaceCall),
    /// A part of an open file: `Result<FilePart, FileError>`
    FileRead {
        /// The open file.
        file: Id,
        /// The first byte.
        offset: u64,
        /// How many bytes.
        limit: u64,
    },
    /// A piece of an upload: `Result<(), FileError>`
    UploadPiece {
        /// The upload.
        upload: Id,
        /// The bytes.
        #[serde(with = "bytes")]
        piece: Vec<u8>,
    },
    /// The end of an upload: `Result<Written, FileError>`
    UploadFinish {
        /// The upload.
        upload: Id,
    },
    /// What changed since a snapshot, which ends it: `Result<Changes, FileError>`
    Changes {
        /// The snapshot.
        snapshot: Id,
        /// Where the walk executes.
        pace: Pace,
    },
}

/// About one sandbox. Its calls are executed in order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SandboxCall {
    /// `()`. An earlier `Watch` gets no answer.
    Measure(Limits, Option<Held>),
    /// `Counted`
    Usage,
    /// `Option<EndingMessage>`
    Look,
    /// `EndingMessage`, whenever that is.
    Watch,
    /// `()`
    Settle,
    /// `Result<(), WallError>`
    TakeLimits(Limits),
    /// Digest and place of a layer that the relay has: `Result<(), WallError>`
    Attach(String, PathBuf),
    /// `Result<Counted, WallError>`
    Quiesce,
    /// `Result<Counted, WallError>`
    Destroy,
}

/// How the content of a layer reaches the relay: once for each digest.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LayerCall {
    /// `bool`: whether the relay has it.
    Has(String),
    /// Makes a layer that is arriving: `Result<(), WallError>`
    Begin(String),
    /// `Result<(), WallError>`
    Entry(Id, LayerEntry),
    /// Bytes of the last file: `Result<(), WallError>`
    Piece(Id, #[serde(with = "bytes")] Vec<u8>),
    /// `Result<(), WallError>`
    Finish(Id),
}

/// A directory, file or link of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerEntry {
    /// Relative to the layer.
    pub(crate) path: PathBuf,
    pub(crate) kind: LayerKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LayerKind {
    Directory { mode: u32 },
    File { mode: u32 },
    Link { target: PathBuf },
}

/// About the workspaces of the relay.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StoreCall {
    /// `Result<(), FileError>`
    Create(WorkspaceRef),
    /// Makes an open workspace: `Result<(), FileError>`
    Open(WorkspaceRef, Quota),
    /// Makes a hold: `Result<(), NotHeld>`
    Hold(WorkspaceRef),
    /// `Result<(), FileError>`
    Remove(WorkspaceRef),
    /// `bool`
    IsEmpty,
    /// `()`
    RemoveStrangers(Vec<String>),
}

/// About one workspace. The error of each is `FileError`, except for the last three.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WorkspaceCall {
    /// Makes an open file: `FileAbout`
    File(FilePath),
    /// `FilePart`
    Read(FilePath, u64, u64),
    /// `Written`
    Write(FilePath, #[serde(with = "bytes")] Vec<u8>),
    /// `Written`
    Append(FilePath, #[serde(with = "bytes")] Vec<u8>),
    /// Makes an upload: `()`
    Upload(FilePath, u64, Option<u64>),
    /// `Listing`
    List(Option<FilePath>, Reach),
    /// `Used`
    Usage,
    /// `u64`
    RemoveAbandonedDrafts,
    /// Makes a snapshot: `Used`
    Snapshot(Pace),
    /// `bool`
    HoldsAny(Vec<String>),
    /// `()`
    Tidy(Vec<String>),
    /// `()`
    OpenUp,
}

/// What is known of an open file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FileAbout {
    pub(crate) size_bytes: u64,
    pub(crate) modified_ms: u64,
    pub(crate) media_type: String,
}

/// Contents as one run of bytes; serde's default is a sequence of numbers.
mod bytes {
    use std::fmt;

    use serde::de::{Deserializer, Error, Visitor};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(content: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(content)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_byte_buf(Content)
    }

    struct Content;

    impl Visitor<'_> for Content {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, content: &[u8]) -> Result<Vec<u8>, E> {
            Ok(content.to_vec())
        }

        fn visit_byte_buf<E: Error>(self, content: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(content)
        }
    }
}
