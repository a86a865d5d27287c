//! Takes the product of a builder and writes it as the files of a layer.
//!
//! Every entry is judged: only directories, regular files and links that stay in the tree; no set-user-id bits; no two
//! names that differ in case only. Modes and times are made the same everywhere, and the tree gets a digest.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sandbox::workspace::{TreeEntry, TreeKind, TreeSink};
use sha2::{Digest, Sha256};

use super::writers::{SMALL_BYTES_MAX, SmallFile, Writers, create};
use crate::files::hex;

/// The time of every file: the first that a zip archive can express (1980-01-01).
const TIME_S: u64 = 315_532_800;
const PATH_BYTES_MAX: usize = 1024;
const NAMES_MAX: usize = 48;
/// A file that the resolver leaves at the top of its product.
const LEFTOVERS: [&str; 1] = [".lock"];
/// The largest file that is also kept in memory, because its content is needed.
const NOTED_BYTES_MAX: usize = 16 << 20;

/// The form of an entry in a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    Directory,
    File { is_executable: bool, bytes: u64, digest: String },
    Link { target: String },
}

/// The files of a layer, as they were written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Harvested {
    pub(crate) entries: BTreeMap<String, Form>,
    pub(crate) bytes: u64,
    /// Contents that were asked for, by path.
    pub(crate) noted: HashMap<String, Vec<u8>>,
    pub(crate) is_complete: bool,
}

impl Harvested {
    /// The digest of the tree: kinds, names, contents and the executable bit.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update("palisade layer 1\0");
        for (path, form) in &self.entries {
            let line = match form {
                Form::Directory => format!("d\0{path}\0"),
                Form::File { is_executable, bytes, digest } => {
                    format!("f\0{path}\0{}\0{bytes}\0{digest}\0", u8::from(*is_executable))
                }
                Form::Link { target } => format!("l\0{path}\0{target}\0"),
            };
            hasher.update(line);
        }
        hex(&hasher.finalize())
    }
}

/// The file that is being read.
struct Writing {
    path: String,
    place: PathBuf,
    is_executable: bool,
    noted: Option<Vec<u8>>,
    bytes: u64,
    target: Target,
}

/// Where its content goes.
enum Target {
    /// It is small so far, and is written by another thread.
    Memory(Vec<u8>),
    /// It is large, or its content is needed here.
    Disk { file: File, hasher: Sha256 },
}

/// Writes a layer.
pub(crate) struct Harvest {
    files: PathBuf,
    /// Paths in lower case.
    folded: HashMap<String, String>,
    writing: Option<Writing>,
    writers: Option<Writers>,
    is_noted: fn(&str) -> bool,
    made: Harvested,
}

/// The part of a harvest that takes the product.
pub(crate) struct HarvestSink(Arc<Mutex<Harvest>>);

impl Harvest {
    /// A harvest into that folder. The contents of paths for which `is_noted` holds are kept in memory too.
    pub(crate) fn new(files: PathBuf, is_noted: fn(&str) -> bool) -> Self {
        Self {
            files,
            folded: HashMap::new(),
            writing: None,
            writers: None,
            is_noted,
            made: Harvested::default(),
        }
    }

    /// The harvest behind a lock, and the sink that fills it.
    pub(crate) fn shared(self) -> (Arc<Mutex<Self>>, Box<HarvestSink>) {
        let shared = Arc::new(Mutex::new(self));
        (Arc::clone(&shared), Box::new(HarvestSink(shared)))
    }

    /// What was written.
    pub(crate) fn take(shared: &Mutex<Self>) -> Harvested {
        std::mem::take(&mut shared.lock().unwrap_or_else(PoisonError::into_inner).made)
    }

    /// The digest of what was written.
    pub(crate) fn digest(&self) -> String {
        self.made.digest()
    }

