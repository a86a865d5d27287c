//! The keys of the audit of one state directory.
//!
//! ```text
//! audit/keys/current     the secret of the signing key, 0600
//! audit/keys/public      public keys, one per line, the newest last
//! audit/keys/rotations   rotations as JSON strings, one per line; each is signed by the key before
//! audit/keys/arguments   the secret of the digests of arguments, 0600
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use audit::{KeyRing, Note, PublicKey, Rotation, SigningKey};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use super::files::{self, KEYS, make_file, make_folder, random_hex, read_small, replace_small};
use crate::clock::unix_ms;
use crate::gatekeeper::feed;

const CURRENT: &str = "current";
const PUBLIC: &str = "public";
const ROTATIONS: &str = "rotations";
const ARGUMENTS: &str = "arguments";
const SECRET_BYTES: usize = 32;
const OTHERS_MAY_LOOK: u32 = 0o077;

/// The folder of the keys.
#[derive(Debug, Clone)]
pub(super) struct KeyFolder(PathBuf);

impl KeyFolder {
    pub(super) fn new(audit: &Path) -> Self {
        Self(audit.join(KEYS))
    }

    /// The signing key. The first use makes it.
    pub(super) fn signing(&self) -> io::Result<SigningKey> {
        make_folder(&self.0)?;
        let key = key_of(&self.obtain(CURRENT)?)?;
        let known = read_small(&self.0.join(PUBLIC)).unwrap_or_default();
        if !known.lines().any(|line| line == key.public().to_string()) {
            self.append(PUBLIC, &key.public().to_string())?;
        }
        Ok(key)
    }

    /// All public keys, the newest last.
    pub(super) fn public(&self) -> io::Result<Vec<PublicKey>> {
        let text = match read_small(&self.0.join(PUBLIC)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        Ok(KeyRing::parse(&text).map(|ring| ring.keys().to_vec()).unwrap_or_default())
    }

    /// All rotations, the oldest first.
    pub(super) fn rotations(&self) -> Vec<String> {
        let text = read_small(&self.0.join(ROTATIONS)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Replaces the signing key. The old one signs the name of the new one, and is gone then.
    pub(super) fn rotate(&self) -> io::Result<PublicKey> {
        make_folder(&self.0)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.0.join("lock"))?;
        lock.lock()?;
        let old = self.signing()?;
        let secret = random_hex(SECRET_BYTES)?;
        let new = key_of(&secret)?;
        let rotation = Rotation { new: new.public().clone(), ms: unix_ms() }.sign(&old);
        self.append(ROTATIONS, &Value::String(rotation.to_string()).to_string())?;
        self.append(PUBLIC, &new.public().to_string())?;
        replace_small(&self.0.join(CURRENT), &secret)?;
        Ok(new.public().clone())
    }

    /// The key that digests arguments.
    pub(super) fn arguments(&self) -> io::Result<ArgumentsKey> {
        make_folder(&self.0)?;
        let secret = self.obtain(ARGUMENTS)?;
        Hmac::new_from_slice(secret.as_bytes()).map(ArgumentsKey).map_err(|_| unfit("the key of digests"))
    }

    /// When the signing key was last replaced, to notice that it was.
    pub(super) fn changed(&self) -> Option<(u64, i64, i64)> {
        let found = fs::metadata(self.0.join(CURRENT)).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec()))
    }

    /// Reads a secret; makes it if there is none.
    fn obtain(&self, name: &str) -> io::Result<String> {
        let path = self.0.join(name);
        match read_secret(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        let draft = self.0.join(format!("{name}.draft-{}", random_hex(4)?));
        let mut file = make_file(&draft)?;
        file.write_all(random_hex(SECRET_BYTES)?.as_bytes())?;
        file.sync_all()?;
        // If another server was first, its secret is used.
        let linked = fs::hard_link(&draft, &path);
        fs::remove_file(&draft)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => read_secret(&path),
        }
    }

    fn append(&self, name: &str, line: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(self.0.join(name))?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()
    }
}

fn read_secret(path: &Path) -> io::Result<String> {
    let found = File::open(path)?.metadata()?;
    if found.mode() & OTHERS_MAY_LOOK != 0 || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(unfit("others can read it: a secret of the audit"));
    }
    let text = files::read_small(path)?.trim().to_owned();
    if text.len() == 2 * SECRET_BYTES { Ok(text) } else { Err(unfit("a secret of the audit")) }
}

fn key_of(secret: &str) -> io::Result<SigningKey> {
    let digits = audit::Hash::parse(secret).ok_or_else(|| unfit("the audit key"))?;
    SigningKey::from_seed(&digits.0).ok_or_else(|| unfit("the audit key"))
}

fn unfit(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} is not usable"))
}

/// The note that names this key as the successor of another.
pub(super) fn rotation_to(key: &PublicKey, rotations: &[String]) -> Option<String> {
    let names_it =
        |text: &&String| Note::parse(text).is_ok() && text.lines().any(|line| line == key.to_string());
    rotations.iter().rev().find(names_it).cloned()
}

/// Digests arguments, so that equal calls can be recognised and values cannot be guessed without the key.
#[derive(Clone)]
pub(super) struct ArgumentsKey(Hmac<Sha256>);

impl ArgumentsKey {
    pub(super) fn digest(&self, arguments: &Value) -> String {
        let mut mac = self.0.clone();
        feed(&mut mac, arguments);
        crate::handle::hex(&mac.finalize().into_bytes())
    }
}

impl std::fmt::Debug for ArgumentsKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArgumentsKey").finish_non_exhaustive()
    }
}
