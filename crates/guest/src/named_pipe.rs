//! Named pipes through which an interpreter that outlives its runs gets the standard input of one run.
//!
//! ```text
//! OpenInput -> unopened -- the interpreter opens it to read --> open -- Stdin, StdinEnd --> closed
//! ```
//! The kernel lets a process that does not block open a named pipe for writing only when it has a reader, see fifo(7).
//! The guest tries at growing intervals. If it opened the pipe earlier and closed it before a reader came, the bytes
//! and the end of the input would be lost.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use wire::PATH_BYTES_MAX;

use crate::stdin::Stdin;

/// Maximum number of named pipes in one sandbox.
const PIPES_MAX: usize = 4;
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// The named pipes by their numbers.
#[derive(Default)]
pub(crate) struct NamedPipes(BTreeMap<u32, NamedPipe>);

struct NamedPipe {
    path: PathBuf,
    state: State,
}

enum State {
    /// No process has opened it to read. Holds what is sent meanwhile.
    Unopened {
        queued: Vec<Vec<u8>>,
        queued_bytes: usize,
        is_ended: bool,
        next: Instant,
        pause: Duration,
    },
    Open(Stdin),
}

impl NamedPipes {
    pub(crate) fn open(&mut self, number: u32, path: &str) -> io::Result<()> {
        self.0.remove(&number);
        if self.0.len() >= PIPES_MAX || path.len() > PATH_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.0.insert(number, NamedPipe::create(Path::new(path))?);
        Ok(())
    }

    pub(crate) fn close(&mut self, number: u32) {
        self.0.remove(&number);
    }

    /// Queues bytes for a pipe. Returns whether there is one with that number.
    pub(crate) fn send(&mut self, number: u32, data: Vec<u8>) -> Option<u32> {
        let pipe = self.0.get_mut(&number)?;
        match &mut pipe.state {
            State::Unopened { queued, queued_bytes, is_ended, .. } => {
                if !*is_ended && *queued_bytes + data.len() <= wire::STDIN_WINDOW_BYTES {
                    *queued_bytes += data.len();
                    queued.push(data);
                }
                Some(0)
            }
            State::Open(stdin) => {
                stdin.send(data);
                Some(stdin.flush())
            }
        }
    }

    /// Ends the input of a pipe, if there is one with that number.
    pub(crate) fn end(&mut self, number: u32) {
        match self.0.get_mut(&number).map(|pipe| &mut pipe.state) {
            Some(State::Unopened { is_ended, .. }) => *is_ended = true,
            Some(State::Open(stdin)) => stdin.end(),
            None => {}
        }
    }

    /// The input of a pipe that is open.
    pub(crate) fn stdin(&mut self, number: u32) -> Option<&mut Stdin> {
        match &mut self.0.get_mut(&number)?.state {
            State::Open(stdin) => Some(stdin),
            State::Unopened { .. } => None,
        }
    }

    pub(crate) fn all_open(&self) -> impl Iterator<Item = (u32, &Stdin)> {
        self.0.iter().filter_map(|(number, pipe)| match &pipe.state {
            State::Open(stdin) => Some((*number, stdin)),
            State::Unopened { .. } => None,
        })
    }

    /// How long until the guest must try again to open a pipe; `None` if all are open.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let next = self.0.values().filter_map(|pipe| match &pipe.state {
            State::Unopened { next, .. } => Some(*next),
            State::Open(_) => None,
        });
        next.min().map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Opens the pipes that have a reader by now. Returns how many bytes of which pipe were written.
    pub(crate) fn try_open(&mut self) -> Vec<(u32, u32)> {
        let mut taken = Vec::new();
        for (number, pipe) in &mut self.0 {
            if let Some(bytes) = pipe.try_open() {
                taken.push((*number, bytes));
            }
        }
        taken
    }
}

