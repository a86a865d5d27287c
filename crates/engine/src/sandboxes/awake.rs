//! The inside of a persistent sandbox while it is awake: its wall, its guest, its interpreters.
//!
//! Dropping [`AwakeSandbox`] kills everything inside; the files stay on disk.

use std::sync::Arc;

use sandbox::workspace::Workspace;
use sandbox::{Limits, Sandbox, SandboxSpec, WorkspaceRef};

use crate::conversation::GuestChannel;
use crate::guest_client;
use crate::runtimes::{self, CpuShare, Runtime};
use crate::unstarted::Unstarted;
use crate::{Engine, Wall};

/// One day: how much CPU time the kernel grants one process. The host watches each run separately.
const LIFE_MS: u64 = 24 * 60 * 60 * 1000;

/// A wall and everything inside it.
pub(super) struct AwakeSandbox {
    pub(super) sandbox: Box<dyn Sandbox>,
    pub(super) channel: GuestChannel,
    /// Processor time that was charged, since it was last measured anew.
    pub(super) charged_cpu_us: u64,
}

impl AwakeSandbox {
    /// Builds the wall around a workspace with these files, with everything that any live language needs.
    /// `code` is the first program.
    pub(super) async fn wake(
        (engine, wall): (&Engine, &Wall),
        (workspace, files): (&WorkspaceRef, &dyn Workspace),
        limits: &Limits,
        code: &str,
    ) -> Result<Self, Unstarted> {
        let runtimes = live_runtimes(wall).await;
        let share = CpuShare::of(limits);
        // A zygote process has the share of a run that asks for none.
        let is_warm = engine.is_warm && share == engine.usual_share();
        let zygote = match runtimes.iter().find(|runtime| is_warm && runtime.has_zygote()) {
            Some(runtime) => {
                let is_hidden = files.holds_any(&runtime.names_of_loaded()).await;
                runtime.zygote(share, code, |_| is_hidden)
            }
            None => None,
        };
        let mut spec = SandboxSpec {
            limits: Limits { wall_ms: LIFE_MS, ..limits.clone() },
            zygote,
            workspace: Some(workspace.clone()),
            absence_allowed: engine.policy().absence_allowed.clone(),
            ..SandboxSpec::default()
        };
        add_live_languages(&mut spec, &runtimes);
        let mut sandbox = wall.create(&spec).await?;
        let stream = sandbox.take_stream().ok_or_else(lost)?;
        let guest = guest_client::connect(stream).await.map_err(|_| lost())?;
        let channel = GuestChannel::new(guest).with_share(share);
        Ok(Self { sandbox, channel, charged_cpu_us: 0 })
    }
}

/// Adds everything that these languages need, without what is there already.
pub(crate) fn add_live_languages(spec: &mut SandboxSpec, runtimes: &[Arc<Runtime>]) {
    for runtime in runtimes {
        spec.executable_at = spec.executable_at.take().or_else(|| runtime.executable_at());
        for bind in runtime.read_only_binds() {
            if !spec.binds.iter().any(|known| bind.target.starts_with(&known.target)) {
                spec.binds.push(bind);
            }
        }
        // They are the same for all runtimes of a wall.
        spec.links = runtime.links();
        let new = runtime.placed_files();
        let is_there = |file: &sandbox::PlacedFile| spec.files.iter().any(|known| known.path == file.path);
        let new: Vec<_> = new.into_iter().filter(|file| !is_there(file)).collect();
        spec.files.extend(new);
    }
}

/// The live languages that the wall has.
pub(crate) async fn live_runtimes(wall: &Wall) -> Vec<Arc<Runtime>> {
    let mut found = Vec::new();
    for name in runtimes::live_languages() {
        // A missing language is reported when a run asks for it.
        found.extend(wall.runtimes().find(name).await.ok());
    }
    found
}

fn lost() -> Unstarted {
    crate::RunError::new("sandbox_failed", "the sandbox did not come up").remedy("try again").into()
}
