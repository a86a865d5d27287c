//! Errors of file operations as callers see them, with a remedy.

use sandbox::workspace::FileError;

use crate::result::RunError;
use crate::state_disk;

const RETRY_MS: u64 = 500;

impl From<&FileError> for RunError {
    fn from(error: &FileError) -> Self {
        let remedy = match error {
            FileError::BadPath(_) => {
                "give a path relative to /workspace, such as data/in.csv, without links and `..`"
            }
            FileError::NotFound => "look what is there with list_files",
            FileError::IsDirectory => "name a file in it; list_files shows them",
            FileError::NotRegular => "pipes, sockets and devices can be used by programs inside only",
            FileError::TooLarge { .. } => "write it in several parts with append",
            FileError::DiskFull => "remove files, or open a sandbox with a larger disk_mb",
            FileError::QuotaExceeded { .. } => "close sandboxes that are no longer needed",
            FileError::StateDiskFull => {
                state_disk::tell_full();
                "try again later; the operator must free space on the disk of the state directory"
            }
            FileError::NoPermission => "change the permissions by a run in the sandbox",
            FileError::Disturbed | FileError::Unavailable { .. } => "try again",
            FileError::Failed(_) => "ask the operator",
        };
        let mut told = Self::new(error.code(), error.to_string()).remedy(remedy);
        told.retry_after_ms = match error {
            FileError::Disturbed | FileError::StateDiskFull => Some(RETRY_MS),
            FileError::Unavailable { retry_after_ms } => Some(*retry_after_ms),
            _ => None,
        };
        told.retryable = told.retry_after_ms.is_some();
        told
    }
}

impl From<FileError> for RunError {
    fn from(error: FileError) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_remedy_and_passing_ones_a_time() {
        let bad = FileError::BadPath("x".into());
        let errors = [
            (bad, None),
            (FileError::NotFound, None),
            (FileError::TooLarge { bytes_max: 1 }, None),
            (FileError::Disturbed, Some(RETRY_MS)),
            (FileError::Unavailable { retry_after_ms: 7 }, Some(7)),
            (FileError::Failed("reason of the operating system".to_owned()), None),
        ];
        for (error, retry_after_ms) in errors {
            let told = RunError::from(&error);
            assert_eq!((told.code.as_ref(), told.retry_after_ms), (error.code(), retry_after_ms));
            assert_eq!(told.retryable, retry_after_ms.is_some());
            assert!(told.remedy.is_some() && !told.message.contains("operating system"), "{told:?}");
        }
    }
}
