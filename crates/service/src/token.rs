//! The bearer token of a server without other users. It is created at the first start, kept in a file that
//! only its owner can read, and never logged.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::secret_file;

const FILE: &str = "token";
const PREFIX: &str = "plsd_";

/// The token that a request must show. Only its digest is kept in memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Token {
    digest: [u8; 32],
}

/// A token that was created just now, to be shown once.
pub(crate) struct Fresh {
    pub(crate) text: String,
}

impl Token {
    fn of(text: &str) -> Self {
        Self { digest: Sha256::digest(text.as_bytes()).into() }
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        self.digest.ct_eq(&shown).into()
    }
}

/// Path of the token's file in a state directory.
pub(crate) fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// The token of this state directory; created if there is none.
pub(crate) fn obtain(state_dir: &Path) -> io::Result<(Token, Option<Fresh>)> {
    let secret = secret_file::obtain(&path(state_dir), "token", PREFIX)?;
    let token = Token::of(&secret.text);
    Ok((token, secret.is_fresh.then_some(Fresh { text: secret.text })))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use harness::TestFolder;

    #[test]
    fn made_once_and_kept_private() {
        let folder = TestFolder::new();
        let (token, fresh) = obtain(folder.path()).unwrap();
        let text = fresh.unwrap().text;
        assert!(token.is(text.as_bytes()) && !token.is(b"") && !token.is(&text.as_bytes()[1..]));
        let mode = std::fs::metadata(path(folder.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (again, fresh) = obtain(folder.path()).unwrap();
        assert!(fresh.is_none() && again.is(text.as_bytes()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = TestFolder::new();
        obtain(folder.path()).unwrap();
        std::fs::set_permissions(path(folder.path()), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(obtain(folder.path()).is_err());
    }

    #[test]
    fn a_short_or_empty_file_is_refused() {
        let folder = TestFolder::new();
        for content in ["", "short\n", "a token with blanks that is long enough for sure"] {
            std::fs::write(path(folder.path()), content).unwrap();
            std::fs::set_permissions(path(folder.path()), std::fs::Permissions::from_mode(0o600)).unwrap();
            assert!(obtain(folder.path()).is_err(), "{content:?}");
        }
    }
}
