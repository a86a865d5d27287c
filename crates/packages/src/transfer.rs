//! Carries packages to a machine without a network: one tar archive with blobs, documents, layers and sets.
//!
//! The archive of the same content is the same, byte for byte. What is imported is compared with its digests before it
//! gets a name; nothing of an archive can be placed elsewhere. Which layer answers which requirements is the archive's word,
//! but for the resolver: only the pinned executable is accepted as that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use sandbox::workspace::{TreeEntry, TreeKind};
use tar::{Archive, Builder, EntryType, Header};

use crate::blobs::{BlobId, Blobs, Hasher};
use crate::book::{RESOLVER_KEY, folder};
use crate::files::{draft, is_hex, replace};
use crate::inventory::cyclonedx;
use crate::layers::{Draft, FILES, FORMAT, Harvest, Layers, MANIFEST, Manifest, SetEntry};
use crate::tools::uv;

/// The most bytes and entries of an archive.
const ARCHIVE_BYTES_MAX: u64 = 64 << 30;
const ARCHIVE_ENTRIES_MAX: usize = 4_000_000;
const SMALL_BYTES_MAX: u64 = 64 << 20;
const PART_BYTES: usize = 256 << 10;

/// Why packages were not carried over.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The archive or the state directory could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The archive is not one of packages, or was changed.
    #[error("the archive cannot be used: {0}")]
    Unfit(String),
}

/// What was carried over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Layers.
    pub layers: usize,
    /// Files of mirrors.
    pub blobs: usize,
    /// Sets of requirements.
    pub sets: usize,
}

/// Writes all packages of a state directory to an archive.
pub fn export(state_dir: &Path, to: impl Write) -> Result<Transferred, TransferError> {
    let folder = folder(state_dir);
    let layers = Layers::new(&folder);
    let mut builder = Builder::new(to);
    builder.follow_symlinks(false);
    let mut done = Transferred::default();
    for path in files_beneath(&folder.join("blobs"))? {
        if BlobId::of_relative(&path).is_some() {
            append_file(&mut builder, &folder, &Path::new("blobs").join(path))?;
            done.blobs += 1;
        }
    }
    for path in files_beneath(&folder.join("index"))? {
        append_file(&mut builder, &folder, &Path::new("index").join(path))?;
    }
    for digest in layers.digests() {
        // In use while it is read, so that it is not removed.
        let Some(used) = layers.use_layer(&digest) else { continue };
        let place = Path::new("layers").join(&digest);
        append_file(&mut builder, &folder, &place.join(MANIFEST))?;
        append_tree(&mut builder, &folder, &place.join(FILES))?;
        drop(used);
        done.layers += 1;
    }
    for path in files_beneath(&folder.join("sets"))? {
        append_file(&mut builder, &folder, &Path::new("sets").join(path))?;
        done.sets += 1;
    }
    builder.into_inner()?.flush()?;
    Ok(done)
}

/// Regular files below a folder, by relative path, sorted. Drafts are left out.
fn files_beneath(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fn add(top: &Path, below: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        let listed = match fs::read_dir(top.join(below)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            listed => listed?,
        };
        for entry in listed {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_name().to_string_lossy().starts_with(crate::files::UNFINISHED) {
                continue;
            }
            match entry.file_type()? {
                kind if kind.is_dir() => add(top, &path, found)?,
                kind if kind.is_file() => drop(found.insert(path)),
                _ => {}
            }
        }
        Ok(())
    }
    let mut found = BTreeSet::new();
    add(folder, Path::new(""), &mut found)?;
    Ok(found.into_iter().collect())
}

fn header(kind: EntryType, size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header
}

fn append_file(to: &mut Builder<impl Write>, folder: &Path, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let file = File::open(folder.join(path))?;
    let meta = file.metadata()?;
    let mode = if meta.permissions().mode() & 0o111 != 0 { 0o755 } else { 0o644 };
    to.append_data(&mut header(EntryType::Regular, meta.len(), mode), path, file)
}

