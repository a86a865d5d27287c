//! Errors of file operations, with messages that a caller can act on and that reveal nothing about the host.

use std::io;

use rustix::io::Errno;

use crate::result::RunError;

const RETRY_MS: u64 = 500;

/// Why a file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path is not valid in a workspace, for this reason.
    #[error("this is no path of the workspace: {0}")]
    BadPath(&'static str),
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
    /// The quota of the workspace or its disk is exhausted.
    #[error("the workspace is full")]
    DiskFull,
    /// The program removed the permissions.
    #[error("the permissions of this file or of a directory above it do not allow that")]
    NoPermission,
    /// The program changed names during the operation, or the host has too few file descriptors.
    #[error("the workspace changed during the operation")]
    Disturbed,
    /// An internal failure of the server.
    #[error("the workspace could not be used")]
    Failed(#[source] io::Error),
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
            Self::NoPermission => "no_permission",
            Self::Disturbed => "disturbed",
            Self::Failed(_) => "files_failed",
        }
    }

    /// The error as users see it.
    pub fn to_run_error(&self) -> RunError {
        let remedy = match self {
            Self::BadPath(_) => {
                "give a path relative to /workspace, such as data/in.csv, without links and `..`"
            }
            Self::NotFound => "look what is there with list_files",
            Self::IsDirectory => "name a file in it; list_files shows them",
            Self::NotRegular => "pipes, sockets and devices can be used by programs inside only",
            Self::TooLarge { .. } => "write it in several parts with append",
            Self::DiskFull => "remove files, or open a sandbox with a larger disk_mb",
            Self::NoPermission => "change the permissions by a run in the sandbox",
            Self::Disturbed => "try again",
            Self::Failed(_) => "ask the operator",
        };
        let mut error = RunError::new(self.code(), self.to_string()).remedy(remedy);
        if matches!(self, Self::Disturbed) {
            error.retryable = true;
            error.retry_after_ms = Some(RETRY_MS);
        }
        error
    }
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::NOTDIR => Self::NotFound,
            Errno::ISDIR => Self::IsDirectory,
            Errno::LOOP => Self::BadPath("a symbolic link is in it, and links are not followed"),
            Errno::XDEV => Self::BadPath("it leads out of the workspace"),
            Errno::NAMETOOLONG => Self::BadPath("it is too long"),
            Errno::NXIO | Errno::NODEV => Self::NotRegular,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::DiskFull,
            Errno::ACCESS | Errno::PERM => Self::NoPermission,
            Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::EXIST | Errno::NOTEMPTY => Self::Disturbed,
            other => Self::Failed(other.into()),
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::Failed(error),
        }
    }
}
