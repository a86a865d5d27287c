//! Documents of indexes: read from mirrors, kept for when a mirror is down, filtered before a tool sees them.

mod documents;
mod html;
pub(crate) mod npm;
pub(crate) mod pypi;
mod urls;

use serde::{Deserialize, Serialize};

pub(crate) use self::documents::{Count, Documents, Wanted};
pub(crate) use self::urls::{join, last_name};

/// What the operator's rules say about the age of a release.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgeRule {
    /// Releases after this moment are too young.
    pub(crate) latest_ms: i64,
    pub(crate) min_age_ms: i64,
    pub(crate) allow_unknown: bool,
}

/// Why a release is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Withheld {
    Yanked,
    /// It may be installed from this moment on; `None` if its age is unknown.
    TooYoung {
        until_ms: Option<i64>,
    },
    /// The index has no digest that can be compared.
    NoDigest,
    /// It would have to be built from source.
    Source,
    /// Its file is on a host that is not allowed.
    Elsewhere,
    /// Its file name is not that of a file of this package.
    Misnamed,
}

impl AgeRule {
    /// Whether no release is withheld for its age.
    pub(crate) fn accepts_all(&self) -> bool {
        self.min_age_ms == 0
    }

    /// Why a release of that moment is withheld.
    pub(crate) fn refusal(&self, uploaded_ms: Option<i64>) -> Option<Withheld> {
        match uploaded_ms {
            Some(at) if at > self.latest_ms => {
                Some(Withheld::TooYoung { until_ms: Some(at.saturating_add(self.min_age_ms)) })
            }
            None if !self.allow_unknown => Some(Withheld::TooYoung { until_ms: None }),
            _ => None,
        }
    }
}
