//! Reads the policy files of a machine into a [`Book`], and notices when they change ([`Watch`]).
//!
//! Without `policy.folder`, they are in the folders `policies` beside the configuration files of the system and of the
//! user; a file of the user replaces the system's of the same name. They are trusted files, as the configuration is.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use policy::{Book, BookError, Quotas, Syntax};

use super::file::{self, Trust};
use super::{ConfigError, Problem, Settings, Surroundings};
use crate::options::Options;

const FOLDER: &str = "policies";
/// Most policy files of a folder.
const FILES_MAX: usize = 1000;

/// The policies in force, or why there are none.
pub(crate) fn load(settings: &Settings) -> Result<Book, ConfigError> {
    load_from(&Surroundings::of_process(), settings)
}

pub(super) fn load_from(surroundings: &Surroundings, settings: &Settings) -> Result<Book, ConfigError> {
    let files = read_folders(surroundings, settings)?;
    let (paths, files): (Vec<_>, Vec<_>) =
        files.into_iter().map(|(name, (path, text, syntax))| (path, (name, text, syntax))).unzip();
    Book::new(&files, settings.policy_bind.value.clone()).map_err(|error| {
        let path_of = |name: &String| {
            let place = files.iter().position(|(known, ..)| known == name);
            place
                .and_then(|place| paths.get(place))
                .map_or_else(|| name.clone(), |path| path.display().to_string())
        };
        let (place, message) = match error {
            BookError::File { name, flaw } => (path_of(&name), flaw.to_string()),
            BookError::Twice(ref name) => (path_of(name), error.to_string()),
            BookError::Unknown { .. } => (settings.policy_bind.origin.to_string(), error.to_string()),
        };
        ConfigError::Mistakes(vec![Problem { place, message: terminal::plain(&message) }])
    })
}

type Files = BTreeMap<String, (PathBuf, String, Syntax)>;

fn folders(surroundings: &Surroundings, settings: &Settings) -> Vec<PathBuf> {
    match &settings.policy_folder.value {
        Some(folder) => vec![folder.clone()],
        None => {
            let beside = [Some(&surroundings.system), surroundings.user.as_ref()];
            beside.into_iter().flatten().map(|folder| folder.join(FOLDER)).collect()
        }
    }
}

fn read_folders(surroundings: &Surroundings, settings: &Settings) -> Result<Files, ConfigError> {
    let mut files = Files::new();
    for folder in folders(surroundings, settings) {
        files.extend(read_folder(&folder)?);
    }
    Ok(files)
}

/// Where the policy of that name is, and its text; `None` if it comes with the program.
pub(crate) fn find(settings: &Settings, name: &str) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let mut files = read_folders(&Surroundings::of_process(), settings)?;
    Ok(files.remove(name).map(|(path, text, _)| (path, text)))
}

/// Notices changes of the policy files, and of the files with the bindings and the quotas.
pub(crate) struct Watch {
    surroundings: Surroundings,
    options: Options,
    folders: Vec<PathBuf>,
    /// What was last read, whether it could be used or not.
    read: Vec<Seen>,
    /// What was last seen. A change is believed when it is seen twice, because files are written in pieces.
    seen: Vec<Seen>,
}

/// What is put in force while a server runs.
#[derive(Debug)]
pub(crate) struct Reloaded {
    /// The policies and their bindings.
    pub(crate) book: Book,
    /// The quotas of callers.
    pub(crate) quotas: Quotas,
}

/// A file or folder as it was seen.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    path: PathBuf,
    identity: (u64, u64),
    size_bytes: u64,
    /// Seconds and nanoseconds of the last changes of content and of the inode.
    changed: [i64; 4],
}

impl Watch {
    /// Watches the files of this process from now on.
    pub(crate) fn new(options: &Options, settings: &Settings) -> Self {
        Self::of(Surroundings::of_process(), options.clone(), settings)
    }

    pub(super) fn of(surroundings: Surroundings, options: Options, settings: &Settings) -> Self {
        let folders = folders(&surroundings, settings);
        let mut watch = Self { surroundings, options, folders, read: Vec::new(), seen: Vec::new() };
        watch.read = watch.look();
        watch
    }

