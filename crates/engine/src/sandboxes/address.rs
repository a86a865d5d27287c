//! Addresses: which sandbox, which of its contexts, which interpreter.
//!
//! A *context* is a named set of interpreters in a persistent sandbox, at most one per live language, over the
//! same files as all others. Callers write it behind the id: `sbx_...#NAME`. The edge parses that text once;
//! everything behind it gets a [`SandboxAddress`]. A lookup takes only the [`SandboxId`], so a context cannot
//! change which sandbox is meant or whose it is.

use std::fmt;
use std::sync::Arc;

use super::id::SandboxId;
use crate::result::RunError;

/// Separates a sandbox from a context. No id contains it, and it begins the fragment of a URI, so no resource
/// URI and no file URL contains a context.
pub const CONTEXT_SEPARATOR: char = '#';
/// The longest name of a context.
pub const CONTEXT_NAME_BYTES_MAX: usize = 64;
/// The context of a run that names none.
const DEFAULT: &str = "default";

/// The name of a context: 1 to 64 ASCII letters, digits, `-`, `_` and `.`. The store separates interpreters by
/// blanks, so a name has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContextName(Arc<str>);

impl ContextName {
    /// Parses the name of a context. Returns `None` if the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = (1..=CONTEXT_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain);
        is_name.then(|| Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the context of runs that name none.
    pub fn is_default(&self) -> bool {
        &*self.0 == DEFAULT
    }
}

impl Default for ContextName {
    fn default() -> Self {
        Self(DEFAULT.into())
    }
}

impl fmt::Display for ContextName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ContextName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("it is no name of a context")
    }
}

impl From<ContextName> for String {
    fn from(name: ContextName) -> Self {
        name.as_str().to_owned()
    }
}

/// A sandbox, and one of its contexts if the caller named one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxAddress {
    /// The sandbox.
    pub id: SandboxId,
    /// The context; `None` if the address is the bare id.
    pub context: Option<ContextName>,
}

impl SandboxAddress {
    /// Parses `ID` or `ID#NAME`. A malformed id gets the same answer as an unknown one.
    pub fn parse(text: &str) -> Result<Self, RunError> {
        let (id, context) = match text.split_once(CONTEXT_SEPARATOR) {
            Some((id, context)) => (id, Some(context)),
            None => (text, None),
        };
        let id = SandboxId::parse(id).ok_or_else(super::unknown_sandbox)?;
        let named = |name| ContextName::parse(name).ok_or_else(bad_context);
        Ok(Self { id, context: context.map(named).transpose()? })
    }

    /// The context in which a run takes place.
    pub fn context_of_run(&self) -> ContextName {
        self.context.clone().unwrap_or_default()
    }
}

impl From<SandboxId> for SandboxAddress {
    fn from(id: SandboxId) -> Self {
        Self { id, context: None }
    }
}

impl fmt::Display for SandboxAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.context {
            Some(context) => write!(f, "{}{CONTEXT_SEPARATOR}{context}", self.id),
            None => write!(f, "{}", self.id),
        }
    }
}

fn bad_context() -> RunError {
    let message = format!(
        "the name of a context, after `{CONTEXT_SEPARATOR}` in sandbox_id, has 1 to {CONTEXT_NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`"
    );
    let remedy = "choose such a name, for example `sbx_...#etl`, or leave it out with the `#`";
    RunError::bad("context", &message, remedy)
}

/// One interpreter of a sandbox. As text, also in the store: `python`, or `python#etl` in a named context.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InterpreterName {
    /// The context that has it.
    pub(crate) context: ContextName,
    /// The interpreter, as the runtime names it. Languages may share one.
    pub(crate) interpreter: String,
}

impl InterpreterName {
    /// Reads what the store has. Versions without contexts stored the bare interpreter.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (interpreter, context) = match text.split_once(CONTEXT_SEPARATOR) {
            Some((interpreter, context)) => (interpreter, ContextName::parse(context)?),
            None => (text, ContextName::default()),
        };
        (!interpreter.is_empty()).then(|| Self { context, interpreter: interpreter.to_owned() })
    }
}

impl fmt::Display for InterpreterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.context.is_default() {
            true => f.write_str(&self.interpreter),
            false => write!(f, "{}{CONTEXT_SEPARATOR}{}", self.interpreter, self.context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "sbx_0123456789abcdef0123456789abcdef";

    #[test]
    fn an_address_is_an_id_with_or_without_a_context() {
        let bare = SandboxAddress::parse(ID).unwrap();
        assert_eq!((bare.id.as_str(), &bare.context), (ID, &None));
        assert!(bare.context_of_run().is_default());
        let longest = "a".repeat(CONTEXT_NAME_BYTES_MAX);
        for name in ["etl", "A-b_c.9", "default", "6f1c2f64-9d0a-4a4e-8a53-0d3f3a1b2c3d", &longest] {
            let text = format!("{ID}#{name}");
            let address = SandboxAddress::parse(&text).unwrap();
            assert_eq!((address.id.as_str(), address.context_of_run().as_str()), (ID, name));
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn a_name_outside_its_alphabet_or_length_is_refused_with_the_rule() {
        let too_long = "a".repeat(CONTEXT_NAME_BYTES_MAX + 1);
        for name in ["", " ", "a b", "a/b", "a#b", "../x", "é", "a\0", "a\n", "%65", &too_long] {
            let error = SandboxAddress::parse(&format!("{ID}#{name}")).unwrap_err();
            assert_eq!(error.code, "bad_context", "{name:?}");
            assert!(error.message.contains("1 to 64 letters"), "{}", error.message);
        }
    }

    #[test]
    fn a_malformed_id_is_unknown_whatever_follows_it() {
        for text in ["", "#", "#etl", "sbx_1#etl", "analysis#etl", "sbx_/#"] {
            assert_eq!(SandboxAddress::parse(text).unwrap_err().code, "unknown_sandbox", "{text:?}");
        }
    }

    #[test]
    fn interpreters_are_read_from_the_store_as_they_were_written() {
        for text in ["python", "python#etl", "javascript#a.b"] {
            assert_eq!(InterpreterName::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(InterpreterName::parse("python#default").unwrap().to_string(), "python");
        for text in ["", "#etl", "python#", "python#a b"] {
            assert_eq!(InterpreterName::parse(text), None, "{text:?}");
        }
    }
}
