//! Signed file URLs: a URL allows one action on one file for a limited time, without a token.
//!
//! A URL carries a grant and its signature (HMAC-SHA256) with a key from the state directory. The server
//! keeps no record of URLs. [`crate::files`] checks the grant again when the URL is used: the principal's credential
//! must still be in force with the scope `sandbox`, and the principal must still own the sandbox. The tools of `mcp` offer URLs through [`FileUrlMaker`] and do not know their
//! format.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine::Principal;
use engine::workspace::FilePath;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use mcp::file_urls::{FileAction, FileUrl, FileUrlMaker, TRANSFER_BYTES_MAX};

use crate::reload::Replaceable;
use crate::secret_file;

/// Path prefix of file URLs.
pub(crate) const ROUTE_PREFIX: &str = "/files/";
/// How long a URL is valid.
const LIFE: Duration = Duration::from_secs(60 * 60);
const KEY_FILE: &str = "links.key";
const KEY_PREFIX: &str = "plsl_";
/// Longer tokens are refused without decoding. A path has at most 1024 bytes, and base64 adds a third.
const TOKEN_BYTES_MAX: usize = 3072;
/// Domain separation from other uses of the key.
const DOMAIN: &[u8] = b"palisade link 1\0";

fn letter(action: FileAction) -> &'static str {
    match action {
        FileAction::Download => "d",
        FileAction::Upload => "u",
    }
}

/// The grant in a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) action: FileAction,
    pub(crate) principal: Principal,
    pub(crate) sandbox_id: String,
    pub(crate) path: FilePath,
    /// Seconds since the epoch.
    pub(crate) expires_s: u64,
    pub(crate) bytes_max: u64,
}

impl Grant {
    /// When the URL was made, in seconds since the epoch.
    pub(crate) fn made_s(&self) -> u64 {
        self.expires_s.saturating_sub(LIFE.as_secs())
    }
}

type Written = (String, String, String, String, u64, u64);

/// Signs grants and verifies its own signatures.
pub(crate) struct FileUrlKey(Replaceable<Hmac<Sha256>>);

impl FileUrlKey {
    /// The key of this state directory; created if there is none.
    pub(crate) fn obtain(state_dir: &Path) -> io::Result<Self> {
        Ok(Self(Replaceable::new(keyed(state_dir)?)))
    }

    /// Reads the key again. URLs that another key signed are not valid any more.
    pub(crate) fn reload(&self, state_dir: &Path) -> io::Result<()> {
        self.0.replace(keyed(state_dir)?);
        Ok(())
    }

