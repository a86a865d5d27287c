//! Catalogues on the disk: one file for each server, beneath the state directory. A server with logins has one more for each
//! principal, since it may show each of them other tools.
//!
//! A file has a line for the header, and for each tool a line of facts, a line with its definition, and one with the
//! accepted definition if that differs. It is written to a new file that replaces the old one, so a killed writer leaves
//! the old one whole. Servers and commands share the files; a change is made under a lock, from what the file says then.

use std::fs::{DirBuilder, File};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use policy::Principal;
use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

use super::{Catalogue, Facts, Header, Tool};

/// The largest file: the largest listing, its accepted definitions, and the facts.
const FILE_BYTES_MAX: u64 = 128 << 20;
const FORMAT: &str = "palisade-tools-1";

/// Where catalogues are kept.
#[derive(Debug, Clone)]
pub(crate) struct Shelf {
    folder: PathBuf,
    /// The largest file.
    bytes_max: u64,
}

/// Tells two states of a file apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64, i64, i64, u64);

impl Shelf {
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self { folder: state_dir.join("tools"), bytes_max: FILE_BYTES_MAX }
    }

    /// With another bound of a file.
    #[cfg(test)]
    pub(super) fn of_at_most(self, bytes_max: u64) -> Self {
        Self { bytes_max, ..self }
    }

    fn path(&self, server: &str) -> PathBuf {
        self.folder.join(format!("{server}.catalogue"))
    }

    /// The name of the catalogue that a principal has of a server. A name of a server has no dot.
    pub(crate) fn key_of(server: &str, principal: &Principal) -> String {
        let digest = Sha256::digest(principal.as_str().as_bytes());
        let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("{server}.{digest}")
    }

    /// The names of the catalogues that principals have of a server, besides the server's own.
    pub(crate) fn keys(&self, server: &str) -> std::io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut keys = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let key = name.to_str().and_then(|name| name.strip_suffix(".catalogue"));
            let is_own = |key: &&str| key.split_once('.').is_some_and(|(of, _)| of == server);
            keys.extend(key.filter(is_own).map(str::to_owned));
        }
        keys.sort();
        Ok(keys)
    }

    /// The state of a server's file; `None` if there is none.
    pub(crate) fn stamp(&self, server: &str) -> Option<Stamp> {
        let found = std::fs::metadata(self.path(server)).ok()?;
        Some(Stamp(found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    }

    /// What is known about a server. A file that cannot be read counts as none, and is reported.
    pub(crate) fn load(&self, server: &str) -> Catalogue {
        self.known(server).unwrap_or_else(|error| nothing_accepted(server, &error))
    }

    /// The same. Fails where the file may be read later: what it says must not be overwritten.
    fn known(&self, server: &str) -> std::io::Result<Catalogue> {
        match self.read(server) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Catalogue::default()),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                Ok(nothing_accepted(server, &error))
            }
            other => other,
        }
    }

    fn read(&self, server: &str) -> std::io::Result<Catalogue> {
        let file = File::open(self.path(server))?;
        let mut text = String::new();
        file.take(self.bytes_max + 1).read_to_string(&mut text)?;
        if text.len() as u64 > self.bytes_max {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        parse(&text).ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, "it is damaged"))
    }

    /// Changes what is known about a server, and keeps it. Returns the new state. A file that could not be read again
    /// does not replace the old one, which has the pins.
    pub(crate) fn update<T>(
        &self,
        server: &str,
        change: impl FnOnce(&mut Catalogue) -> T,
    ) -> std::io::Result<(Catalogue, T)> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let lock = private(&self.folder.join(format!("{server}.lock")))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        let mut catalogue = self.known(server)?;
        let told = change(&mut catalogue);
        let draft = self.folder.join(format!("{server}.draft"));
        if let Err(error) = self.write(&catalogue, &draft) {
            if error.kind() != std::io::ErrorKind::FileTooLarge {
                return Err(error);
            }
            // What results look like can be learned again.
            catalogue.forget_shapes();
            self.write(&catalogue, &draft)?;
        }
        std::fs::rename(&draft, self.path(server))?;
        Ok((catalogue, told))
    }

    fn write(&self, catalogue: &Catalogue, draft: &Path) -> std::io::Result<()> {
        let mut out = BufWriter::new(Bounded { file: private(draft)?, left: self.bytes_max });
        write(catalogue, &mut out)?;
        out.into_inner().map_err(std::io::IntoInnerError::into_error)?.file.sync_data()
    }

    /// Forgets a server, also what principals have of it: its pins, aliases and shapes.
    pub(crate) fn forget(&self, server: &str) -> std::io::Result<bool> {
        let mut was_known = false;
        for key in self.keys(server)?.into_iter().chain([server.to_owned()]) {
            match std::fs::remove_file(self.path(&key)) {
                Ok(()) => was_known = true,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(was_known)
    }
}

/// What is known if the file cannot be read: nothing is accepted then, and nothing counts as the first listing.
fn nothing_accepted(server: &str, error: &std::io::Error) -> Catalogue {
    tracing::error!(server, %error, "catalogue_unreadable");
    let header = Header { is_listed: true, ..Header::default() };
    Catalogue::new(header, Vec::new())
}

/// A file that takes a bounded number of bytes.
struct Bounded {
    file: File,
    left: u64,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        let count = self.file.write(bytes)?;
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

fn private(path: &Path) -> std::io::Result<File> {
    File::options().create(true).write(true).truncate(true).mode(0o600).open(path)
}

fn write(catalogue: &Catalogue, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "{FORMAT} {}", serde_json::to_string(&catalogue.header)?)?;
    for tool in &catalogue.tools {
        writeln!(out, "T{}", serde_json::to_string(&tool.facts)?)?;
        writeln!(out, "D{}", tool.definition)?;
        if let Some(pinned) = &tool.pinned_definition {
            writeln!(out, "P{pinned}")?;
        }
    }
    writeln!(out, "E")
}

fn parse(text: &str) -> Option<Catalogue> {
    let mut lines = text.lines();
    let header: Header = serde_json::from_str(lines.next()?.strip_prefix(FORMAT)?).ok()?;
    let mut tools: Vec<Tool> = Vec::new();
    for line in lines {
        let (kind, rest) = line.split_at_checked(1)?;
        match kind {
            "T" => {
                let facts: Facts = serde_json::from_str(rest).ok()?;
                tools.push(Tool { facts, definition: "".into(), pinned_definition: None });
            }
            "D" => tools.last_mut()?.definition = rest.into(),
            "P" => tools.last_mut()?.pinned_definition = Some(rest.into()),
            "E" => return Some(Catalogue::new(header, tools)),
            _ => return None,
        }
    }
    None
}
