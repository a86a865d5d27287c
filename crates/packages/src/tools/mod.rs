//! The tools that resolve and install, inside the builder: uv for Python, the host's npm for JavaScript, the host's go command
//! for Go.

pub(crate) mod go;
pub(crate) mod npm;
pub(crate) mod uv;

use std::collections::BTreeMap;

use sandbox::Layer;

use crate::layers::InUse;

/// What a builder executes.
pub(crate) struct Job {
    pub(crate) language: &'static str,
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    /// Files that are placed in the workspace.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    pub(crate) layers: Vec<Layer>,
    /// Keeps the tool's own layer from being removed meanwhile.
    pub(crate) in_use: Option<InUse>,
    /// The folder of the workspace that becomes the layer.
    pub(crate) product: &'static str,
}

pub(crate) fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Where the folder of temporary files is made.
pub(crate) const TMP_MARK: &str = "tmp/.made";
