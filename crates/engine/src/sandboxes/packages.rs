//! Packages of a persistent sandbox: recorded, shown whenever it is awake, and attached while it is open.
//!
//! ```text
//! install -> prepared (no turn held) -> turn -> prepared with what the sandbox has now -> attached, if it is awake -> recorded
//! ```
//! A sandbox has one layer of each ecosystem. A further installation makes a new layer that contains everything, and attaches
//! it over the one before. Interpreters keep what they have imported already.

use std::time::Instant;

use policy::Caller;
use sandbox::BackendError;
use tokio::sync::mpsc;

use super::awake::{AwakePackages, AwakeSandbox};
use super::entry::{SandboxEntry, Slot};
use super::{SandboxId, Sandboxes};
use crate::Wall;
use crate::conversation::StopSignals;
use crate::packages::{
    Ecosystem, InstalledPackages, PackageSet, PackageUse, PackageVersion, ShownPackages, Wanted,
};
use crate::request::RunRequest;
use crate::result::RunError;
use crate::run::millis;
use crate::runtimes::Runtime;
use crate::unstarted::Unstarted;

/// How many layers may lie over each other in one awake sandbox. Each one is a mount.
const ATTACHED_MAX: usize = 32;

/// What an installation in a persistent sandbox did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Installed {
    /// Everything that the sandbox has now.
    pub packages: Vec<InstalledPackages>,
    /// How long the installation took; `None` if every layer was there.
    pub install_ms: Option<f64>,
    /// How long it took to attach the layers; `None` if the sandbox is asleep, or has them already.
    pub attach_ms: Option<f64>,
    /// What a live interpreter may notice, such as a package whose version has changed.
    pub warnings: Vec<String>,
}

/// The packages that a run, or an installation, asks for.
pub(super) struct PackageRequest<'a> {
    of: PackageUse<'a>,
    wanted: Vec<Wanted>,
}

impl<'a> PackageRequest<'a> {
    /// Takes the packages out of a request to run.
    pub(super) fn of(request: &mut RunRequest, caller: &'a Caller, wall: &'a Wall) -> Self {
        let progress = request.install_progress.take();
        let of = PackageUse { caller, wall: wall.name(), progress };
        Self { of, wanted: std::mem::take(&mut request.packages) }
    }

    /// Whether everything that it asks for was asked for before.
    fn is_installed(&self, installed: &[InstalledPackages]) -> bool {
        let is_there = |wanted: &Wanted| {
            let mut own = installed.iter().filter(|one| one.ecosystem == wanted.ecosystem);
            own.any(|one| one.requirements.contains(&wanted.requirement))
        };
        self.wanted.iter().all(is_there)
    }
}

impl Sandboxes {
    /// Installs packages in a sandbox. If it is awake, its live interpreters can import them at once.
    pub async fn install(
        &self,
        caller: &Caller,
        id: &SandboxId,
        wanted: Vec<Wanted>,
        progress: Option<mpsc::Sender<String>>,
    ) -> Result<Installed, RunError> {
        let principal = self.lookup_of(caller)?;
        let entry = self.entry(principal, id).await?.ok_or_else(super::unknown_sandbox)?;
        let wall = self.wall_of(&entry)?;
        self.engine.check_packages(caller, &wanted)?;
        let request = PackageRequest { of: PackageUse { caller, wall: wall.name(), progress }, wanted };
        let started = Instant::now();
        let told = |unstarted: Unstarted| unstarted.error;
        let is_new = self.install_ahead(&entry, &request).await.map_err(told)?;
        let install_ms = millis(started.elapsed());
        let mut stops = StopSignals::default().or_closing(entry.closing.subscribe(), None);
        let mut slot = entry.take_turn(self.workspaces_of(wall)?, &mut stops).await.map_err(told)?;
        let started = Instant::now();
        let before = slot.awake.as_ref().map(|awake| awake.packages.attached.len());
        let shown = self.show_packages(&entry, &mut slot, &request).await;
        let attach_ms = millis(started.elapsed());
        let after = slot.awake.as_ref().map(|awake| awake.packages.attached.len());
        entry.note_used(crate::clock::unix_ms());
        if slot.awake.is_none() {
            entry.let_go(&mut slot);
        }
        let (shown, warnings) = shown.map_err(told)?;
        Ok(Installed {
            packages: entry.packages(),
            install_ms: (is_new || shown.was_installed()).then_some(install_ms),
            attach_ms: (before != after).then_some(attach_ms),
            warnings,
        })
    }

    /// The packages of a sandbox.
    pub async fn packages(
        &self,
        caller: &Caller,
        id: &SandboxId,
    ) -> Result<Vec<InstalledPackages>, RunError> {
        let principal = self.lookup_of(caller)?;
        let entry = self.entry(principal, id).await?.ok_or_else(super::unknown_sandbox)?;
        Ok(entry.packages())
    }

