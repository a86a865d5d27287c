//! The bearer token of a server that has no other users: made at the first start, kept in a file that only
//! its owner can read, never logged.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

const FILE: &str = "token";
const PREFIX: &str = "plsd_";
const RANDOM_BYTES: usize = 32;
const FILE_BYTES_MAX: u64 = 4096;
/// A token that somebody wrote by hand has at least this many characters.
const CHARACTERS_MIN: usize = 32;
const OTHERS_MAY_LOOK: u32 = 0o077;

/// What a request must show. Only its digest is kept in memory.
pub(crate) struct Token {
    digest: [u8; 32],
}

/// A token that was made just now, to be shown once.
pub(crate) struct Fresh {
    pub(crate) text: String,
}

impl Token {
    fn of(text: &str) -> Self {
        Self { digest: Sha256::digest(text.as_bytes()).into() }
    }

    /// Whether this is it, in a time that does not depend on where they differ.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        let differing = self.digest.iter().zip(shown).fold(0, |all, (own, other)| all | (own ^ other));
        std::hint::black_box(differing) == 0
    }
}

/// Where the token of a state directory is.
pub(crate) fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// The token of this state directory; made if there is none.
pub(crate) fn obtain(state_dir: &Path) -> io::Result<(Token, Option<Fresh>)> {
    let path = path(state_dir);
    if let Some(text) = read(&path)? {
        return Ok((Token::of(&text), None));
    }
    let text = make()?;
    match write_new(&path, &text) {
        Ok(()) => Ok((Token::of(&text), Some(Fresh { text }))),
        // Another server was first: its token is the one.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = read(&path)?.ok_or_else(|| unfit(&path, "it disappeared"))?;
            Ok((Token::of(&text), None))
        }
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match OpenOptions::new().read(true).custom_flags(no_follow()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unfit(path, &error.to_string())),
    };
    let found = file.metadata()?;
    let is_ours = found.is_file() && found.uid() == rustix::process::geteuid().as_raw();
    if !is_ours || found.mode() & OTHERS_MAY_LOOK != 0 {
        return Err(unfit(path, "others can read it: chmod 600 it, or remove it to get a new one"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    let text = text.trim();
    if text.len() < CHARACTERS_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unfit(
            path,
            "it holds no token of 32 or more plain characters: remove it to get a new one",
        ));
    }
    Ok(Some(text.to_owned()))
}

/// Whole or not at all: linked into place under its name once it is on the disk.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        std::fs::hard_link(&draft, path)
    })();
    std::fs::remove_file(&draft).ok();
    written
}

fn make() -> io::Result<String> {
    let mut bytes = [0_u8; RANDOM_BYTES];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled != RANDOM_BYTES {
        return Err(io::Error::other("the machine gives no random numbers"));
    }
    let mut text = PREFIX.to_owned();
    for byte in bytes {
        write!(text, "{byte:02x}").map_err(io::Error::other)?;
    }
    Ok(text)
}

fn no_follow() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default()
}

fn unfit(path: &Path, reason: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the token file {} cannot be used: {reason}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::test_folder::TestFolder;

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
