//! What a layer says about itself.

use engine::packages::{Ecosystem, PackageVersion};
use serde::{Deserialize, Serialize};

use crate::blobs::BlobId;

/// The version of the format.
pub(crate) const FORMAT: u32 = 1;

/// A package in a layer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct LayerPackage {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The file that it came from. Absent for a package that is part of another one's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) blob: Option<BlobId>,
}

/// The manifest of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    /// The digest of the files.
    pub(crate) digest: String,
    pub(crate) ecosystem: Ecosystem,
    /// The interpreter that it was built for.
    pub(crate) interpreter: String,
    pub(crate) made_ms: i64,
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    pub(crate) packages: Vec<LayerPackage>,
    pub(crate) modules: Vec<String>,
}

impl Manifest {
    pub(crate) fn versions(&self) -> Vec<PackageVersion> {
        let version =
            |one: &LayerPackage| PackageVersion { name: one.name.clone(), version: one.version.clone() };
        self.packages.iter().map(version).collect()
    }
}

/// Which layer a set of requirements has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetEntry {
    pub(crate) digest: String,
    pub(crate) ecosystem: Ecosystem,
    pub(crate) requirements: Vec<String>,
}
