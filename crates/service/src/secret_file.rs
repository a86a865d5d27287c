//! A secret that a server creates at its first start. The secret is kept in a file that only its owner can
//! read, and is never logged.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const RANDOM_BYTES: usize = 32;
const FILE_BYTES_MAX: u64 = 4096;
/// Minimum length of a handwritten secret.
const CHARACTERS_MIN: usize = 32;
const OTHERS_MAY_LOOK: u32 = 0o077;

/// The content of the file, and whether it was created just now.
pub(crate) struct Secret {
    pub(crate) text: String,
    pub(crate) is_fresh: bool,
}

/// Reads the secret in this file. Creates it, with this prefix, if there is none. `what` is for messages.
pub(crate) fn obtain(path: &Path, what: &str, prefix: &str) -> io::Result<Secret> {
    if let Some(text) = read(path, what)? {
        return Ok(Secret { text, is_fresh: false });
    }
    let text = make(prefix)?;
    match write_new(path, &text) {
        Ok(()) => Ok(Secret { text, is_fresh: true }),
        // Another server was first, so its secret is used.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = read(path, what)?.ok_or_else(|| unfit(path, what, "it disappeared"))?;
            Ok(Secret { text, is_fresh: false })
        }
        Err(error) => Err(error),
    }
}

fn read(path: &Path, what: &str) -> io::Result<Option<String>> {
    let file = match OpenOptions::new().read(true).custom_flags(no_follow()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unfit(path, what, &error.to_string())),
    };
    let found = file.metadata()?;
    let is_ours = found.is_file() && found.uid() == rustix::process::geteuid().as_raw();
    if !is_ours || found.mode() & OTHERS_MAY_LOOK != 0 {
        return Err(unfit(path, what, "others can read it: chmod 600 it, or remove it to get a new one"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    let text = text.trim();
    if text.len() < CHARACTERS_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let reason = "it does not hold 32 or more plain characters: remove it to get a new one";
        return Err(unfit(path, what, reason));
    }
    Ok(Some(text.to_owned()))
}

/// Creates the file atomically: it is linked to its name only after its content is on the disk.
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

fn make(prefix: &str) -> io::Result<String> {
    let mut bytes = [0_u8; RANDOM_BYTES];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled != RANDOM_BYTES {
        return Err(io::Error::other("the machine gives no random numbers"));
    }
    let mut text = prefix.to_owned();
    for byte in bytes {
        write!(text, "{byte:02x}").map_err(io::Error::other)?;
    }
    Ok(text)
}

fn no_follow() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default()
}

fn unfit(path: &Path, what: &str, reason: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the {what} file {} cannot be used: {reason}", path.display()),
    )
}
