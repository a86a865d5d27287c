//! Handles: unguessable names that nothing else can be parsed as.

use std::fmt::Write as _;

use crate::result::RunError;

const RANDOM_BYTES: usize = 16;

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

/// Whether this is such a handle.
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