    pub(crate) fn entry(&mut self, entry: &TreeEntry<'_>) -> Result<(), String> {
        self.end_file()?;
        if LEFTOVERS.contains(&entry.path) {
            return Ok(());
        }
        check_path(entry.path)?;
        self.check_parent(entry.path)?;
        if let Some(other) = self.folded.insert(entry.path.to_lowercase(), entry.path.to_owned()) {
            return Err(format!("`{}` and `{other}` differ in case only", shown(entry.path)));
        }
        let place = self.files.join(entry.path);
        let told = |error: std::io::Error| format!("it cannot be stored: {error}");
        let form = match entry.kind {
            TreeKind::Directory => {
                fs::DirBuilder::new().mode(0o755).create(&place).map_err(told)?;
                Form::Directory
            }
            TreeKind::File { mode } if mode & 0o6000 != 0 => {
                return Err(format!("`{}` would change the user of who executes it", shown(entry.path)));
            }
            TreeKind::File { mode } => {
                return self.begin_file(entry.path, &place, mode & 0o111 != 0).map_err(told);
            }
            TreeKind::Link { target } => {
                check_link(entry.path, target)?;
                symlink(target, &place).map_err(told)?;
                Form::Link { target: target.to_owned() }
            }
            TreeKind::Other => {
                return Err(format!("`{}` is a pipe, a socket or a device", shown(entry.path)));
            }
        };
        self.made.entries.insert(entry.path.to_owned(), form);
        Ok(())
    }

    /// Refuses an entry beneath anything but a directory of this layer. Each link stays in the tree by its names, but the
    /// names of a path that leads through links do not say where it ends.
    fn check_parent(&self, path: &str) -> Result<(), String> {
        let is_placed = path
            .rsplit_once('/')
            .is_none_or(|(above, _)| self.made.entries.get(above) == Some(&Form::Directory));
        if is_placed {
            Ok(())
        } else {
            Err(format!("`{}` is not in a directory of the package", shown(path)))
        }
    }

    fn begin_file(&mut self, path: &str, place: &Path, is_executable: bool) -> std::io::Result<()> {
        let noted = (self.is_noted)(path).then(Vec::new);
        let target = match noted {
            None => Target::Memory(Vec::new()),
            Some(_) => Target::Disk { file: create(place, is_executable)?, hasher: Sha256::new() },
        };
        let (path, place) = (path.to_owned(), place.to_owned());
        self.writing = Some(Writing { path, place, is_executable, noted, bytes: 0, target });
        Ok(())
    }

    pub(crate) fn bytes(&mut self, part: &[u8]) -> Result<(), String> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        writing.bytes += part.len() as u64;
        if let Some(noted) = &mut writing.noted {
            if noted.len() + part.len() > NOTED_BYTES_MAX {
                return Err(format!("`{}` is too large", shown(&writing.path)));
            }
            noted.extend_from_slice(part);
        }
        writing.take(part).map_err(|error| format!("it cannot be stored: {error}"))
    }

    fn end_file(&mut self) -> Result<(), String> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let Writing { path, place, is_executable, noted, bytes, target } = writing;
        let told = |error: std::io::Error| format!("it cannot be stored: {error}");
        if let Some(noted) = noted {
            self.made.noted.insert(path.clone(), noted);
        }
        self.made.bytes += bytes;
        match target {
            Target::Memory(content) => {
                let writers = match &mut self.writers {
                    Some(writers) => writers,
                    none => none.insert(Writers::start().map_err(told)?),
                };
                let handed = writers.take(SmallFile { path, place, is_executable, content });
                handed.or_else(|closed| writers.finish().and(Err(closed)))
            }
            Target::Disk { file, hasher } => {
                file.set_times(same_times()).map_err(told)?;
                let digest = hex(&hasher.finalize());
                self.made.entries.insert(path, Form::File { is_executable, bytes, digest });
                Ok(())
            }
        }
    }

    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.end_file()?;
        if let Some(writers) = &mut self.writers {
            self.made.entries.extend(writers.finish()?);
        }
        // From the deepest up: writing in a directory changes its time.
        for (path, form) in self.made.entries.iter().rev() {
            if *form == Form::Directory {
                let opened = File::open(self.files.join(path));
                opened
                    .and_then(|directory| directory.set_times(same_times()))
                    .map_err(|error| format!("it cannot be stored: {error}"))?;
            }
        }
        self.made.is_complete = true;
        Ok(())
    }
}

