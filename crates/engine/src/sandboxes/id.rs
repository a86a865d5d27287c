//! The handle of a sandbox that lasts: unguessable, and nothing else can be parsed as one.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::handle;
use crate::result::RunError;

const PREFIX: &str = "sbx_";

/// `sbx_` and 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxId(Arc<str>);

impl TryFrom<String> for SandboxId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("it is no handle of a sandbox")
    }
}

impl From<SandboxId> for String {
    fn from(id: SandboxId) -> Self {
        id.as_str().to_owned()
    }
}

impl SandboxId {
    /// A new one that nobody can guess.
    pub fn random() -> Result<Self, RunError> {
        handle::random(PREFIX).map(|text| Self(text.into()))
    }

    /// An id that a caller gave; `None` is what cannot be one.
    pub fn parse(text: &str) -> Option<Self> {
        handle::is_handle(PREFIX, text).then(|| Self(text.into()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