fn append_tree(to: &mut Builder<impl Write>, folder: &Path, path: &Path) -> io::Result<()> {
    let listed: Result<BTreeMap<_, _>, io::Error> =
        fs::read_dir(folder.join(path))?.map(|entry| entry.map(|entry| (entry.file_name(), entry))).collect();
    for (name, entry) in listed? {
        let path = path.join(name);
        match entry.file_type()? {
            kind if kind.is_dir() => {
                to.append_data(&mut header(EntryType::Directory, 0, 0o755), &path, io::empty())?;
                append_tree(to, folder, &path)?;
            }
            kind if kind.is_symlink() => {
                let target = fs::read_link(entry.path())?;
                to.append_link(&mut header(EntryType::Symlink, 0, 0o777), &path, target)?;
            }
            _ => append_file(to, folder, &path)?,
        }
    }
    Ok(())
}

/// A layer that is being imported.
struct Arriving {
    manifest: Manifest,
    draft: Draft,
    harvest: Harvest,
}

struct Import {
    folder: PathBuf,
    layers: Layers,
    blobs: Blobs,
    arriving: Option<Arriving>,
    done: Transferred,
}

/// Reads an archive into a state directory.
pub fn import(state_dir: &Path, from: impl Read) -> Result<Transferred, TransferError> {
    let folder = folder(state_dir);
    let (layers, blobs) = (Layers::new(&folder), Blobs::new(folder.join("blobs")));
    let mut import = Import { folder, layers, blobs, arriving: None, done: Transferred::default() };
    let mut archive = Archive::new(from.take(ARCHIVE_BYTES_MAX));
    for (count, entry) in archive.entries()?.enumerate() {
        if count >= ARCHIVE_ENTRIES_MAX {
            return Err(unfit("it has too many entries"));
        }
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(unfit("a name in it is not plain"));
        }
        let kind = entry.header().entry_type();
        let link = entry.link_name()?.map(|target| target.into_owned());
        let mode = entry.header().mode()?;
        import.take(&path, (kind, mode, link), &mut entry)?;
    }
    import.finish_layer()?;
    Ok(import.done)
}

fn unfit(reason: impl Into<String>) -> TransferError {
    TransferError::Unfit(reason.into())
}

impl Import {
    fn take(
        &mut self,
        path: &Path,
        (kind, mode, link): (EntryType, u32, Option<PathBuf>),
        content: &mut impl Read,
    ) -> Result<(), TransferError> {
        let text = path.to_str().ok_or_else(|| unfit("a name in it is not UTF-8"))?;
        let (section, rest) =
            text.split_once('/').ok_or_else(|| unfit("a name in it is not one of packages"))?;
        match section {
            "layers" => return self.take_layer(rest, (kind, mode, link), content),
            _ if kind != EntryType::Regular => return Err(unfit("it has something else than files")),
            _ => self.finish_layer()?,
        }
        match section {
            "blobs" => {
                let id =
                    BlobId::of_relative(Path::new(rest)).ok_or_else(|| unfit("a blob without a digest"))?;
                self.take_blob(&id, content)
            }
            "index" => {
                let is_plain = rest.split('/').count() == 3 && crate::layers::is_plain_path(rest);
                if !is_plain || !(rest.ends_with(".doc") || rest.ends_with(".times")) {
                    return Err(unfit("a document with an odd name"));
                }
                Ok(replace(&self.folder.join("index").join(rest), &small(content)?)?)
            }
            "sets" => {
                let key = rest.strip_suffix(".json").unwrap_or_default();
                let of_resolver = key.strip_prefix(RESOLVER_KEY);
                let set: SetEntry =
                    serde_json::from_slice(&small(content)?).map_err(|_| unfit("a bad set"))?;
                let used =
                    self.layers.use_layer(&set.digest).filter(|_| is_hex(of_resolver.unwrap_or(key), 32));
                let used = used.ok_or_else(|| unfit("a set without its layer"))?;
                if of_resolver.is_some_and(|wheel| !uv::is_pinned(wheel)) {
                    // That of another version, or for another kind of processor.
                    return Ok(());
                }
                if of_resolver.is_some() && !uv::is_executable_of(&used.files)? {
                    return Err(unfit("a resolver that is not the pinned one"));
                }
                self.layers.note_set(key, &set)?;
                self.done.sets += 1;
                Ok(())
            }
            _ => Err(unfit("a name in it is not one of packages")),
        }
    }

