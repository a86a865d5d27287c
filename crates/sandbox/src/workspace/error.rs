//! Errors of file operations. Plain data, so that a wall on another machine can send them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Why a file was not read or written. Messages say nothing about the machine that has the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum FileError {
    /// The path is not valid in a workspace, for this reason.
    #[error("this is no path of the workspace: {0}")]
    BadPath(Cow<'static, str>),
    /// The file or directory does not exist.
    #[error("there is no such file or directory in the workspace")]
    NotFound,
    /// A directory, where a file is expected.
    #[error("this is a directory, not a file")]
    IsDirectory,
    /// A pipe, a socket, a device.
    #[error("this is neither a file nor a directory")]
    NotRegular,
    /// The content is larger than allowed in one write.
    #[error("the content is too large: {bytes_max} bytes are the most")]
    TooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// The quota of the workspace is exhausted.
    #[error("the workspace is full")]
    DiskFull,
    /// The owner's quota for all workspaces together is exhausted.
    #[error("the quota disk_mb is used up: {used_mb} of {limit_mb} MB")]
    QuotaExceeded {
        /// The quota.
        limit_mb: u64,
        /// What all workspaces of the owner hold.
        used_mb: u64,
    },
    /// The disk that has the files is full; the caller's files need not be the cause.
    #[error("the disk of the server is full")]
    StateDiskFull,
    /// The program removed the permissions.
    #[error("the permissions of this file or of a directory above it do not allow that")]
    NoPermission,
    /// The program changed names during the operation, or the host has too few file descriptors.
    #[error("the workspace changed during the operation")]
    Disturbed,
    /// The wall that has the files cannot be reached now, but may be later.
    #[error("the workspace cannot be reached at present")]
    Unavailable {
        /// When to try again.
        retry_after_ms: u64,
    },
    /// An internal failure. The text is the operating system's reason, without any path.
    #[error("the workspace could not be used")]
    Failed(String),
}

impl FileError {
    /// A stable identifier of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadPath(_) => "bad_path",
            Self::NotFound => "not_found",
            Self::IsDirectory => "is_directory",
            Self::NotRegular => "not_a_file",
            Self::TooLarge { .. } => "too_large",
            Self::DiskFull => "disk_full",
            Self::QuotaExceeded { .. } => "quota_exceeded",
            Self::StateDiskFull => "state_disk_full",
            Self::NoPermission => "no_permission",
            Self::Disturbed => "disturbed",
            Self::Unavailable { .. } => "files_unavailable",
            Self::Failed(_) => "files_failed",
        }
    }
}
