//! The parts of a state directory, and what becomes of each in a backup.

use crate::gatekeeper::layouts;
use crate::store;

/// A database that is in a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DatabaseItem {
    /// Its path in the state directory.
    pub(super) path: &'static str,
    /// The newest layout that this program knows.
    pub(super) layout: i64,
    /// What must not come back with a restore.
    pub(super) void: &'static str,
}

pub(super) const APPROVALS: &str = "gate/approvals.db";

/// The databases of a backup, in the order in which they are copied.
pub(super) fn databases() -> [DatabaseItem; 4] {
    [
        DatabaseItem { path: "gate/keys.db", layout: layouts::KEYS, void: "" },
        // What is open in it is voided by its own module.
        DatabaseItem { path: APPROVALS, layout: layouts::APPROVALS, void: "" },
        // Runs of the servers of before are not in progress, and their places are free.
        DatabaseItem { path: "gate/ledger.db", layout: layouts::LEDGER, void: "DELETE FROM leases;" },
        // The files of persistent sandboxes are not in the backup.
        DatabaseItem {
            path: "store/palisade.db",
            layout: store::LAYOUT,
            void: "DELETE FROM persistent_sandboxes;",
        },
    ]
}

/// Small files at the top of the state directory: the server's own token, and the key of file URLs.
pub(super) const SECRETS: [&str; 2] = ["token", "links.key"];
/// The folder of the audit, copied whole.
pub(super) const AUDIT: &str = "audit";
/// The largest of the small files.
pub(super) const SECRET_BYTES_MAX: u64 = 64 << 10;
/// Files of the audit, and levels of folders in it.
pub(super) const AUDIT_FILES_MAX: usize = 100_000;
pub(super) const AUDIT_DEPTH_MAX: usize = 8;

/// Whether a path may be in a backup. Everything else in a manifest is refused.
pub(super) fn is_known(path: &str) -> bool {
    if databases().iter().any(|item| item.path == path) || SECRETS.contains(&path) {
        return true;
    }
    let mut parts = path.split('/');
    let is_plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    };
    parts.next() == Some(AUDIT)
        && path.matches('/').count() > 0
        && path.matches('/').count() <= AUDIT_DEPTH_MAX
        && parts.all(is_plain)
}

/// Whether a file of the audit is copied: not the lock of a server, and not the room that it keeps free.
pub(super) fn is_of_audit(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    is_known(path) && !["lock", "reserve"].contains(&name)
}
