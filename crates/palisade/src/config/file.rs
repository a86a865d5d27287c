//! Reads `palisade.toml`: opens it safely, parses it as a whole, and reports every error with its line.
//!
//! A trusted file must belong to root or to the user, and no other user may write it. These checks use the
//! open file descriptor, so the file cannot be exchanged in between. The file of a working directory is not
//! trusted. It must only be a regular file of bounded size. A symbolic link there is not followed, because it
//! could point at a secret that an error message would quote.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use toml_edit::{Document, Item, TableLike, Value};

use super::key::Key;
use super::settings::{Assignment, Origin, contradictions};
use super::value::{Raw, Setting};
use super::{ConfigError, Problem};

/// Maximum size of a configuration file.
pub(crate) const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Maximum number of reported errors.
const PROBLEMS_MAX: usize = 20;

/// How far a file is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The operator's or the user's own file.
    Own,
    /// A file found in the working directory.
    Stranger,
}

/// The text and the identity of a file.
pub(crate) struct Opened {
    pub(crate) text: String,
    /// Device and inode.
    pub(crate) identity: (u64, u64),
}

/// The text of a file, or `None` if there is no file.
pub(crate) fn open(path: &Path, trust: Trust) -> Result<Option<Opened>, ConfigError> {
    open_bounded(path, trust, FILE_BYTES_MAX)
}

/// The text of a file of at most that size, or `None` if there is no file.
pub(crate) fn open_bounded(path: &Path, trust: Trust, bytes_max: u64) -> Result<Option<Opened>, ConfigError> {
    let unfit = |reason: String, remedy: String| ConfigError::Unfit { path: path.to_owned(), reason, remedy };
    // O_NONBLOCK: a named pipe at this path must not block the open.
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    if trust == Trust::Stranger {
        flags |= OFlags::NOFOLLOW;
    }
    let file = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(descriptor) => File::from(descriptor),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(Errno::LOOP) => {
            return Err(unfit(
                "it is a symbolic link".to_owned(),
                "put the file itself there, or remove the link".to_owned(),
            ));
        }
        Err(error) => {
            let remedy =
                "make it readable, or remove it; without it stricter settings could be missed".to_owned();
            return Err(unfit(std::io::Error::from(error).to_string(), remedy));
        }
    };
    let unreadable = |error: std::io::Error| unfit(error.to_string(), "see that it can be read".to_owned());
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(unfit(
            "it is not a plain file".to_owned(),
            "remove it, or put a plain file there".to_owned(),
        ));
    }
    if trust == Trust::Own {
        let user = rustix::process::geteuid().as_raw();
        check_ownership(found.uid(), found.mode(), user)
            .map_err(|(reason, remedy)| unfit(reason, remedy.replace("FILE", &path.display().to_string())))?;
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > bytes_max {
        return Err(unfit(format!("it is larger than {bytes_max} bytes"), "make it smaller".to_owned()));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| unfit("it is not UTF-8 text".to_owned(), "save it as UTF-8".to_owned()))?;
    Ok(Some(Opened { text, identity: (found.dev(), found.ino()) }))
}

/// Reason and remedy if another user could have written the file.
pub(super) fn check_ownership(owner: u32, mode: u32, user: u32) -> Result<(), (String, String)> {
    const OTHERS_MAY_WRITE: u32 = 0o022;
    if owner != 0 && owner != user {
        let reason =
            format!("it belongs to user {owner}, neither to root nor to the user running Palisade ({user})");
        return Err((reason, format!("chown {user} FILE")));
    }
    if mode & OTHERS_MAY_WRITE != 0 {
        return Err(("others than its owner may write it".to_owned(), "chmod go-w FILE".to_owned()));
    }
    Ok(())
}

/// All settings of a file, or all of its errors.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Vec<Assignment>, ConfigError> {
    let document = Document::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        ConfigError::Mistakes(vec![Problem {
            place: place(path, line),
            message: terminal::plain(error.message()),
        }])
    })?;
    let mut walk = Walk { path, text, keys: Key::all(), assignments: Vec::new(), problems: Vec::new() };
    walk.table("", document.as_table());
    let Walk { assignments, mut problems, .. } = walk;
    for (origin, message) in contradictions(&assignments) {
        problems.push(Problem { place: origin.to_string(), message });
    }
    if problems.is_empty() {
        return Ok(assignments);
    }
    problems.truncate(PROBLEMS_MAX);
    Err(ConfigError::Mistakes(problems))
}

fn place(path: &Path, line: usize) -> String {
    Origin::File { path: path.to_owned(), line }.to_string()
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

struct Walk<'a> {
    path: &'a Path,
    text: &'a str,
    keys: Vec<Key>,
    assignments: Vec<Assignment>,
    problems: Vec<Problem>,
}

