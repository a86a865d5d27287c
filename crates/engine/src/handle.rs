//! Handles: unguessable names. A handle of one kind does not parse as another kind.
//!
//! [`crate::RunId`] and [`crate::SandboxId`] are defined with it. A handle grants no access by itself: every
//! lookup also takes the principal.

use std::fmt::Write as _;

use crate::result::RunError;

const RANDOM_BYTES: usize = 16;

/// Defines a kind of handle: its type and its prefix.
macro_rules! handle {
    ($(#[$about:meta])* $name:ident, $prefix:literal) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Creates a new unguessable handle.
            pub fn random() -> Result<Self, $crate::RunError> {
                $crate::handle::random($prefix).map(|text| Self(text.into()))
            }

            /// Parses a handle from a caller. Returns `None` if the text is not one.
            pub fn parse(text: &str) -> Option<Self> {
                $crate::handle::is_handle($prefix, text).then(|| Self(text.into()))
            }

            /// The handle as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = &'static str;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(&text).ok_or("it is no such handle")
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.as_str().to_owned()
            }
        }
    };
}
pub(crate) use handle;

/// A prefix and 32 random hexadecimal digits.
pub(crate) fn random(prefix: &str) -> Result<String, RunError> {
    let mut bytes = [0_u8; RANDOM_BYTES];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled != Ok(RANDOM_BYTES) {
        let error = RunError::new("no_randomness", "the machine gives no random numbers");
        return Err(error.remedy("ask the operator"));
    }
    Ok(format!("{prefix}{}", hex(&bytes)))
}

/// Whether the text is a handle with this prefix.
pub(crate) fn is_handle(prefix: &str, text: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = text.strip_prefix(prefix);
    digits.is_some_and(|digits| digits.len() == 2 * RANDOM_BYTES && digits.bytes().all(is_hex))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}