impl Writing {
    fn take(&mut self, part: &[u8]) -> std::io::Result<()> {
        if let Target::Memory(content) = &mut self.target {
            if content.len() + part.len() <= SMALL_BYTES_MAX {
                content.extend_from_slice(part);
                return Ok(());
            }
            let (mut file, mut hasher) = (create(&self.place, self.is_executable)?, Sha256::new());
            hasher.update(&*content);
            file.write_all(content)?;
            self.target = Target::Disk { file, hasher };
        }
        if let Target::Disk { file, hasher } = &mut self.target {
            hasher.update(part);
            file.write_all(part)?;
        }
        Ok(())
    }
}

pub(super) fn same_times() -> FileTimes {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(TIME_S);
    FileTimes::new().set_modified(time).set_accessed(time)
}

impl TreeSink for HarvestSink {
    fn entry(&mut self, entry: &TreeEntry<'_>) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(entry)
    }

    fn bytes(&mut self, part: &[u8]) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes(part)
    }

    fn finish(&mut self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }
}

fn shown(path: &str) -> String {
    path.chars().take(120).map(|one| if one.is_control() { '?' } else { one }).collect()
}

/// Refuses names that could mean another place, here or in an archive.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    let is_plain =
        |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains(['\\', '\0']);
    let is_fit = path.len() <= PATH_BYTES_MAX && path.split('/').count() <= NAMES_MAX;
    if is_fit && path.split('/').all(is_plain) && !path.chars().any(char::is_control) {
        Ok(())
    } else {
        Err(format!("the name `{}` is not plain", shown(path)))
    }
}

