//! The files of the audit: where they are, and how they are read.
//!
//! ```text
//! audit/INSTANCE/000001.jsonl   a segment of the chain of one process
//! audit/INSTANCE/removed.note   what retention removed of it
//! audit/INSTANCE/lock           locked while the process writes the chain
//! audit/INSTANCE/reserve        space that is released when the disk is full
//! audit/keys/                   see `keys`
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use audit::LINE_BYTES_MAX;

/// The folder of the audit in the state directory.
pub(super) const FOLDER: &str = "audit";
/// The folder of the keys in it.
pub(super) const KEYS: &str = "keys";
pub(super) const LOCK: &str = "lock";
pub(super) const RESERVE: &str = "reserve";
pub(super) const REMOVED: &str = "removed.note";
const SUFFIX: &str = ".jsonl";
/// Chains that are read; more are left over by nothing that Palisade does.
const CHAINS_MAX: usize = 100_000;
/// The largest statement that is read.
const NOTE_BYTES_MAX: u64 = 1 << 20;

/// The folder of the audit of a state directory.
pub fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join(FOLDER)
}

/// The folder of one chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChainFolder {
    pub(super) path: PathBuf,
    pub(super) instance: String,
}

impl ChainFolder {
    pub(super) fn new(audit: &Path, instance: &str) -> Self {
        Self { path: audit.join(instance), instance: instance.to_owned() }
    }

    /// The numbers of its segments, in order.
    pub(super) fn segments(&self) -> io::Result<Vec<u32>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).map(str::parse::<u32>);
            numbers.extend(number.and_then(Result::ok));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    pub(super) fn segment(&self, number: u32) -> PathBuf {
        self.path.join(format!("{number:06}{SUFFIX}"))
    }

    /// Whether a process writes it.
    pub(super) fn is_running(&self) -> bool {
        File::open(self.path.join(LOCK)).is_ok_and(|lock| lock.try_lock_shared().is_err())
    }

    /// The statement about removed segments.
    pub(super) fn removed(&self) -> Option<String> {
        read_small(&self.path.join(REMOVED)).ok()
    }

    /// The last whole line of its last segment that has one.
    pub(super) fn last_line(&self) -> Option<Vec<u8>> {
        let numbers = self.segments().ok()?;
        numbers.into_iter().rev().find_map(|number| last_line(&self.segment(number)).ok().flatten())
    }

    /// The first line.
    pub(super) fn first_line(&self) -> Option<Vec<u8>> {
        let number = *self.segments().ok()?.first()?;
        let mut line = None;
        let read = read_lines(&self.segment(number), 0, &mut |bytes| {
            line = Some(bytes.to_vec());
            Ok(Flow::Stop)
        });
        read.ok().and(line)
    }
}

/// The chains in a folder, in the order in which they began. The folder may also be that of one chain.
pub(super) fn chains(audit: &Path) -> io::Result<Vec<ChainFolder>> {
    let is_name = |name: &str| {
        name.len() <= 64 && name.split_once('-').is_some_and(|(ms, _)| ms.parse::<u64>().is_ok())
    };
    if let Some(name) = audit.file_name().and_then(|name| name.to_str()).filter(|name| is_name(name))
        && let Some(parent) = audit.parent()
        && audit.is_dir()
    {
        return Ok(vec![ChainFolder::new(parent, name)]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(audit)?.take(CHAINS_MAX) {
        let entry = entry?;
        if let Some(name) = entry.file_name().to_str().filter(|name| is_name(name)) {
            found.push(ChainFolder::new(audit, name));
        }
    }
    found.sort_by(|a, b| a.instance.cmp(&b.instance));
    Ok(found)
}

/// Whether a reader wants more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    More,
    Stop,
}

/// What is behind the last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadEnd {
    /// Where the next line begins.
    pub(super) offset: u64,
    /// Whether bytes without a newline follow.
    pub(super) has_fragment: bool,
}

/// Passes the lines of a segment from that offset on, without their newlines.
pub(super) fn read_lines(
    path: &Path,
    offset: u64,
    take: &mut dyn FnMut(&[u8]) -> io::Result<Flow>,
) -> io::Result<ReadEnd> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let (mut offset, mut line) = (offset, Vec::new());
    loop {
        line.clear();
        // One byte more than a line may have: a longer one is passed on in parts, and is no entry.
        let count = reader.by_ref().take(LINE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)?;
        if count == 0 {
            return Ok(ReadEnd { offset, has_fragment: false });
        }
        let is_whole = line.last() == Some(&b'\n');
        if !is_whole && count <= LINE_BYTES_MAX + 1 {
            return Ok(ReadEnd { offset, has_fragment: true });
        }
        offset += count as u64;
        let body = if is_whole { &line[..count - 1] } else { &line[..] };
        if take(body)? == Flow::Stop {
            return Ok(ReadEnd { offset, has_fragment: false });
        }
    }
}

/// The last whole line of a segment.
fn last_line(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let length = fs::metadata(path)?.len();
    let mut file = File::open(path)?;
    let begin = length.saturating_sub(2 * LINE_BYTES_MAX as u64);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(2 * LINE_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return Ok(None) };
    let start = bytes[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    Ok(Some(bytes[start..end].to_vec()))
}

/// Makes a folder that only its owner can use.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a new file that only its owner can use.
pub(super) fn make_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

/// Reads a small file.
pub(super) fn read_small(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(NOTE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Replaces a small file in one step, so that no reader sees a part of it.
pub(super) fn replace_small(path: &Path, content: &str) -> io::Result<()> {
    let draft = path.with_extension(format!("draft-{}", random_hex(4)?));
    let written = make_file(&draft).and_then(|mut file| {
        io::Write::write_all(&mut file, content.as_bytes())?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&draft, path));
    if renamed.is_err() {
        // The draft may not exist.
        fs::remove_file(&draft).ok();
    }
    renamed
}

/// That many random bytes as hexadecimal digits.
pub(super) fn random_hex(bytes: usize) -> io::Result<String> {
    let mut random = vec![0_u8; bytes];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(crate::handle::hex(&random))
}
