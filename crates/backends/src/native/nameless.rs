//! Files that the processes of a sandbox hold on a disk. Above all those without a name, which a walk through the
//! workspace does not find.
//!
//! A deleted file keeps its blocks while something refers to it: a file descriptor, a mapping, a process that
//! executes it, a system call that waits, or a message with descriptors that waits in a socket (SCM_RIGHTS, see unix(7)). The size of a file behind a descriptor can
//! be read. A message in a socket shows only how many descriptors it carries, and a mapping shows its file only
//! to a privileged server. [`find`] reports that such holders exist, and `disk` then compares the free space of
//! the device.
//!
//! The same inspection finds files with a name that are open for writing or mapped. They may change without an
//! event, so `host::workspace::tracker` examines them at every look.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::kernel_file;
use super::tree::{self, Budget};
use crate::host::workspace::tracker::OpenFiles;

/// How much processor time one look may take. A sandbox with more to inspect counts as one that hides files.
const LOOK_MAX: Duration = Duration::from_millis(200);
const MAPS_BYTES_MAX: usize = 4 << 20;
const BLOCK_BYTES: u64 = 512;
/// The owner's right to write.
const WRITABLE: u32 = 0o200;
/// The end of a line of /proc/PID/maps for a deleted file.
const DELETED: &str = " (deleted)";

/// What a sandbox holds without a name on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Nameless {
    /// Blocks of files whose size can be read.
    pub(super) bytes: u64,
    /// Whether something may hold further files whose size cannot be read.
    pub(super) is_hidden: bool,
}

/// The processes that may hold files of a sandbox.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Holders {
    /// The descendants of process 1.
    Programs {
        /// Process 1.
        first: i32,
    },
    /// A kernel of its own, and the process that opens files for it. Programs have no process on the host.
    Kernel {
        /// The kernel.
        sentry: i32,
        /// The process that has the files.
        gofer: i32,
    },
}

impl Holders {
    fn all(self) -> Vec<i32> {
        match self {
            Self::Programs { first } => tree::members(first),
            Self::Kernel { sentry, gofer } => [tree::members(sentry), tree::members(gofer)].concat(),
        }
    }

    /// Whether that process opens files only for the host's requests.
    fn is_guest(self, pid: i32) -> bool {
        matches!(self, Self::Programs { first } if first == pid)
    }
}

/// Inspects all processes of a sandbox.
pub(super) fn find(holders: Holders, device: u64) -> (Nameless, OpenFiles) {
    let mut look = Look::new(device);
    let budget = Budget::new(LOOK_MAX);
    for pid in holders.all() {
        if budget.is_used_up() {
            look.is_hidden = true;
            break;
        }
        if holders.is_guest(pid) {
            // Programs may send to its sockets.
            look.at_sockets(pid);
            continue;
        }
        look.at_threads(pid, &budget);
        look.at_mappings(tree::speaker(pid));
        // The file that a process executes stays open without a descriptor or a mapping.
        if let Ok(file) = fs::metadata(format!("/proc/{pid}/exe")) {
            look.add(&file);
        }
    }
    look.found()
}

struct Look {
    device: u64,
    /// Bytes by inode.
    files: BTreeMap<u64, u64>,
    /// Files with a name that are open for writing, or mapped.
    writable: BTreeSet<u64>,
    mapped: BTreeSet<u64>,
    is_hidden: bool,
    /// Whether the mappings of every process could be read.
    is_mapped_certain: bool,
}

impl Look {
    fn new(device: u64) -> Self {
        let (files, writable, mapped) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { device, files, writable, mapped, is_hidden: false, is_mapped_certain: true }
    }

    fn found(self) -> (Nameless, OpenFiles) {
        let nameless = Nameless { bytes: self.files.values().sum(), is_hidden: self.is_hidden };
        let is_certain = self.is_mapped_certain && !self.is_hidden;
        (nameless, OpenFiles { writable: self.writable, mapped: self.mapped, is_certain })
    }

    /// The threads of a process share one table of descriptors, see `jail`'s system-call list.
    fn at_threads(&mut self, pid: i32, budget: &Budget) {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        self.is_hidden |= threads.map(|thread| thread.path()).any(|thread| is_in_holding_call(&thread));
        self.at_descriptors(&PathBuf::from(format!("/proc/{}", tree::speaker(pid))), budget);
    }

    /// The sockets of a process that holds no files. If they cannot be read, nothing is said about them.
    fn at_sockets(&mut self, pid: i32) {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        for descriptor in fs::read_dir(folder.join("fd")).into_iter().flatten().flatten() {
            let is_socket = fs::metadata(descriptor.path()).is_ok_and(|file| file.file_type().is_socket());
            self.is_hidden |= is_socket && carries_descriptors(&folder, &descriptor.path());
        }
    }

    fn at_descriptors(&mut self, folder: &Path, budget: &Budget) {
        let descriptors = match fs::read_dir(folder.join("fd")) {
            Ok(descriptors) => descriptors,
            Err(error) => {
                // A process that has ended holds nothing.
                self.is_hidden |= error.kind() == ErrorKind::PermissionDenied;
                return;
            }
        };
        for descriptor in descriptors.flatten() {
            if budget.is_used_up() {
                self.is_hidden = true;
                return;
            }
            // stat of the link target, which opens nothing.
            let Ok(file) = fs::metadata(descriptor.path()) else { continue };
            if file.file_type().is_socket() {
                self.is_hidden |= carries_descriptors(folder, &descriptor.path());
            } else {
                self.add(&file);
                self.add_writable(&descriptor.path(), &file);
            }
        }
    }

