//! Which secrets of a key have ended, for ending what they began.

/// The secrets of one principal that were made before a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretsBefore(Option<u64>);

impl SecretsBefore {
    /// All secrets: the key was revoked or has expired.
    pub const ALL: Self = Self(None);

    /// The secrets that a rotation at that time replaced, in milliseconds since 1970.
    pub fn rotation(rotated_ms: u64) -> Self {
        Self(Some(rotated_ms))
    }

    /// Whether what a caller with that secret ([`crate::Caller::secret_ms`]) began has ended.
    pub fn covers(self, secret_ms: u64) -> bool {
        self.0.is_none_or(|rotated_ms| secret_ms < rotated_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::SecretsBefore;

    #[test]
    fn a_rotation_ends_what_earlier_secrets_began_and_nothing_else() {
        let rotation = SecretsBefore::rotation(100);
        assert!(rotation.covers(0) && rotation.covers(99));
        assert!(!rotation.covers(100) && !rotation.covers(101));
        assert!(SecretsBefore::ALL.covers(u64::MAX));
    }
}
