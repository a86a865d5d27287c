//! What host and guest say to each other.
//!
//! A sandbox may hold several processes (one per interpreter), each named by a number the host chose. What
//! an interpreter's driver says travels as opaque bytes (`Control`): the guest never reads it, so a driver
//! protocol can grow without a new guest. No message carries a credential.

use serde::{Deserialize, Serialize};

/// Version of these messages; the guest tells it in its first frame and the host refuses any other.
pub const VERSION: u32 = 7;
/// The most data one message carries.
pub const CHUNK_BYTES_MAX: usize = 64 * 1024;
/// How much standard input may be on its way to one process before the guest reports it taken.
pub const STDIN_WINDOW_BYTES: usize = 256 * 1024;
/// The longest path of a file in a request.
pub const PATH_BYTES_MAX: usize = 4096;
/// The most entries one `Files` message carries.
pub const LIST_ENTRIES_MAX: usize = 256;

/// Host to guest.
///
/// Files and the order that needs them are sent together, without waiting: an order names in `after` the number of the
/// files before it, and is dropped when one of them could not be placed. 0 is the number of no files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuest {
    /// Start a program; a driver's channel is descriptor 3.
    Open(OpenProcess),
    /// Bytes for the driver of a process.
    Control {
        /// The process.
        process: u32,
        /// Dropped when one of these files could not be placed.
        after: u32,
        /// At most [`CHUNK_BYTES_MAX`] bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// Standard input of a process; at most [`STDIN_WINDOW_BYTES`] may be unacknowledged.
    Stdin {
        /// The process.
        process: u32,
        /// Dropped when one of these files could not be placed.
        after: u32,
        /// At most [`CHUNK_BYTES_MAX`] bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// End of standard input.
    StdinEnd {
        /// The process.
        process: u32,
    },
    /// Send a signal to a process and those it leads (see setpgid(2)).
    Signal {
        /// The process.
        process: u32,
        /// Signal number.
        signal: i32,
    },
    /// Send on everything that a process has written by now, and let it go on if something stopped it (SIGCONT); answered
    /// by `Done`.
    Drain {
        /// Number of the answer.
        request: u32,
        /// The process.
        process: u32,
    },
    /// Kill every process but the guest: what a program left behind.
    KillRest,
    /// Write a file beneath the workspace; parents are made. Nothing is answered unless it fails; then the rest of the
    /// files with this number are not placed either.
    PutFile {
        /// Answered by `Failed` with this number, once.
        request: u32,
        /// Relative to the workspace.
        path: String,
        /// Start a new file (`false`) or add to the one begun.
        append: bool,
        /// At most [`CHUNK_BYTES_MAX`] bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// Read a range of a file; answered by `FileData` or `Failed`.
    ReadFile {
        /// Number of the answer.
        request: u32,
        /// Relative to the workspace.
        path: String,
        /// Where to begin.
        offset: u64,
        /// How much, at most [`CHUNK_BYTES_MAX`].
        bytes: u32,
    },
    /// List all files beneath the workspace; answered by `Files` messages, then `Done`.
    ListFiles {
        /// Number of the answers.
        request: u32,
        /// Entries after which the guest stops.
        entries_max: u32,
    },
    /// End the sandbox from inside.
    Shutdown,
    /// Whether a process takes what it is told: answered by `Done`, or by `Failed` if it is stopped and has not read
    /// everything that was written to its driver.
    Hears {
        /// Number of the answer.
        request: u32,
        /// The process.
        process: u32,
    },
    /// Answered by `Done` once the first thread of a process waits for what its driver is told next, whenever that is, after
    /// everything that the driver had said by then. Not answered for a process that ends before. One question per process:
    /// another takes its place.
    AwaitIdle {
        /// Number of the answer.
        request: u32,
        /// The process.
        process: u32,
    },
}

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenProcess {
    /// The number by which both sides will name it.
    pub process: u32,
    /// Not started when one of these files could not be placed.
    pub after: u32,
    /// Program and arguments; the program is an absolute path.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Working directory, absolute.
    pub cwd: String,
    /// Whether it is a driver: others get no descriptor beyond their streams.
    pub has_channel: bool,
    /// Whether a copy of the interpreter that the guest carries will do, if it carries one: it was started with these
    /// arguments and this environment.
    pub fork: Fork,
}

/// Whether a program may be a copy of the interpreter that the guest carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fork {
    /// It is started.
    Never,
    /// It may, and it is the last: the guest need not carry the interpreter any longer.
    Once,
    /// It may, and others after it.
    Again,
}

/// Guest to host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGuest {
    /// First frame: the guest is up.
    Hello {
        /// Must equal [`VERSION`].
        version: u32,
    },
    /// Output of a process.
    Output {
        /// The process.
        process: u32,
        /// Which stream.
        stream: Stream,
        /// At most [`CHUNK_BYTES_MAX`] bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// Bytes from the driver of a process; all output that it wrote before them has been sent.
    Control {
        /// The process.
        process: u32,
        /// At most [`CHUNK_BYTES_MAX`] bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// So much standard input has left the guest.
    StdinTaken {
        /// The process.
        process: u32,
        /// Bytes since the last such message.
        bytes: u32,
    },
    /// A process ended; all output it wrote before has been sent.
    Exited {
        /// The process.
        process: u32,
        /// How it ended.
        exit: Exit,
    },
    /// A part of a file.
    FileData {
        /// Number of the request.
        request: u32,
        /// At most [`CHUNK_BYTES_MAX`] bytes; empty at the end of the file.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// Some entries of the workspace.
    Files {
        /// Number of the request.
        request: u32,
        /// At most [`LIST_ENTRIES_MAX`].
        entries: Vec<FileEntry>,
    },
    /// A request is complete.
    Done {
        /// Number of the request.
        request: u32,
    },
    /// A request could not be met. For `Open` the number is that of the process.
    Failed {
        /// Number of the request.
        request: u32,
        /// What kind of failure.
        kind: FailureKind,
        /// The operating system's error number, 0 if none.
        errno: i32,
    },
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

/// What a request failed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The program could not be started.
    Start,
    /// The file could not be reached or written.
    File,
    /// The request made no sense (unknown process, path outside, too long).
    Refused,
}

/// A file of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Relative to the workspace; bytes that are not UTF-8 were replaced.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Length of a regular file.
    pub size_bytes: u64,
    /// Modification time, nanoseconds since the epoch.
    pub modified_ns: i64,
}

/// What an entry is; devices, sockets and pipes are `Other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Anything else.
    Other,
}