    /// The permissions of the link in /proc are those of the descriptor, see proc_pid_fd(5).
    fn add_writable(&mut self, link: &Path, file: &fs::Metadata) {
        if file.dev() != self.device || file.nlink() == 0 || !file.is_file() {
            return;
        }
        if fs::symlink_metadata(link).is_ok_and(|link| link.mode() & WRITABLE != 0) {
            self.writable.insert(file.ino());
        }
    }

    /// A mapping outlives the descriptor of its file.
    fn at_mappings(&mut self, pid: i32) {
        let (maps, is_whole) = match kernel_file::read_at_most(format!("/proc/{pid}/maps"), MAPS_BYTES_MAX) {
            Ok(read) => read,
            Err(error) => {
                self.is_mapped_certain &= error.kind() != ErrorKind::PermissionDenied;
                return;
            }
        };
        self.is_hidden |= !is_whole;
        let device = format!("{:02x}:{:02x}", rustix::fs::major(self.device), rustix::fs::minor(self.device));
        for line in maps.lines() {
            let mut fields = line.split_whitespace();
            let (Some(range), Some(rights), Some(found)) = (fields.next(), fields.next(), fields.nth(1))
            else {
                continue;
            };
            if found != device {
                continue;
            }
            if !line.ends_with(DELETED) {
                // A shared mapping that is read-only now may have been writable.
                let inode = fields.next().filter(|_| rights.ends_with('s'));
                self.mapped.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
                continue;
            }
            match fs::metadata(format!("/proc/{pid}/map_files/{range}")) {
                Ok(file) => self.add(&file),
                // Unmapped meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => self.is_hidden = true,
            }
        }
    }

    fn add(&mut self, file: &fs::Metadata) {
        if file.dev() == self.device && file.nlink() == 0 {
            self.files.insert(file.ino(), file.blocks() * BLOCK_BYTES);
        }
    }
}

/// Whether messages with file descriptors wait in a socket of the process or thread with that folder.
fn carries_descriptors(folder: &Path, link: &Path) -> bool {
    let Some(number) = link.file_name() else { return false };
    let info = folder.join("fdinfo").join(number);
    let text = kernel_file::read(info).unwrap_or_default();
    text.lines()
        .any(|line| line.strip_prefix("scm_fds:").is_some_and(|count| count.trim().parse::<u64>() != Ok(0)))
}

/// Whether a thread is in a system call that may hold a file, though its descriptor was closed meanwhile.
fn is_in_holding_call(folder: &Path) -> bool {
    let Ok(text) = kernel_file::read(folder.join("syscall")) else { return false };
    let number = text.split_whitespace().next().and_then(|number| number.parse().ok());
    number.is_some_and(|number| jail::HOLDING_CALLS.contains(&number))
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    use super::*;

    fn nameless_file() -> fs::File {
        let path = std::env::temp_dir().join(format!("palisade-nameless-{}", std::process::id()));
        let mut file =
            fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        file.write_all(&vec![7; 300_000]).unwrap();
        fs::remove_file(path).unwrap();
        file
    }

    /// The look of this process, which `find` would skip as process 1.
    fn look(device: u64) -> Nameless {
        look_at_own(device).0
    }

    fn look_at_own(device: u64) -> (Nameless, OpenFiles) {
        let mut look = Look::new(device);
        let own = rustix::process::getpid().as_raw_nonzero().get();
        look.at_threads(own, &Budget::new(LOOK_MAX));
        look.at_mappings(own);
        look.found()
    }

    #[test]
    fn files_that_are_open_for_writing_are_found_and_others_are_not() {
        let path = std::env::temp_dir().join(format!("palisade-open-{}", std::process::id()));
        let written = fs::File::create(&path).unwrap();
        let (device, inode) = (written.metadata().unwrap().dev(), written.metadata().unwrap().ino());
        let is_open = || look_at_own(device).1.writable.contains(&inode);
        assert!(is_open());
        drop(written);
        let read = fs::File::open(&path).unwrap();
        assert!(!is_open(), "it is open for reading only");
        drop(read);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_system_call_that_waits_may_hold_a_file() {
        use std::process::{Command, Stdio};
        // It copies a file into a full pipe.
        let code = "import os, tempfile; f = tempfile.TemporaryFile(); f.write(b'x' * (1 << 20)); f.flush(); r, w = os.pipe(); \
                    print('ready', flush=True); os.splice(f.fileno(), w, 1 << 20, offset_src=0) and os.splice(f.fileno(), w, 1 << 20, offset_src=0)";
        let mut child = Command::new("python3").args(["-c", code]).stdout(Stdio::piped()).spawn().unwrap();
        let folder = PathBuf::from(format!("/proc/{}", child.id()));
        let started = std::time::Instant::now();
        while !is_in_holding_call(&folder) && started.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let is_found = is_in_holding_call(&folder);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_found && !is_in_holding_call(&PathBuf::from("/proc/thread-self")));
    }

    #[test]
    fn descriptors_show_their_files_and_sockets_show_that_they_hide_some() {
        let file = nameless_file();
        let device = file.metadata().unwrap().dev();
        let seen = look(device);
        assert!(seen.bytes >= 300_000 && !seen.is_hidden, "{seen:?}");
        let (sender, receiver) = UnixStream::pair().unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        let descriptors = [file.as_fd()];
        assert!(message.push(SendAncillaryMessage::ScmRights(&descriptors)));
        rustix::net::sendmsg(&sender, &[IoSlice::new(b"x")], &mut message, SendFlags::empty()).unwrap();
        assert!(look(device).is_hidden, "a descriptor waits in a socket");
        drop((sender, receiver));
        assert!(!look(device).is_hidden);
    }
}
