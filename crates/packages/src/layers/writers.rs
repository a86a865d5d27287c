//! Threads that hash and write the small files of a layer, while its reader goes on. Most files of a package are small, and
//! creating them costs more than reading them.
//!
//! A harvest hands over whole files and collects their digests at its end. After a failure the rest is dropped.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use sha2::{Digest, Sha256};

use super::harvest::{Form, same_times};
use crate::files::hex;

/// The largest file that is handed over. Larger ones are written while they are read.
pub(super) const SMALL_BYTES_MAX: usize = 1 << 20;
const THREADS_MAX: usize = 4;
/// The most files that wait for a thread.
const WAITING_MAX: usize = 32;

/// A file with its whole content.
pub(super) struct SmallFile {
    pub(super) path: String,
    pub(super) place: PathBuf,
    pub(super) is_executable: bool,
    pub(super) content: Vec<u8>,
}

type Written = Result<Vec<(String, Form)>, String>;

/// The threads of one harvest.
pub(super) struct Writers {
    queue: Option<SyncSender<SmallFile>>,
    threads: Vec<JoinHandle<Written>>,
}

impl Writers {
    pub(super) fn start() -> std::io::Result<Self> {
        let (queue, files) = sync_channel::<SmallFile>(WAITING_MAX);
        let files = Arc::new(Mutex::new(files));
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let mut writers = Self { queue: Some(queue), threads: Vec::new() };
        for _ in 0..count {
            let files = Arc::clone(&files);
            let thread = std::thread::Builder::new().name("layer".to_owned()).spawn(move || work(&files))?;
            writers.threads.push(thread);
        }
        Ok(writers)
    }

    /// Hands over a file. Fails if all threads have failed; `finish` says why.
    pub(super) fn take(&self, file: SmallFile) -> Result<(), String> {
        let queue = self.queue.as_ref().ok_or("the harvest has ended")?;
        queue.send(file).map_err(|_| "it cannot be stored".to_owned())
    }

    /// Waits for the threads, and returns what they wrote.
    pub(super) fn finish(&mut self) -> Written {
        drop(self.queue.take());
        let ended = self.threads.drain(..).map(|thread| {
            thread.join().unwrap_or_else(|_| Err("it cannot be stored: a thread has failed".to_owned()))
        });
        // All threads are waited for, whatever the first of them says.
        let ended: Vec<Written> = ended.collect();
        let mut all = Vec::new();
        for written in ended {
            all.extend(written?);
        }
        Ok(all)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        // The folder is removed next; nothing may write into it any more.
        self.finish().ok();
    }
}

fn work(files: &Mutex<Receiver<SmallFile>>) -> Written {
    let mut written = Vec::new();
    loop {
        let next = files.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(file) = next else { return Ok(written) };
        let form = write(&file).map_err(|error| format!("it cannot be stored: {error}"))?;
        written.push((file.path, form));
    }
}

/// Creates the file of an entry.
pub(super) fn create(place: &Path, is_executable: bool) -> std::io::Result<std::fs::File> {
    let mode = if is_executable { 0o555 } else { 0o444 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(place)
}

fn write(small: &SmallFile) -> std::io::Result<Form> {
    let mut file = create(&small.place, small.is_executable)?;
    file.write_all(&small.content)?;
    file.set_times(same_times())?;
    let digest = hex(&Sha256::digest(&small.content));
    Ok(Form::File { is_executable: small.is_executable, bytes: small.content.len() as u64, digest })
}
