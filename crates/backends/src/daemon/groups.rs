//! The control groups of a server's containers.
//!
//! An engine that was killed, or whose helper was, forgets groups and processes that it had just made. The containers of
//! a server are therefore beneath one group for each engine, and what the engine leaves there is removed here.
//! An engine that leaves its groups to systemd cannot be told such a group. systemd removes a scope when it is empty; a
//! process that the engine forgot keeps it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Engine;
use crate::host::home::{Members, remove_groups, thaw};
use crate::native::cgroup::Layout;

/// How long is waited for the members of all groups together.
const PATIENCE: Duration = Duration::from_secs(10);

/// The group above all containers that a server has of one engine.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    name: String,
}

impl Groups {
    pub(super) fn of(engine: Engine, server: &str) -> Self {
        Self { name: format!("containers.{}.{server}", engine.name()) }
    }

    /// Its path, as an engine wants it.
    pub(super) fn path(&self) -> String {
        format!("/{}", self.name)
    }

    /// Kills and removes what is left of one container. Docker and Podman name groups differently.
    pub(super) fn remove_container(&self, id: &str) {
        let members = Members::Kill { until: Instant::now() + PATIENCE };
        let names = [id.to_owned(), format!("libpod-{id}")];
        let above = self.directories();
        let groups: Vec<PathBuf> =
            above.iter().flat_map(|above| names.iter().map(|name| above.join(name))).collect();
        groups.iter().for_each(|group| thaw(group));
        for group in &groups {
            remove_groups(group, members);
        }
    }

    /// Kills and removes everything, on a thread that may wait. Returns whether nothing is left.
    pub(super) async fn remove_all(&self) -> bool {
        let groups = self.clone();
        // A removal that was not carried out has removed nothing.
        tokio::task::spawn_blocking(move || groups.remove_all_here()).await.unwrap_or(false)
    }

    fn remove_all_here(&self) -> bool {
        let members = Members::Kill { until: Instant::now() + PATIENCE };
        let groups = self.directories();
        // All of them first: one hierarchy freezes what is also listed in others.
        groups.iter().for_each(|group| thaw(group));
        let removed: Vec<bool> = groups.iter().map(|group| remove_groups(group, members)).collect();
        removed.into_iter().all(|is_gone| is_gone)
    }

    fn directories(&self) -> Vec<PathBuf> {
        let layout = Layout::read(Path::new("/proc/self"));
        layout.places().map(|(mount, ..)| mount.join(&self.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walls_of_one_server_have_different_groups() {
        let [docker, podman] = Engine::ALL.map(|engine| Groups::of(engine, "palisade-1").path());
        assert_eq!(
            (docker.as_str(), podman.as_str()),
            ("/containers.docker.palisade-1", "/containers.podman.palisade-1")
        );
    }
}