    fn take_blob(&mut self, id: &BlobId, content: &mut impl Read) -> Result<(), TransferError> {
        let (path, mut file) = draft(self.blobs.folder())?;
        let mut hasher = Hasher::of(id);
        let copied = parts(content, |part| {
            hasher.update(part);
            file.write_all(part)
        });
        let kept = copied.map_err(TransferError::from).and_then(|()| match hasher.is(id) {
            true => Ok(self.blobs.keep(&path, id)?),
            false => Err(unfit("a file differs from its digest")),
        });
        if kept.is_err() {
            fs::remove_file(&path).ok();
        }
        self.done.blobs += 1;
        kept
    }

    fn take_layer(
        &mut self,
        path: &str,
        (kind, mode, link): (EntryType, u32, Option<PathBuf>),
        content: &mut impl Read,
    ) -> Result<(), TransferError> {
        let (digest, rest) = path.split_once('/').ok_or_else(|| unfit("a layer without files"))?;
        if rest == MANIFEST {
            self.finish_layer()?;
            let manifest: Manifest =
                serde_json::from_slice(&small(content)?).map_err(|_| unfit("a bad manifest"))?;
            if manifest.digest != digest || !is_hex(digest, 32) || manifest.format != FORMAT {
                return Err(unfit("a layer differs from its digest"));
            }
            let draft = self.layers.draft()?;
            let harvest = Harvest::new(draft.files(), |_| false);
            self.arriving = Some(Arriving { manifest, draft, harvest });
            return Ok(());
        }
        let arriving = self.arriving.as_mut().filter(|it| it.manifest.digest == digest);
        let arriving = arriving.ok_or_else(|| unfit("a layer without a manifest"))?;
        let inside = rest.strip_prefix(FILES).and_then(|rest| rest.strip_prefix('/'));
        let path =
            inside.map(|path| path.trim_end_matches('/')).ok_or_else(|| unfit("an odd file of a layer"))?;
        let target = link.map(|target| target.to_string_lossy().into_owned()).unwrap_or_default();
        let kind = match kind {
            EntryType::Directory => TreeKind::Directory,
            EntryType::Regular => TreeKind::File { mode },
            EntryType::Symlink => TreeKind::Link { target: &target },
            _ => TreeKind::Other,
        };
        arriving.harvest.entry(&TreeEntry { path, kind }).map_err(unfit)?;
        if matches!(kind, TreeKind::File { .. }) {
            parts(content, |part| arriving.harvest.bytes(part).map_err(io::Error::other))?;
        }
        Ok(())
    }

    /// Compares the layer that has arrived with its digest, and gives it its name.
    fn finish_layer(&mut self) -> Result<(), TransferError> {
        let Some(Arriving { manifest, draft, mut harvest }) = self.arriving.take() else { return Ok(()) };
        harvest.finish().map_err(unfit)?;
        if harvest.digest() != manifest.digest {
            return Err(unfit("a layer differs from its digest"));
        }
        self.layers.publish(draft, &manifest, &cyclonedx(&manifest))?;
        self.done.layers += 1;
        Ok(())
    }
}

fn small(content: &mut impl Read) -> Result<Vec<u8>, TransferError> {
    let mut bytes = Vec::new();
    content.take(SMALL_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SMALL_BYTES_MAX { Err(unfit("a document is too large")) } else { Ok(bytes) }
}

fn parts(content: &mut impl Read, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; PART_BYTES];
    loop {
        let count = content.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        take(&buffer[..count])?;
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