    /// Looks once. The answer is there after a change has settled, or if it is demanded.
    pub(crate) fn poll(&mut self, is_demanded: bool) -> Option<Result<Reloaded, String>> {
        let now = self.look();
        let is_settled = now == self.seen && now != self.read;
        if !is_settled && !is_demanded {
            self.seen = now;
            return None;
        }
        let loaded = super::load_from(&self.surroundings, &self.options).and_then(|loaded| {
            self.folders = folders(&self.surroundings, &loaded.settings);
            let book = load_from(&self.surroundings, &loaded.settings)?;
            Ok(Reloaded { book, quotas: loaded.settings.quota.quotas() })
        });
        // The folders may be other ones now. What changes while the files are read differs at the next look.
        self.read = if is_demanded || self.folders_differ(&now) { self.look() } else { now };
        Some(loaded.map_err(|error| self.without_folders(&error.to_string())))
    }

    fn folders_differ(&self, seen: &[Seen]) -> bool {
        self.folders.iter().any(|folder| folder.exists() && !seen.iter().any(|one| one.path == *folder))
    }

    /// Logs and pages name files, not folders.
    fn without_folders(&self, message: &str) -> String {
        let beside = [Some(&self.surroundings.system), self.surroundings.user.as_ref()];
        let all = self.folders.iter().chain(beside.into_iter().flatten());
        all.fold(message.to_owned(), |text, folder| text.replace(&format!("{}/", folder.display()), ""))
    }

    fn look(&self) -> Vec<Seen> {
        let beside = [Some(&self.surroundings.system), self.surroundings.user.as_ref()];
        let mut seen: Vec<Seen> =
            beside.into_iter().flatten().filter_map(|folder| Seen::of(&file::in_folder(folder))).collect();
        for folder in &self.folders {
            seen.extend(Seen::of(folder));
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let is_policy = |path: &PathBuf| {
                path.file_name().and_then(|name| name.to_str()).and_then(Syntax::of_name).is_some()
            };
            let paths = entries.map(|entry| entry.path()).filter(is_policy).take(FILES_MAX + 1);
            seen.extend(paths.filter_map(|path| Seen::of(&path)));
        }
        seen.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        seen
    }
}

impl Seen {
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            path: path.to_owned(),
            identity: (found.dev(), found.ino()),
            size_bytes: found.size(),
            changed: [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()],
        })
    }
}

fn read_folder(folder: &Path) -> Result<Files, ConfigError> {
    let mistake = |path: &Path, message: String| {
        ConfigError::Mistakes(vec![Problem { place: path.display().to_string(), message }])
    };
    if let Ok(found) = std::fs::metadata(folder) {
        let user = rustix::process::geteuid().as_raw();
        file::check_ownership(found.uid(), found.mode(), user).map_err(|(reason, remedy)| {
            mistake(folder, format!("{reason}: {}", remedy.replace("FILE", &folder.display().to_string())))
        })?;
    }
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Files::new()),
        Err(error) => return Err(mistake(folder, format!("the policies cannot be listed: {error}"))),
    };
    let mut files = Files::new();
    for entry in entries {
        let entry =
            entry.map_err(|error| mistake(folder, format!("the policies cannot be listed: {error}")))?;
        let path = entry.path();
        let named = path.file_name().and_then(|name| name.to_str()).and_then(|name| {
            let syntax = Syntax::of_name(name)?;
            Some((name.rsplit_once('.')?.0.to_owned(), syntax))
        });
        let Some((name, syntax)) = named else { continue };
        let Some(opened) = file::open_bounded(&path, Trust::Own, policy::FILE_BYTES_MAX as u64)? else {
            continue;
        };
        if let Some((other, ..)) = files.insert(name.clone(), (path.clone(), opened.text, syntax)) {
            let message = format!("it defines the policy `{name}`, as {} does", other.display());
            return Err(mistake(&path, message));
        }
        if files.len() > FILES_MAX {
            return Err(mistake(folder, format!("there are more than {FILES_MAX} policies")));
        }
    }
    Ok(files)
}