/// Refuses links that leave the tree. `..` is allowed at the beginning only: after another name, which may be a link,
/// it could lead anywhere.
pub(crate) fn check_link(path: &str, target: &str) -> Result<(), String> {
    let wrong = || format!("the link `{}` leads out of the package", shown(path));
    if target.is_empty()
        || target.starts_with('/')
        || target.len() > PATH_BYTES_MAX
        || target.contains(['\\', '\0'])
    {
        return Err(wrong());
    }
    let mut depth = path.split('/').count() - 1;
    let mut is_down = false;
    for name in target.split('/').filter(|name| !name.is_empty() && *name != ".") {
        if name == ".." {
            if is_down {
                return Err(wrong());
            }
            depth = depth.checked_sub(1).ok_or_else(wrong)?;
        } else {
            is_down = true;
        }
    }
    if is_down { Ok(()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn harvest() -> (harness::TestFolder, Harvest) {
        let folder = harness::TestFolder::new();
        let harvest = Harvest::new(folder.path().to_owned(), |_| false);
        (folder, harvest)
    }

    fn file(path: &str) -> TreeEntry<'_> {
        TreeEntry { path, kind: TreeKind::File { mode: 0o644 } }
    }

    #[test]
    fn links_that_leave_the_tree_are_refused() {
        for (path, target) in [
            ("a", "/etc/passwd"),
            ("a", ".."),
            ("a", "../x"),
            ("a/b", "../../x"),
            ("a/b", "c/../../../x"),
            ("a/b", ""),
            ("a/b", "c/.."),
            ("a", "."),
        ] {
            assert!(check_link(path, target).is_err(), "{path} -> {target}");
        }
        for (path, target) in
            [("a", "b"), ("a/b", "../c"), (".bin/tsc", "../typescript/bin/tsc"), ("a/b/c", "./d")]
        {
            assert!(check_link(path, target).is_ok(), "{path} -> {target}");
        }
    }

    #[test]
    fn entries_that_are_not_files_of_a_package_are_refused() {
        let (_folder, mut harvest) = harvest();
        assert!(harvest.entry(&TreeEntry { path: "pipe", kind: TreeKind::Other }).is_err());
        assert!(harvest.entry(&TreeEntry { path: "su", kind: TreeKind::File { mode: 0o4755 } }).is_err());
        for path in ["../x", "/x", "a//b", "a/./b", "a\\b", "a\nb", "a/\u{7f}", ""] {
            assert!(harvest.entry(&file(path)).is_err(), "{path:?}");
        }
        assert!(harvest.entry(&file(&format!("{}x", "d/".repeat(60)))).is_err());
        for target in ["/etc/passwd", "../x"] {
            assert!(harvest.entry(&TreeEntry { path: "link", kind: TreeKind::Link { target } }).is_err());
        }
    }

    #[test]
    fn entries_beneath_links_and_files_are_refused() {
        let (folder, mut harvest) = harvest();
        let target = "top";
        harvest.entry(&TreeEntry { path: "top", kind: TreeKind::Directory }).unwrap();
        harvest.entry(&TreeEntry { path: "link", kind: TreeKind::Link { target } }).unwrap();
        harvest.entry(&file("file")).unwrap();
        for path in ["link/x", "file/x", "absent/x"] {
            assert!(harvest.entry(&file(path)).unwrap_err().contains("not in a directory"), "{path}");
        }
        harvest.entry(&file("top/x")).unwrap();
        harvest.finish().unwrap();
        assert_eq!(fs::read_dir(folder.path().join("top")).unwrap().count(), 1);
    }

    #[test]
    fn names_that_differ_in_case_only_are_refused() {
        let (_folder, mut harvest) = harvest();
        harvest.entry(&file("Readme")).unwrap();
        assert!(harvest.entry(&file("README")).unwrap_err().contains("case"));
        harvest.entry(&file("stra\u{df}e")).unwrap();
        harvest.entry(&file("\u{c9}t\u{e9}")).unwrap();
        assert!(harvest.entry(&file("\u{e9}t\u{e9}")).is_err());
    }

    #[test]
    fn the_digest_depends_on_names_contents_and_modes_alone() {
        let digest = |order: &[(&str, &str, u32)]| {
            let (_folder, mut harvest) = harvest();
            for (path, content, mode) in order {
                harvest.entry(&TreeEntry { path, kind: TreeKind::File { mode: *mode } }).unwrap();
                harvest.bytes(content.as_bytes()).unwrap();
            }
            harvest.finish().unwrap();
            harvest.made.digest()
        };
        let one = digest(&[("a", "1", 0o644), ("b", "2", 0o755)]);
        assert_eq!(one, digest(&[("b", "2", 0o777), ("a", "1", 0o600)]));
        assert_ne!(one, digest(&[("a", "1", 0o755), ("b", "2", 0o755)]));
        assert_ne!(one, digest(&[("a", "12", 0o644), ("b", "", 0o755)]));
    }

    #[test]
    fn a_file_is_the_same_whoever_writes_it_and_in_whatever_parts() {
        for bytes in [0, 1, SMALL_BYTES_MAX, SMALL_BYTES_MAX + 1, 3 * SMALL_BYTES_MAX] {
            let content: Vec<u8> = (0..bytes).map(|at| at.to_le_bytes()[0]).collect();
            for part in [1000, 256 << 10] {
                let (folder, mut harvest) = harvest();
                harvest.entry(&file("one")).unwrap();
                content.chunks(part).for_each(|part| harvest.bytes(part).unwrap());
                harvest.finish().unwrap();
                assert_eq!(fs::read(folder.path().join("one")).unwrap(), content);
                let digest = hex(&Sha256::digest(&content));
                let form = Form::File { is_executable: false, bytes: bytes as u64, digest };
                assert_eq!(harvest.made.entries["one"], form);
                assert_eq!(harvest.made.bytes, bytes as u64);
            }
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_fails_the_harvest() {
        let (folder, mut harvest) = harvest();
        fs::write(folder.path().join("one"), "").unwrap();
        let ended = harvest.entry(&file("one")).and_then(|()| harvest.finish());
        assert!(ended.unwrap_err().contains("cannot be stored") && !harvest.made.is_complete);
    }
}