    /// Makes the layers without holding a turn. Returns whether one had to be made.
    pub(super) async fn install_ahead(
        &self,
        entry: &SandboxEntry,
        request: &PackageRequest<'_>,
    ) -> Result<bool, Unstarted> {
        let installed = entry.packages();
        if request.is_installed(&installed) {
            return Ok(false);
        }
        let shown = self.engine.prepare_packages(&request.of, &request.wanted, &installed).await?;
        Ok(shown.was_installed())
    }

    /// The packages that the sandbox shows from now on: attached, if it is awake, and recorded. Also returns what a live
    /// interpreter may notice.
    pub(super) async fn show_packages(
        &self,
        entry: &SandboxEntry,
        slot: &mut Slot,
        request: &PackageRequest<'_>,
    ) -> Result<(ShownPackages, Vec<String>), Unstarted> {
        let installed = entry.packages();
        let is_installed = request.is_installed(&installed);
        if let Some(awake) = &slot.awake
            && is_installed
        {
            return Ok((awake.packages.shown.clone(), Vec::new()));
        }
        let shown = self.engine.prepare_packages(&request.of, &request.wanted, &installed).await?;
        let mut warnings = Vec::new();
        if let Some(awake) = &mut slot.awake {
            awake.attach(&shown).await?;
            warnings = notices(awake, &installed, &shown);
        }
        let now = shown.installed();
        if now != installed {
            let stored = self.store.keep_packages(entry.record.id.clone(), now.clone()).await;
            stored.map_err(|error| error.to_run_error())?;
            entry.set_packages(now);
        }
        Ok((shown, warnings))
    }
}

impl AwakeSandbox {
    /// Shows further packages while the sandbox is open. Layers that it shows already are left as they are.
    async fn attach(&mut self, shown: &ShownPackages) -> Result<(), RunError> {
        for set in shown.sets() {
            let layer = set.shown_layer();
            if self.packages.shown.digest(set.ecosystem) == Some(layer.digest.as_str()) {
                continue;
            }
            if !set.ecosystem.is_shown_to_programs() {
                // Compilers have sandboxes of their own, which show it from the next run on.
                self.packages.shown.replace(set);
                continue;
            }
            if self.packages.attached.len() >= ATTACHED_MAX {
                let message =
                    format!("packages were installed in this sandbox {ATTACHED_MAX} times since it is awake");
                let remedy = "install all of them in one call, in another sandbox";
                return Err(RunError::new("too_many_installs", message).remedy(remedy));
            }
            self.sandbox.attach(&layer).await.map_err(|error| not_attached(&error))?;
            // The layer below may still be in use: a program has files of it open.
            self.packages.attached.push(self.packages.shown.in_use());
            self.packages.shown.replace(set);
        }
        Ok(())
    }
}

impl AwakePackages {
    /// Whether an attached layer has a module that the zygote process has loaded from elsewhere.
    pub(super) fn covers_loaded(&self, runtime: &Runtime) -> bool {
        !self.attached.is_empty() && {
            let loaded = runtime.names_of_loaded();
            self.shown.modules(Ecosystem::Pypi).any(|module| loaded.iter().any(|name| name == module))
        }
    }
}

/// The packages whose version is another one than before.
fn notices(awake: &AwakeSandbox, before: &[InstalledPackages], now: &ShownPackages) -> Vec<String> {
    if awake.channel.interpreters().next().is_none() {
        return Vec::new();
    }
    let version_in = |set: &PackageSet, name: &str| {
        let mut own =
            before.iter().filter(|one| one.ecosystem == set.ecosystem).flat_map(|one| &one.packages);
        own.find(|one| one.name == name).map(|one| one.version.clone())
    };
    let changed = now.sets().iter().flat_map(|set| {
        let changed = move |one: &PackageVersion| {
            let old = version_in(set, &one.name).filter(|old| *old != one.version)?;
            Some(format!(
                "{} is {} now and was {old}: an interpreter that has imported it keeps the earlier one until it ends",
                one.name, one.version
            ))
        };
        set.packages.iter().filter_map(changed).collect::<Vec<_>>()
    });
    changed.collect()
}

fn not_attached(error: &BackendError) -> RunError {
    let mut told = match error {
        BackendError::Unsupported { .. } => {
            let message = "the wall of this sandbox cannot show packages that are installed while it is open";
            let remedy = "open a sandbox with these packages, or run without sandbox_id";
            RunError::new("wall_cannot_attach", message).remedy(remedy)
        }
        _ => RunError::new("attach_failed", "the packages could not be shown in the sandbox")
            .remedy("try again; if it fails again, open a sandbox with these packages"),
    };
    told.retry_after_ms = error.retry_after_ms();
    told.retryable = told.retry_after_ms.is_some();
    told.cause = Some(match error {
        BackendError::Build { step, source } => format!("{step}: {source}"),
        error => error.to_string(),
    });
    told
}
