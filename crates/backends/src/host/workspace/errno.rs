//! What errors of the operating system mean for a file of a workspace.

use std::io;

use rustix::io::Errno;
use sandbox::workspace::FileError;

/// The error as a caller is told.
pub(super) fn told(error: impl Into<io::Error>) -> FileError {
    let error = error.into();
    let Some(errno) = Errno::from_io_error(&error) else { return FileError::Failed(error.to_string()) };
    match errno {
        Errno::NOENT | Errno::NOTDIR => FileError::NotFound,
        Errno::ISDIR => FileError::IsDirectory,
        Errno::LOOP => FileError::BadPath("a symbolic link is in it, and links are not followed".into()),
        Errno::XDEV => FileError::BadPath("it leads out of the workspace".into()),
        Errno::NAMETOOLONG => FileError::BadPath("it is too long".into()),
        Errno::NXIO | Errno::NODEV => FileError::NotRegular,
        Errno::FBIG => FileError::DiskFull,
        Errno::NOSPC | Errno::DQUOT => FileError::StateDiskFull,
        Errno::ACCESS | Errno::PERM => FileError::NoPermission,
        Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::EXIST | Errno::NOTEMPTY => FileError::Disturbed,
        _ => FileError::Failed(error.to_string()),
    }
}
