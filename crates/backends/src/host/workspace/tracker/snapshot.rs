//! A snapshot of a tracked workspace: a mark in its index, instead of a copy of all stamps.

use std::sync::Arc;

use sandbox::BoxFuture;
use sandbox::workspace::{Changes, FileError, Pace, Snapshot, Used};

use super::super::changes::{Changed, HostSnapshot};
use super::super::{Work, blocking};
use super::{Doubt, Tracked};

/// The regular files of a tracked workspace at one moment. The next snapshot of the same workspace replaces it;
/// runs in one sandbox take turns, so none is in use then.
#[derive(Debug)]
pub(in super::super) struct TrackedSnapshot {
    tracked: Arc<Tracked>,
    mark: u64,
    used: Used,
    /// When it was taken, by the clock that the kernel uses for file timestamps.
    taken: (i64, i64),
}

impl TrackedSnapshot {
    /// Takes a snapshot, unless there is a doubt.
    pub(in super::super) fn take(tracked: Arc<Tracked>) -> Result<Self, Doubt> {
        let taken = HostSnapshot::now();
        let (mark, used) = {
            let mut state = tracked.looked(None)?;
            state.index.mark();
            state.mark += 1;
            (state.mark, state.index.used())
        };
        Ok(Self { tracked, mark, used, taken })
    }

    pub(super) fn changes_now(&self) -> Result<Changes, FileError> {
        let root = Arc::clone(&self.tracked.state().root);
        let tracked = {
            let looked = self.tracked.looked(None);
            let looked = looked.ok().filter(|state| state.mark == self.mark);
            looked.map(|state| (state.index.changed(), state.index.used()))
        };
        if let Some((paths, used)) = tracked {
            let changed = Changed::new(paths.iter().map(|path| &**path), true);
            return Ok(Changes { used, ..changed.described(&root.directory) });
        }
        // The tracking ended during the run. What it knew of the time before is still true.
        let files = self.tracked.state().at_mark(self.mark);
        let before = HostSnapshot::known(&root, files, self.used, self.taken);
        before.compared()
    }
}

impl Snapshot for TrackedSnapshot {
    fn used(&self) -> Used {
        self.used
    }

    fn changes(self: Box<Self>, _: Pace) -> BoxFuture<'static, Result<Changes, FileError>> {
        Box::pin(blocking(Work::Walk, move || self.changes_now()))
    }
}
