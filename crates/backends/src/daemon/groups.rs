//! The control groups of a server's containers.
//!
//! An engine that was killed, or whose helper was, forgets groups and processes that it had just made. The containers of
//! a server are therefore beneath one group with a name of its own, and what the engine leaves there is removed here.
//! Engines that leave their groups to systemd cannot be told such a group: systemd removes its scopes itself.

use std::path::{Path, PathBuf};

use crate::host::home::{Members, remove_groups};
use crate::native::cgroup::Layout;

/// The group above all containers of a server.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    name: String,
}

impl Groups {
    pub(super) fn of(server: &str) -> Self {
        Self { name: format!("containers.{server}") }
    }

    /// Its path, as an engine wants it.
    pub(super) fn path(&self) -> String {
        format!("/{}", self.name)
    }

    /// Kills and removes what is left of one container. Docker and Podman name groups differently.
    pub(super) fn remove_container(&self, id: &str) {
        for above in self.directories() {
            for name in [id.to_owned(), format!("libpod-{id}")] {
                remove_groups(&above.join(name), Members::Kill);
            }
        }
    }

    /// Kills and removes everything. Returns whether nothing is left.
    pub(super) fn remove_all(&self) -> bool {
        let removed: Vec<bool> =
            self.directories().iter().map(|above| remove_groups(above, Members::Kill)).collect();
        removed.into_iter().all(|is_gone| is_gone)
    }

    fn directories(&self) -> Vec<PathBuf> {
        let layout = Layout::read(Path::new("/proc/self"));
        layout.places().map(|(mount, ..)| mount.join(&self.name)).collect()
    }
}
