//! The handle of a run: unguessable, and nothing else can be parsed as one.

use std::fmt;
use std::sync::Arc;

use crate::handle;
use crate::result::RunError;

const PREFIX: &str = "run_";

/// `run_` and 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(Arc<str>);

impl RunId {
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

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_lead_back_to_themselves() {
        let (first, second) = (RunId::random().unwrap(), RunId::random().unwrap());
        assert_ne!(first, second);
        assert_eq!(RunId::parse(first.as_str()), Some(first));
    }

    #[test]
    fn nothing_else_is_an_id() {
        let good = RunId::random().unwrap();
        let bad = [
            String::new(),
            "run_".to_owned(),
            good.as_str().to_uppercase(),
            format!("{good}0"),
            format!(" {good}"),
            good.as_str().replace("run_", "job_"),
            format!("run_{}", "g".repeat(32)),
            format!("run_{}", "é".repeat(16)),
        ];
        for text in bad {
            assert_eq!(RunId::parse(&text), None, "{text:?}");
        }
    }
}
