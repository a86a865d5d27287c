//! The packages of one run, or of one persistent sandbox: asked for, judged, prepared, and put into the spec of a sandbox.
//!
//! `run` and `sandboxes` call it before admission: an installation is not the program's time, and holds no place.

use std::time::Instant;

use policy::{Action, Call, Caller};
use sandbox::{InUse, SandboxSpec};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::places::Shows;
use super::{
    Ecosystem, PackageBook, PackageCall, PackageSet, PackageVersion, REQUIREMENT_BYTES_MAX, REQUIREMENTS_MAX,
    Wanted,
};
use crate::Engine;
use crate::result::{RunError, RunResult};
use crate::run::millis;

/// The error of a server, or of an ecosystem, without packages.
pub const PACKAGES_OFF: &str = "packages_off";

/// What a persistent sandbox has of one ecosystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledPackages {
    /// Where they come from.
    pub ecosystem: Ecosystem,
    /// Everything that was asked for so far, sorted.
    pub requirements: Vec<String>,
    /// What is there, sorted.
    pub packages: Vec<PackageVersion>,
}

/// Who asks for packages, and where they are used.
#[derive(Clone)]
pub(crate) struct PackageUse<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) wall: &'a str,
    /// Is told the progress of an installation.
    pub(crate) progress: Option<mpsc::Sender<String>>,
}

/// Packages that are ready to be shown.
#[derive(Clone, Default)]
pub(crate) struct ShownPackages {
    sets: Vec<PackageSet>,
    /// How long the installation took; `None` if every layer was there.
    install_ms: Option<f64>,
}

impl Engine {
    /// Refuses packages that this caller may not have, or that this server does not offer.
    pub(crate) fn check_packages(&self, caller: &Caller, wanted: &[Wanted]) -> Result<(), RunError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let bad = |message: String, remedy: &str| Err(RunError::bad("packages", &message, remedy));
        if wanted.len() > REQUIREMENTS_MAX {
            let message =
                format!("{} packages were asked for, and {REQUIREMENTS_MAX} is the most", wanted.len());
            return bad(message, "ask for those that the program imports; what they need comes with them");
        }
        let is_bad = |text: &str| {
            text.trim().is_empty() || text.len() > REQUIREMENT_BYTES_MAX || text.chars().any(char::is_control)
        };
        if wanted.iter().any(|one| is_bad(&one.requirement)) {
            let message = format!("a package is a text of 1 to {REQUIREMENT_BYTES_MAX} visible characters");
            return bad(message, "give the name of a package, with its versions if they matter");
        }
        self.judge(&Call { caller, action: Action::Install })?;
        let offered = self.package_book().map(|book| book.offered()).unwrap_or_default();
        match wanted.iter().find(|one| !offered.contains(&one.ecosystem)) {
            None => Ok(()),
            Some(missing) => Err(packages_off(missing.ecosystem, &offered)),
        }
    }

    /// Prepares what is asked for. `present` is what the sandbox has already: the result contains it, too.
    pub(crate) async fn prepare_packages(
        &self,
        of: &PackageUse<'_>,
        wanted: &[Wanted],
        present: &[InstalledPackages],
    ) -> Result<ShownPackages, RunError> {
        let mut shown = ShownPackages::default();
        if wanted.is_empty() && present.is_empty() {
            return Ok(shown);
        }
        self.check_packages(of.caller, wanted)?;
        for ecosystem in Ecosystem::ALL {
            let has = present.iter().find(|one| one.ecosystem == ecosystem);
            let new = wanted.iter().filter(|one| one.ecosystem == ecosystem).map(|one| &one.requirement);
            let mut requirements: Vec<String> =
                has.iter().flat_map(|has| &has.requirements).chain(new).cloned().collect();
            requirements.sort();
            requirements.dedup();
            if requirements.is_empty() {
                continue;
            }
            let Some(book) = self.package_book() else { return Err(packages_off(ecosystem, &[])) };
            let present = has.map(|has| has.packages.as_slice()).unwrap_or_default();
            let call = PackageCall {
                caller: of.caller,
                wall: of.wall,
                ecosystem,
                requirements: &requirements,
                present,
                progress: of.progress.clone(),
            };
            shown.add(&**book, call).await?;
        }
        Ok(shown)
    }
}