impl NamedPipe {
    fn create(path: &Path) -> io::Result<Self> {
        let (true, Some(folder)) = (path.is_absolute(), path.parent()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        match rustix::fs::mkdir(folder, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // An earlier run may have left a file of that name.
        match rustix::fs::unlink(path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let next = Instant::now();
        let queued = Vec::new();
        let state = State::Unopened { queued, queued_bytes: 0, is_ended: false, next, pause: PAUSE_MIN };
        Ok(Self { path: path.to_owned(), state })
    }

    fn try_open(&mut self) -> Option<u32> {
        let State::Unopened { queued, is_ended, next, pause, .. } = &mut self.state else { return None };
        let now = Instant::now();
        if *next > now {
            return None;
        }
        let Some(writer) = writer(&self.path) else {
            *next = now + *pause;
            *pause = (*pause * 2).min(PAUSE_MAX);
            return None;
        };
        let (queued, is_ended) = (std::mem::take(queued), *is_ended);
        let mut stdin = Stdin::new(writer);
        queued.into_iter().for_each(|data| stdin.send(data));
        let taken = stdin.flush();
        if is_ended {
            stdin.end();
        }
        self.state = State::Open(stdin);
        Some(taken)
    }
}

/// The writing end, once there is a reader. A program may have put something else there.
fn writer(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let found = rustix::fs::fstat(&opened).ok()?;
    (FileType::from_raw_mode(found.st_mode) == FileType::Fifo).then_some(opened)
}

impl Drop for NamedPipe {
    fn drop(&mut self) {
        // A process that blocks in opening the pipe to read must not wait for ever.
        drop(writer(&self.path));
        // A program may have removed it already. The folder is removed if nothing else is in it.
        rustix::fs::unlink(&self.path).ok();
        if let Some(folder) = self.path.parent() {
            rustix::fs::rmdir(folder).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use harness::TestFolder;

    use super::*;

    fn until_open(pipes: &mut NamedPipes) {
        while pipes.try_open().is_empty() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_reader_that_comes_late_gets_everything_and_the_end() {
        let folder = TestFolder::new();
        let path = folder.path().join("inner/stdin");
        let mut pipes = NamedPipes::default();
        pipes.open(3, path.to_str().unwrap()).unwrap();
        assert_eq!(pipes.send(3, b"one".to_vec()), Some(0));
        assert_eq!(pipes.send(4, b"no such pipe".to_vec()), None);
        pipes.end(3);
        assert!(pipes.try_open().is_empty(), "there is no reader");
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            std::fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
            text
        });
        until_open(&mut pipes);
        assert_eq!(reader.join().unwrap(), "one");
        pipes.close(3);
        assert!(!folder.path().join("inner").exists());
    }

    #[test]
    fn a_pipe_holds_no_more_than_the_window() {
        let folder = TestFolder::new();
        let path = folder.path().join("stdin");
        let mut pipes = NamedPipes::default();
        pipes.open(3, path.to_str().unwrap()).unwrap();
        for _ in 0..100 {
            pipes.send(3, vec![7; wire::CHUNK_BYTES_MAX]);
        }
        let State::Unopened { queued_bytes, .. } = &pipes.0[&3].state else { panic!("it has no reader") };
        assert_eq!(*queued_bytes, wire::STDIN_WINDOW_BYTES);
        assert!(pipes.open(4, "relative").is_err());
        assert!(pipes.open(5, &format!("/{}", "x".repeat(PATH_BYTES_MAX))).is_err());
    }

    #[test]
    fn what_a_program_put_in_place_of_the_pipe_is_not_written_to() {
        let folder = TestFolder::new();
        let (path, other) = (folder.path().join("stdin"), folder.path().join("other"));
        let mut pipes = NamedPipes::default();
        pipes.open(3, path.to_str().unwrap()).unwrap();
        pipes.send(3, b"secret".to_vec());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&other, b"").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(pipes.try_open().is_empty());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"").unwrap();
        std::thread::sleep(PAUSE_MAX);
        assert!(pipes.try_open().is_empty());
        assert!(std::fs::read(&other).unwrap().is_empty());
    }
}