impl Walk<'_> {
    /// Reads one table; `prefix` is its name with a final dot, or empty.
    fn table(&mut self, prefix: &str, table: &dyn TableLike) {
        for (name, item) in table.iter() {
            let span = table.get_key_value(name).and_then(|(key, _)| key.span()).or_else(|| item.span());
            let line = span.map_or(1, |span| line_of(self.text, span.start));
            self.item(prefix, name, item, line);
        }
    }

    fn item(&mut self, prefix: &str, name: &str, item: &Item, line: usize) {
        let full = format!("{prefix}{name}");
        // A quoted name with dots is one name, not a path.
        let known =
            if name.contains('.') { None } else { self.keys.iter().find(|key| key.name() == full).cloned() };
        if let Some(key) = known {
            match Setting::parse(&key, &raw(item)) {
                Ok(setting) => {
                    let origin = Origin::File { path: self.path.to_owned(), line };
                    self.assignments.push(Assignment { setting, origin });
                }
                Err(message) => self.problem(line, format!("{full}: {message}")),
            }
            return;
        }
        let section = format!("{full}.");
        let is_section = !name.contains('.') && self.keys.iter().any(|key| key.name().starts_with(&section));
        match item.as_table_like() {
            Some(table) if is_section => self.table(&section, table),
            _ if is_section => {
                self.problem(line, format!("{full} must be a table with {}", self.children(&section)))
            }
            _ => {
                let allowed = self.children(prefix);
                self.problem(
                    line,
                    format!("unknown key `{}`; allowed here: {allowed}", terminal::plain(&full)),
                );
            }
        }
    }

    /// The names that are allowed below a prefix.
    fn children(&self, prefix: &str) -> String {
        let mut names: Vec<String> = Vec::new();
        for key in &self.keys {
            let full = key.name();
            let Some(rest) = full.strip_prefix(prefix) else { continue };
            let child = rest.split('.').next().unwrap_or(rest).to_owned();
            if !names.contains(&child) {
                names.push(child);
            }
        }
        names.join(", ")
    }

    fn problem(&mut self, line: usize, message: String) {
        self.problems.push(Problem { place: place(self.path, line), message });
    }
}

fn raw(item: &Item) -> Raw {
    match item {
        Item::Value(value) => raw_value(value),
        Item::None => Raw::Other("nothing"),
        Item::Table(table) => raw_table(table),
        Item::ArrayOfTables(list) => Raw::List(list.iter().map(|table| raw_table(table)).collect()),
    }
}

fn raw_value(value: &Value) -> Raw {
    match value {
        Value::Integer(number) => Raw::Integer(*number.value()),
        Value::Float(number) => Raw::Float(*number.value()),
        Value::String(text) => Raw::Text(text.value().clone()),
        Value::Array(list) => Raw::List(list.iter().map(raw_value).collect()),
        Value::Boolean(value) => Raw::Boolean(*value.value()),
        Value::Datetime(_) => Raw::Other("a date"),
        Value::InlineTable(table) => raw_table(table),
    }
}

fn raw_table(table: &dyn TableLike) -> Raw {
    Raw::Table(table.iter().map(|(name, item)| (name.to_owned(), raw(item))).collect())
}

/// The path of the configuration file in a folder.
pub(crate) fn in_folder(folder: &Path) -> PathBuf {
    folder.join("palisade.toml")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> String {
        parse(Path::new("/etc/palisade/palisade.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn every_way_to_write_a_table_is_understood() {
        let forms = [
            "[limits.max]\nmemory_mb = 64\ncpus = 0.5\n",
            "limits.max.memory_mb = 64\nlimits.max.cpus = 0.5\n",
            "limits = { max = { memory_mb = 64, cpus = 0.5 } }\n",
            "[limits]\r\nmax = { memory_mb = 64, cpus = 0.5 }\r\n",
        ];
        for form in forms {
            let found: Vec<_> =
                parse(Path::new("x"), form).unwrap().into_iter().map(|given| given.setting).collect();
            let names: Vec<_> = found.iter().map(|setting| setting.key().name()).collect();
            assert_eq!(names, ["limits.max.memory_mb", "limits.max.cpus"], "{form}");
        }
    }

    #[test]
    fn an_unknown_key_is_told_with_line_and_what_is_allowed() {
        let message =
            mistakes("state_dir = \"/var/lib/palisade\"\n\n[limits.max]\n# a comment\nmemory = 64\n");
        assert!(
            message.contains("/etc/palisade/palisade.toml:5: unknown key `limits.max.memory`"),
            "{message}"
        );
        assert!(message.contains("timeout_ms, memory_mb, cpus"), "{message}");
        let message = mistakes("limit = 1\n");
        assert!(
            message.contains(
                "allowed here: limits, admission, serve, store, pool, audit, oauth, allow_missing, state_dir, log, otlp, policy, quota, access, egress, packages, tools, wall, interpreters"
            ),
            "{message}"
        );
        let message = mistakes("\"limits.max.memory_mb\" = 64\n");
        assert!(message.contains("unknown key"), "{message}");
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let message = mistakes(
            "limits = 3\nlog.level = 'loud'\nstate_dir = 'here'\ninterpreters.cobol = '/bin/cobol'\n",
        );
        for part in [
            ":1: limits must be a table with default, max",
            ":2: log.level",
            ":3: state_dir",
            ":4: unknown key",
        ] {
            assert!(message.contains(part), "{part} in {message}");
        }
        assert!(mistakes(&"x.y = 1\n[".repeat(3)).contains(":2: "));
        let many: String = (0..100).map(|number| format!("key{number} = 1\n")).collect();
        assert_eq!(mistakes(&many).lines().count(), PROBLEMS_MAX);
    }

    #[test]
    fn a_hostile_name_cannot_drive_the_terminal() {
        let message = mistakes("\"\\u001b[2J\" = 1\n");
        assert!(!message.contains('\u{1b}') && message.contains("unknown key"), "{message}");
    }

    #[test]
    fn a_file_that_somebody_else_could_have_written_is_not_believed() {
        assert!(check_ownership(0, 0o100_644, 1000).is_ok());
        assert!(check_ownership(1000, 0o100_600, 1000).is_ok());
        assert!(check_ownership(1001, 0o100_644, 1000).unwrap_err().0.contains("user 1001"));
        assert!(check_ownership(1000, 0o100_644, 0).is_err());
        for mode in [0o100_664, 0o100_646, 0o100_666] {
            assert!(check_ownership(1000, mode, 1000).is_err(), "{mode:o}");
        }
    }
}
