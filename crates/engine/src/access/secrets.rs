//! Secrets of the operator: values in files that only the server's user can read, and references to them.
//!
//! A reference is the name of a secret in the state directory (`secrets/NAME`), `file:/PATH`, or `credential:NAME` for the
//! credentials directory of the service manager. A value is read when a run opens an access that has it, and is kept
//! nowhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::given::Secret;

/// The largest secret.
pub const SECRET_BYTES_MAX: usize = 16 << 10;
const NAME_BYTES_MAX: usize = 64;
const FOLDER: &str = "secrets";
/// The variable by which systemd names the directory of credentials.
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";
const OTHERS_MAY_READ: u32 = 0o077;

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// In the state directory.
    Stored(String),
    /// In this file.
    File(PathBuf),
    /// In the credentials directory.
    Credential(String),
}

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The name cannot be that of a secret.
    #[error("`{0}` is no name of a secret: use letters, digits, `-`, `_` and `.`, at most 64")]
    Name(String),
    /// There is none.
    #[error("there is no secret `{0}`")]
    Missing(String),
    /// Others may read the file.
    #[error("others than its owner may read the secret `{0}`")]
    Exposed(String),
    /// It is empty, too long, or no text.
    #[error("the secret `{0}` must be text of 1 to {SECRET_BYTES_MAX} bytes without a NUL")]
    Unfit(String),
    /// The disk failed.
    #[error("the secret cannot be read or written")]
    Io(#[from] io::Error),
}

/// Whether a text can be the name of a secret.
pub fn is_secret_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_letter)
}

impl FromStr for SecretRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("file:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Self::File(path))
            } else {
                Err("file: needs an absolute path".to_owned())
            };
        }
        let (name, is_credential) = match text.strip_prefix("credential:") {
            Some(name) => (name, true),
            None => (text, false),
        };
        if !is_secret_name(name) {
            return Err(SecretError::Name(name.escape_debug().to_string()).to_string());
        }
        Ok(if is_credential { Self::Credential(name.to_owned()) } else { Self::Stored(name.to_owned()) })
    }
}

/// The secrets of a state directory.
#[derive(Debug, Clone)]
pub struct Secrets {
    folder: PathBuf,
}

impl Secrets {
    /// The secrets of that state directory. Nothing is created.
    pub fn new(state_dir: &Path) -> Self {
        Self { folder: state_dir.join(FOLDER) }
    }

    /// Reads a value. A final line end, as editors leave it, is not part of it.
    pub fn read(&self, from: &SecretRef) -> Result<Secret, SecretError> {
        let (path, name) = match from {
            SecretRef::Stored(name) => (self.folder.join(name), name.clone()),
            SecretRef::File(path) => (path.clone(), path.display().to_string()),
            SecretRef::Credential(name) => {
                let folder = std::env::var_os(CREDENTIALS_DIRECTORY)
                    .ok_or_else(|| SecretError::Missing(name.clone()))?;
                (PathBuf::from(folder).join(name), name.clone())
            }
        };
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(SecretError::Missing(name)),
            Err(error) => return Err(error.into()),
        };
        check_mode(&file, from, &name)?;
        let mut bytes = Vec::new();
        // One byte more shows that it is too long.
        file.take(SECRET_BYTES_MAX as u64 + 2).read_to_end(&mut bytes)?;
        let text = String::from_utf8(bytes).map_err(|_| SecretError::Unfit(name.clone()))?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        check_value(text, &name)?;
        Ok(Secret::new(text.to_owned()))
    }

    /// Keeps a value under a name. An earlier one is replaced at once, or stays whole.
    pub fn set(&self, name: &str, value: &str) -> Result<(), SecretError> {
        if !is_secret_name(name) {
            return Err(SecretError::Name(name.escape_debug().to_string()));
        }
        check_value(value, name)?;
        let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(&self.folder);
        made?;
        let draft = self.folder.join(format!(".{name}.{}", std::process::id()));
        let written = (|| {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(value.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, self.folder.join(name))?;
            File::open(&self.folder)?.sync_all()
        })();
        if written.is_err() {
            // A half-written draft is of no use; that it stays is told by the error itself.
            fs::remove_file(&draft).ok();
        }
        written.map_err(SecretError::from)
    }

    /// The names of all secrets in the state directory, sorted.
    pub fn list(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_secret_name(name)).collect();
        names.sort();
        Ok(names)
    }

    /// Removes a secret.
    pub fn remove(&self, name: &str) -> Result<(), SecretError> {
        if !is_secret_name(name) {
            return Err(SecretError::Name(name.escape_debug().to_string()));
        }
        match fs::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(SecretError::Missing(name.to_owned()))
            }
            removed => removed.map_err(SecretError::from),
        }
    }
}

/// Refuses a file that others may read. The service manager guards its own directory.
fn check_mode(file: &File, from: &SecretRef, name: &str) -> Result<(), SecretError> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(SecretError::Unfit(name.to_owned()));
    }
    let is_exposed = !matches!(from, SecretRef::Credential(_)) && found.mode() & OTHERS_MAY_READ != 0;
    if is_exposed { Err(SecretError::Exposed(name.to_owned())) } else { Ok(()) }
}

fn check_value(value: &str, name: &str) -> Result<(), SecretError> {
    let is_fit = (1..=SECRET_BYTES_MAX).contains(&value.len()) && !value.contains('\0');
    if is_fit { Ok(()) } else { Err(SecretError::Unfit(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_kept_listed_read_and_removed() {
        let folder = harness::TestFolder::new();
        let secrets = Secrets::new(folder.path());
        assert!(secrets.list().unwrap().is_empty());
        secrets.set("github", "a-token-of-some-length").unwrap();
        secrets.set("github", "another").unwrap();
        assert_eq!(secrets.list().unwrap(), ["github"]);
        let path = folder.path().join("secrets/github");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(folder.path().join("secrets")).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(secrets.read(&"github".parse().unwrap()).unwrap().expose(), "another");
        secrets.remove("github").unwrap();
        assert!(matches!(secrets.remove("github"), Err(SecretError::Missing(_))));
        assert!(matches!(secrets.read(&"github".parse().unwrap()), Err(SecretError::Missing(_))));
    }

    #[test]
    fn a_file_that_others_may_read_is_no_secret() {
        let folder = harness::TestFolder::new();
        let path = folder.path().join("token");
        fs::write(&path, "value\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let secrets = Secrets::new(folder.path());
        let from: SecretRef = format!("file:{}", path.display()).parse().unwrap();
        assert!(matches!(secrets.read(&from), Err(SecretError::Exposed(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(secrets.read(&from).unwrap().expose(), "value");
        assert!(secrets.read(&SecretRef::File(folder.path().to_owned())).is_err());
    }

    #[test]
    fn names_that_are_paths_and_values_that_are_no_text_are_refused() {
        let folder = harness::TestFolder::new();
        let secrets = Secrets::new(folder.path());
        for name in ["", "..", ".x", "a/b", "/etc/passwd", "a\0", "a b", &"a".repeat(65)] {
            assert!(matches!(secrets.set(name, "value"), Err(SecretError::Name(_))), "{name:?}");
            assert!(name.parse::<SecretRef>().is_err(), "{name:?}");
        }
        assert!("file:relative".parse::<SecretRef>().is_err());
        for value in ["", "a\0b", &"x".repeat(SECRET_BYTES_MAX + 1)] {
            assert!(matches!(secrets.set("name", value), Err(SecretError::Unfit(_))));
        }
    }
}
