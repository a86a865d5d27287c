//! Packages: libraries that a program imports, shown to its sandbox as read-only layers.
//!
//! A caller asks for requirements ([`Wanted`]). A [`PackageBook`] turns a set of them into a [`PackageSet`]: one layer by
//! content, with the versions that it holds. The composition gives the engine one ([`Engine::offer_packages`]); the engine
//! knows no registry and no resolver.
//!
//! ```text
//! request.packages -> Wanted -> PackageBook::prepare -> PackageSet -> SandboxSpec::layers, or attached to an open sandbox
//! ```

mod asked;
mod builder;
mod code;
mod names;
mod places;
mod popular;
mod script;
mod shown;

use std::any::Any;
use std::sync::Arc;

use policy::Caller;
use sandbox::Layer;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub use self::asked::{BAD_PACKAGE, wanted};
pub use self::builder::{Builder, Built};
pub(crate) use self::names::{package_name, package_of};
pub(crate) use self::places::{PRELOAD_VARIABLE, Shows};
pub(crate) use self::popular::{PopularModules, imported_words};
pub use self::shown::{InstalledPackages, PACKAGES_OFF};
pub(crate) use self::shown::{PackageUse, ShownPackages};
use crate::Engine;
use crate::result::RunError;
use crate::sandboxes::SandboxId;

/// The most requirements of one call.
pub const REQUIREMENTS_MAX: usize = 64;
/// The longest requirement.
pub const REQUIREMENT_BYTES_MAX: usize = 256;

/// Where packages of a kind come from. Languages that share a registry share an ecosystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ecosystem {
    /// Python.
    Pypi,
    /// JavaScript and TypeScript.
    Npm,
    /// Go modules.
    Go,
}

impl Ecosystem {
    /// Every ecosystem.
    pub const ALL: [Self; 3] = [Self::Pypi, Self::Npm, Self::Go];

    /// Its name, which is also the prefix of a requirement (`npm:lodash`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Pypi => "pypi",
            Self::Npm => "npm",
            Self::Go => "go",
        }
    }

    /// The names of all ecosystems, for messages.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The ecosystem of a bare requirement of a program in that language.
    pub fn of_language(language: &str) -> Option<Self> {
        match language {
            "python" => Some(Self::Pypi),
            "javascript" | "typescript" => Some(Self::Npm),
            "go" => Some(Self::Go),
            _ => None,
        }
    }

    /// The ecosystem of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// One requirement, in the words of its ecosystem: `pandas>=2`, `lodash@4`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Wanted {
    /// Where it comes from.
    pub ecosystem: Ecosystem,
    /// The package, and the versions that will do.
    pub requirement: String,
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.ecosystem.name(), self.requirement)
    }
}

/// A set of requirements to prepare. All of them are of one ecosystem.
pub struct PackageCall<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// The wall behind which the packages are used. Packages are built behind the same one.
    pub wall: &'a str,
    /// Where they come from.
    pub ecosystem: Ecosystem,
    /// The requirements, sorted, without duplicates.
    pub requirements: &'a [String],
    /// Versions that the sandbox has already. The new set has the same versions of them, if that can be.
    pub present: &'a [PackageVersion],
    /// Is told the progress of an installation. A full channel loses messages.
    pub progress: Option<mpsc::Sender<String>>,
}

/// One package in a set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PackageVersion {
    /// Its name, as the registry spells it.
    pub name: String,
    /// The version.
    pub version: String,
}

/// The result of an installation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallReport {
    /// What was installed, sorted. Empty if the installation failed.
    pub packages: Vec<PackageVersion>,
    /// Whether everything was there before.
    pub was_cached: bool,
    /// How long it took.
    pub ms: u64,
    /// The persistent sandbox that has them. `None` if they were only prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxId>,
}

/// Packages that belong together, in one layer.
#[derive(Clone)]
pub struct PackageSet {
    /// Where they come from.
    pub ecosystem: Ecosystem,
    /// Their files. `target` is where a sandbox shows them.
    pub layer: Layer,
    /// What was asked for.
    pub requirements: Vec<String>,
    /// What is in the layer, sorted.
    pub packages: Vec<PackageVersion>,
    /// The names by which programs import them, sorted.
    pub modules: Vec<String>,
    /// Whether the layer was there before.
    pub was_cached: bool,
    /// Keeps the layer from being removed.
    pub in_use: Arc<dyn Any + Send + Sync>,
}

/// Turns requirements into layers.
pub trait PackageBook: Send + Sync {
    /// The ecosystems that this server offers.
    fn offered(&self) -> Vec<Ecosystem>;

    /// How old a version must be before it is used.
    fn minimum_age(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    /// The set for these requirements, if its layer is there: no build, no network. Called on the path of every run with
    /// packages.
    fn recall(&self, call: &PackageCall<'_>) -> Option<PackageSet>;

    /// The set for these requirements. Fetches and builds what is missing. Two calls for one set share one build. Dropping
    /// the future abandons the wait, not a build that others wait for.
    fn prepare<'a>(
        &'a self,
        call: PackageCall<'a>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<PackageSet, RunError>> + Send + 'a>>;
}

impl Engine {
    /// Offers packages from now on. Only the first call counts.
    pub fn offer_packages(&self, book: Arc<dyn PackageBook>) {
        if self.packages.set(book).is_err() {
            tracing::error!("packages_offered_twice");
        }
    }

    /// The ecosystems whose packages this engine offers.
    pub fn offered_packages(&self) -> Vec<Ecosystem> {
        self.package_book().map(|book| book.offered()).unwrap_or_default()
    }

    /// The packages that this engine offers, if it offers some.
    pub fn package_book(&self) -> Option<&Arc<dyn PackageBook>> {
        self.packages.get()
    }
}
