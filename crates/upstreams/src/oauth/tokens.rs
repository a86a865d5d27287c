//! Tokens on the disk: one file for each server and principal, readable by this user only.
//!
//! A token is for one resource. It is sent to no other address, and shown nowhere.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use policy::Principal;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::turns::{self, FileTurn, RefreshBook};

const FOLDER: &str = "tools/tokens";
const FILE_BYTES_MAX: u64 = 256 << 10;

/// What a login gave.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Granted {
    /// The URL of the server, as it was configured at the login.
    pub(crate) url: String,
    pub(crate) resource: String,
    pub(crate) token_endpoint: String,
    pub(crate) client_id: String,
    pub(crate) access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<String>,
    /// Seconds since 1970; `None` if the server did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_s: Option<u64>,
    #[serde(default)]
    pub(crate) scope: String,
}

/// Where tokens are.
#[derive(Debug, Clone)]
pub(crate) struct TokenStore {
    folder: PathBuf,
    /// The refreshes in this process.
    pub(super) turns: RefreshBook,
}

impl TokenStore {
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self { folder: state_dir.join(FOLDER), turns: RefreshBook::default() }
    }

    fn file(&self, server: &str, principal: &Principal) -> PathBuf {
        // A name of a server has no dot.
        self.folder.join(format!("{server}.{}", digest_of(principal)))
    }

    /// The tokens of a principal for the server at that URL.
    pub(crate) fn load(&self, server: &str, principal: &Principal, url: &str) -> Option<Granted> {
        let file = File::open(self.file(server, principal)).ok()?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
        let granted: Granted = serde_json::from_str(&text).ok()?;
        // A server that was moved elsewhere does not get the old tokens.
        (granted.url == url).then_some(granted)
    }

    /// Keeps the tokens of a login.
    pub(crate) fn save(&self, server: &str, principal: &Principal, granted: &Granted) -> io::Result<()> {
        let _change = self.change()?;
        self.write(server, principal, granted)
    }

    /// Puts refreshed tokens in the place of those that were refreshed. A login or `forget` that came meanwhile stays.
    /// Returns what is kept now.
    pub(super) fn replace(
        &self,
        server: &str,
        principal: &Principal,
        (before, now): (&Granted, &Granted),
    ) -> io::Result<Option<Granted>> {
        let _change = self.change()?;
        let Some(known) = self.load(server, principal, &before.url) else { return Ok(None) };
        let tokens = |one: &Granted| (one.access_token.clone(), one.refresh_token.clone());
        if tokens(&known) != tokens(before) {
            return Ok(Some(known));
        }
        self.write(server, principal, now)?;
        Ok(Some(now.clone()))
    }

    fn write(&self, server: &str, principal: &Principal, granted: &Granted) -> io::Result<()> {
        let path = self.file(server, principal);
        let mut draft = path.clone().into_os_string();
        draft.push(format!(".draft-{}", std::process::id()));
        let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(serde_json::to_string(granted).map_err(io::Error::other)?.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &path)
    }

    /// Removes the tokens of all principals for a server. Returns whether there were some.
    pub(crate) fn forget(&self, server: &str) -> io::Result<bool> {
        let _change = self.change()?;
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let (prefix, mut is_any) = (format!("{server}."), false);
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                fs::remove_file(entry.path())?;
                is_any = true;
            }
        }
        Ok(is_any)
    }

    /// Waits for the turn to refresh the tokens of a principal for a server.
    pub(super) async fn refresh_turn(&self, server: &str, principal: &Principal) -> io::Result<FileTurn> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let digest = digest_of(principal);
        turns::file_turn(&self.folder.join(format!(".lock-{server}.{digest}"))).await
    }

    /// Held while files are changed, for a moment. Blocks.
    fn change(&self) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let lock = private(&self.folder.join(".change"))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    }
}

fn digest_of(principal: &Principal) -> String {
    let digest = Sha256::digest(principal.as_str().as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Opens a file that only this user reads, and makes it if there is none.
pub(super) fn private(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).mode(0o600).open(path)
}

pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn tokens_belong_to_a_principal_and_a_url_and_only_the_user_reads_them() {
        let folder = harness::TestFolder::new();
        let store = TokenStore::new(folder.path());
        let (alice, bob) = (Principal::local(), Principal::new("key:bob").unwrap());
        let granted = Granted {
            url: "https://a.example/mcp".to_owned(),
            resource: "https://a.example/mcp".to_owned(),
            token_endpoint: "https://a.example/token".to_owned(),
            client_id: "c".to_owned(),
            access_token: "secret".to_owned(),
            refresh_token: None,
            expires_s: None,
            scope: String::new(),
        };
        store.save("s", &alice, &granted).unwrap();
        assert_eq!(store.load("s", &alice, &granted.url).unwrap().access_token, "secret");
        assert!(store.load("s", &bob, &granted.url).is_none());
        assert!(store.load("t", &alice, &granted.url).is_none());
        assert!(store.load("s", &alice, "https://b.example/mcp").is_none());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let file = store.file("s", &alice);
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        assert!(store.forget("s").unwrap() && !store.forget("s").unwrap());
        assert!(store.load("s", &alice, &granted.url).is_none());
    }
}
