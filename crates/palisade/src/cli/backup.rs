//! `palisade backup` and `palisade restore`: the state directory over time.
//!
//! They work on files as the user who owns the state directory, with or without a server. See `engine::backup`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use engine::backup::{self, BackupError, Manifest, Restored};
use terminal::{BAD_USAGE, complain};

use crate::options::Options;
use crate::{config, state};

const FAILED: u8 = 1;
const BACKUP_HELP: &str = "\
The folder has the keys (as digests), approvals, counters, runs with their logs, the audit with its key, the server's
token and the key of file URLs. It does not have idempotency records, the files of persistent sandboxes, the
configuration or the policies. Whoever can read it can act as the server: keep it private.

Example:
  palisade backup /backups/palisade-2026-11-18";
const RESTORE_HELP: &str = "\
The state directory must be empty or absent, so no server uses it. Open approvals are voided. Keys that were revoked after the backup, and a token
that was replaced after it, count again: revoke and replace them before a server starts.

Example:
  palisade --state-dir /var/lib/palisade restore /backups/palisade-2026-11-18";

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(after_help = BACKUP_HELP)]
pub(crate) struct BackupArguments {
    /// The folder to make; it must not exist
    #[arg(value_name = "DIR")]
    target: PathBuf,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
#[command(after_help = RESTORE_HELP)]
pub(crate) struct RestoreArguments {
    /// The folder that `palisade backup` made
    #[arg(value_name = "DIR")]
    backup: PathBuf,
}

pub(crate) fn back_up(options: &Options, arguments: &BackupArguments) -> ExitCode {
    let done = state_dir(options).and_then(|state_dir| {
        let target = whole(&arguments.target)?;
        backup::back_up(&state_dir, &target, unix_ms()).map_err(failure)
    });
    ended(done.map(|manifest| backed_up(&manifest, arguments)))
}

pub(crate) fn restore(options: &Options, arguments: &RestoreArguments) -> ExitCode {
    let done = state_dir(options).and_then(|state_dir| {
        let restored = backup::restore(&whole(&arguments.backup)?, &state_dir, unix_ms()).map_err(failure)?;
        Ok((restored, state_dir))
    });
    ended(done.map(|(restored, state_dir)| told(&restored, &state_dir)))
}

/// Why a command failed, and its exit status.
type Failure = (u8, String);

fn failure(error: BackupError) -> Failure {
    let is_mistake =
        matches!(error, BackupError::Exists(_) | BackupError::NotEmpty(_) | BackupError::NoBackup(..));
    (if is_mistake { BAD_USAGE } else { FAILED }, error.to_string())
}

fn ended(done: Result<String, Failure>) -> ExitCode {
    match done {
        Ok(text) => {
            eprintln!("{text}");
            ExitCode::SUCCESS
        }
        Err((status, message)) => {
            complain(&message, None);
            ExitCode::from(status)
        }
    }
}

fn state_dir(options: &Options) -> Result<PathBuf, Failure> {
    // Only the owner can access files created from here on.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let loaded = config::load(options).map_err(|error| (FAILED, error.to_string()))?;
    let found = loaded.settings.state_dir.value.or_else(state::expected);
    whole(&found.ok_or((FAILED, "no state directory can be used; give one with --state-dir".to_owned()))?)
}

fn whole(path: &std::path::Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| (BAD_USAGE, format!("{}: {error}", path.display())))
}

fn backed_up(manifest: &Manifest, arguments: &BackupArguments) -> String {
    let bytes: u64 = manifest.files.iter().map(|file| file.size_bytes).sum();
    format!(
        "Backed up {} files, {bytes} bytes, to {}. Idempotency records and the files of persistent sandboxes are not \
         in it.",
        manifest.files.len(),
        arguments.target.display()
    )
}

fn told(restored: &Restored, state_dir: &std::path::Path) -> String {
    let Restored { manifest, keys_in_force, sandboxes_left_out } = restored;
    let made = i64::try_from(manifest.created_ms).ok().and_then(chrono::DateTime::from_timestamp_millis);
    let made = made.map_or_else(String::new, |time| time.format(" of %Y-%m-%d %H:%M:%SZ").to_string());
    let mut text = format!(
        "Restored the backup{made} to {}.\nApprovals and idempotency records of before do not count any more.\n\
         {keys_in_force} keys are in force. One that was revoked after the backup counts again: see `palisade keys \
         list`. So does a token that was replaced.",
        state_dir.display()
    );
    if *sandboxes_left_out > 0 {
        text.push_str(&format!(
            "\n{sandboxes_left_out} persistent sandboxes are gone: their files are not in a backup."
        ));
    }
    text
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
