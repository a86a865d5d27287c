//! The inside of a persistent sandbox while it is awake: its wall, its guest, its interpreters.
//!
//! Dropping [`AwakeSandbox`] kills everything inside; the files stay on disk.

use std::sync::Arc;

use sandbox::workspace::Workspace;
use sandbox::{InUse, Limits, Sandbox, SandboxSpec, WorkspaceRef};

use crate::conversation::GuestChannel;
use crate::guest_client;
use crate::packages::{ShownPackages, Shows};
use crate::runtimes::{self, CpuShare, Preload, Runtime};
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
    pub(super) packages: AwakePackages,
}

/// The packages of an awake sandbox.
pub(super) struct AwakePackages {
    /// What it shows.
    pub(super) shown: ShownPackages,
    /// Keeps what was shown before each layer that was attached since.
    pub(super) attached: Vec<InUse>,
}

impl AwakeSandbox {
    /// Builds the wall around a workspace with these files, with everything that any live language needs.
    /// `code` is the first program, and `shown` are the packages of the sandbox.
    pub(super) async fn wake(
        (engine, wall): (&Engine, &Wall),
        (workspace, files): (&WorkspaceRef, &dyn Workspace),
        limits: &Limits,
        (code, shown): (&str, &ShownPackages),
    ) -> Result<Self, Unstarted> {
        let runtimes = live_runtimes(wall).await;
        let share = CpuShare::of(limits);
        // A zygote process has the share of a run that asks for none.
        let is_warm = engine.is_warm && share == engine.usual_share();
        // Where packages can be installed, they can be installed while the sandbox is open.
        let shows = if engine.package_book().is_some() { Shows::EVERYTHING } else { shown.shows() };
        let zygote = match runtimes.iter().find(|runtime| is_warm && runtime.has_zygote()) {
            Some(runtime) => {
                let is_hidden = files.holds_any(&runtime.names_of_loaded()).await;
                let preload = Preload { shows, has_layers: !shown.sets().is_empty(), modules: &[] };
                runtime.zygote(share, preload, code, |_| is_hidden)
            }
            None => None,
        };
        let mut spec = SandboxSpec {
            limits: Limits { wall_ms: LIFE_MS, ..limits.clone() },
            zygote,
            attach_points: shows.attach_points(),
            workspace: Some(workspace.clone()),
            executable_at: engine.tools_command(),
            absence_allowed: engine.policy().absence_allowed.clone(),
            ..SandboxSpec::default()
        };
        add_live_languages(&mut spec, &runtimes);
        if let Some(runtime) = runtimes.first() {
            spec.links = engine.links_for(runtime);
        }
        shown.add_to(&mut spec);
        let mut sandbox = wall.create(&spec).await?;
        let stream = sandbox.take_stream().ok_or_else(lost)?;
        let guest = guest_client::connect(stream).await.map_err(|_| lost())?;
        let channel = GuestChannel::new(guest).with_surroundings(share, shows);
        let packages = AwakePackages { shown: shown.clone(), attached: Vec::new() };
        Ok(Self { sandbox, channel, charged_cpu_us: 0, packages })
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