    fn signed(&self, grant: &Grant) -> io::Result<String> {
        let Grant { action, principal, sandbox_id, path, expires_s, bytes_max } = grant;
        let written = (letter(*action), principal.as_str(), sandbox_id, path.as_str(), expires_s, bytes_max);
        let written = serde_json::to_vec(&written)?;
        let signature = self.over(&written).finalize().into_bytes();
        Ok(format!("{}.{}", URL_SAFE_NO_PAD.encode(written), URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The grant of a token at that time. Returns `None` if this server did not sign it, it was changed, or
    /// it has expired.
    pub(crate) fn grant(&self, token: &str, now: SystemTime) -> Option<Grant> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (written, signature) = token.split_once('.')?;
        let written = URL_SAFE_NO_PAD.decode(written).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // The comparison takes constant time.
        self.over(&written).verify_slice(&signature).ok()?;
        let (action, principal, sandbox_id, path, expires_s, bytes_max): Written =
            serde_json::from_slice(&written).ok()?;
        let action =
            [FileAction::Download, FileAction::Upload].into_iter().find(|known| letter(*known) == action)?;
        let (principal, path) = (Principal::new(&principal)?, FilePath::parse(&path).ok()?);
        let is_alive = seconds(now) < expires_s;
        is_alive.then_some(Grant { action, principal, sandbox_id, path, expires_s, bytes_max })
    }

    fn over(&self, written: &[u8]) -> Hmac<Sha256> {
        Hmac::clone(&self.0.get()).chain_update(DOMAIN).chain_update(written)
    }
}

fn keyed(state_dir: &Path) -> io::Result<Hmac<Sha256>> {
    let secret = secret_file::obtain(&state_dir.join(KEY_FILE), "link key", KEY_PREFIX)?;
    Hmac::new_from_slice(secret.text.as_bytes()).map_err(io::Error::other)
}

/// Makes URLs with the address that one caller uses for this server.
#[derive(Clone)]
pub(crate) struct SignedFileUrls {
    key: Arc<FileUrlKey>,
    /// Scheme, host and optionally a path, without a trailing slash.
    base: Arc<str>,
}

impl SignedFileUrls {
    /// Makes URLs that begin with `base`.
    pub(crate) fn new(key: &Arc<FileUrlKey>, base: &str) -> Self {
        Self { key: Arc::clone(key), base: base.trim_end_matches('/').into() }
    }
}

impl FileUrlMaker for SignedFileUrls {
    fn make(
        &self,
        action: FileAction,
        principal: &Principal,
        sandbox_id: &str,
        path: &FilePath,
    ) -> Option<FileUrl> {
        let expires_s = seconds(SystemTime::now() + LIFE);
        let grant = Grant {
            action,
            principal: principal.clone(),
            sandbox_id: sandbox_id.to_owned(),
            path: path.clone(),
            expires_s,
            bytes_max: TRANSFER_BYTES_MAX,
        };
        let token = self.key.signed(&grant).ok().filter(|token| token.len() <= TOKEN_BYTES_MAX)?;
        // The name is only for saving the file; the token alone determines the file.
        let url = format!("{}{ROUTE_PREFIX}{token}/{}", self.base, mcp::percent::encode(path.name()));
        Some(FileUrl { url, expires_ms: expires_s * 1000 })
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(u64::MAX, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness::TestFolder;

    fn grant() -> Grant {
        Grant {
            action: FileAction::Download,
            principal: Principal::local(),
            sandbox_id: "sbx_1".to_owned(),
            path: FilePath::parse("out/ä b.csv").unwrap(),
            expires_s: 1000,
            bytes_max: 7,
        }
    }

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    #[test]
    fn a_url_says_what_was_granted_until_it_expires() {
        let folder = TestFolder::new();
        let key = FileUrlKey::obtain(folder.path()).unwrap();
        let token = key.signed(&grant()).unwrap();
        assert_eq!(key.grant(&token, at(999)), Some(grant()));
        assert_eq!(key.grant(&token, at(1000)), None);
        let again = FileUrlKey::obtain(folder.path()).unwrap();
        assert_eq!(again.grant(&token, at(1)), Some(grant()), "the key is kept");
    }

    #[test]
    fn nothing_but_our_own_signature_opens() {
        let (folder, other) = (TestFolder::new(), TestFolder::new());
        let key = FileUrlKey::obtain(folder.path()).unwrap();
        let token = key.signed(&grant()).unwrap();
        let (written, signature) = token.split_once('.').unwrap();
        let mut longer: Written = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(written).unwrap()).unwrap();
        longer.4 += 1;
        let longer = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&longer).unwrap());
        let foreign = FileUrlKey::obtain(other.path()).unwrap().signed(&grant()).unwrap();
        for bad in [
            String::new(),
            ".".to_owned(),
            written.to_owned(),
            format!("{written}."),
            format!("{written}.{}", &signature[..20]),
            format!("{longer}.{signature}"),
            foreign,
            "x".repeat(TOKEN_BYTES_MAX + 1),
        ] {
            assert_eq!(key.grant(&bad, at(1)), None, "{bad}");
        }
        for index in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
            assert_eq!(key.grant(std::str::from_utf8(&bytes).unwrap(), at(1)), None, "byte {index}");
        }
    }

    #[test]
    fn the_address_ends_with_a_readable_name() {
        let folder = TestFolder::new();
        let key = Arc::new(FileUrlKey::obtain(folder.path()).unwrap());
        let urls = SignedFileUrls::new(&key, "https://tools.example.com/");
        let url = urls.make(FileAction::Upload, &Principal::local(), "sbx_1", &grant().path).unwrap();
        let rest = url.url.strip_prefix("https://tools.example.com/files/").unwrap();
        let (token, name) = rest.split_once('/').unwrap();
        assert_eq!(name, "%C3%A4%20b.csv");
        let granted = key.grant(token, SystemTime::now()).unwrap();
        assert_eq!((granted.action, granted.bytes_max), (FileAction::Upload, TRANSFER_BYTES_MAX));
        assert_eq!(granted.expires_s * 1000, url.expires_ms);
    }
}