impl ShownPackages {
    async fn add(&mut self, book: &dyn PackageBook, call: PackageCall<'_>) -> Result<(), RunError> {
        let set = match book.recall(&call) {
            Some(set) => set,
            None => {
                let started = Instant::now();
                let set = book.prepare(call).await?;
                self.install_ms = Some(self.install_ms.unwrap_or_default() + millis(started.elapsed()));
                set
            }
        };
        self.sets.push(set);
        Ok(())
    }

    pub(crate) fn shows(&self) -> Shows {
        Shows::of(&self.sets)
    }

    /// Whether something had to be installed.
    pub(crate) fn was_installed(&self) -> bool {
        self.install_ms.is_some() || self.sets.iter().any(|set| !set.was_cached)
    }

    /// Puts a set in the place of that of the same ecosystem.
    pub(crate) fn replace(&mut self, new: &PackageSet) {
        self.sets.retain(|set| set.ecosystem != new.ecosystem);
        self.sets.push(new.clone());
        self.sets.sort_by_key(|set| set.ecosystem);
    }

    pub(crate) fn sets(&self) -> &[PackageSet] {
        &self.sets
    }

    /// Adds the layers to the spec of a program's sandbox.
    pub(crate) fn add_to(&self, spec: &mut SandboxSpec) {
        for set in self.sets.iter().filter(|set| set.ecosystem.is_shown_to_programs()) {
            spec.layers.push(set.shown_layer());
            spec.in_use.add(std::sync::Arc::clone(&set.in_use));
        }
    }

    /// Adds the layer of a compiled language to the spec of its compiler's sandbox.
    pub(crate) fn add_to_compiler(&self, language: &str, spec: &mut SandboxSpec) {
        if let Some(set) = self.compiled_in(language) {
            spec.layers.push(set.shown_layer());
            spec.in_use.add(std::sync::Arc::clone(&set.in_use));
        }
    }

    /// The packages that become part of a compiled program.
    pub(crate) fn compiled_in(&self, language: &str) -> Option<&PackageSet> {
        let ecosystem = Ecosystem::of_language(language).filter(|one| !one.is_shown_to_programs())?;
        self.sets.iter().find(|set| set.ecosystem == ecosystem)
    }

    /// Keeps the layers from being removed.
    pub(crate) fn in_use(&self) -> InUse {
        let mut in_use = InUse::default();
        self.sets.iter().for_each(|set| in_use.add(std::sync::Arc::clone(&set.in_use)));
        in_use
    }

    /// What a sandbox has that shows these sets.
    pub(crate) fn installed(&self) -> Vec<InstalledPackages> {
        let of = |set: &PackageSet| InstalledPackages {
            ecosystem: set.ecosystem,
            requirements: set.requirements.clone(),
            packages: set.packages.clone(),
        };
        self.sets.iter().map(of).collect()
    }

    /// The modules that programs of that ecosystem import from them.
    pub(crate) fn modules(&self, ecosystem: Ecosystem) -> impl Iterator<Item = &str> {
        let sets = self.sets.iter().filter(move |set| set.ecosystem == ecosystem);
        sets.flat_map(|set| set.modules.iter().map(String::as_str))
    }

    /// The digest of the layer of that ecosystem.
    pub(crate) fn digest(&self, ecosystem: Ecosystem) -> Option<&str> {
        let set = self.sets.iter().find(|set| set.ecosystem == ecosystem);
        set.map(|set| set.layer.digest.as_str())
    }

    /// Adds what was shown to the result of a run.
    pub(crate) fn settle(&self, result: &mut RunResult) {
        result.packages = self.sets.iter().flat_map(|set| set.packages.iter().cloned()).collect();
        result.install_ms = self.install_ms;
    }
}

fn packages_off(ecosystem: Ecosystem, offered: &[Ecosystem]) -> RunError {
    let message = match offered {
        [] => "this server installs no packages".to_owned(),
        _ => format!("this server installs no packages of {}", ecosystem.name()),
    };
    let remedy = "use what comes with the language (get_capabilities lists it), or ask the operator to enable `[packages]`";
    RunError::new(PACKAGES_OFF, message).remedy(remedy)
}
