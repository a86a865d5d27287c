//! The messages between host and guest.
//!
//! A sandbox may hold several processes (one per interpreter), each identified by a number that the host
//! chose. The bytes of an interpreter's driver are opaque (`Control`): the guest never parses them, so a
//! driver protocol can grow without a new guest. No message carries a credential, except secrets that were given to
//! that very run (in `Control`, or in the environment of an `OpenProcess`).
//!
//! A connection that a program makes to a listener inside is a *link*: opaque bytes in both directions, each direction
//! with a window. The guest chooses the number of a link among those that are free. Either side may end its direction
//! (`LinkEnd`) or close its end (`LinkClosed`); both sides send `LinkClosed` exactly once.

use serde::{Deserialize, Serialize};

/// Version of these messages. The guest sends it in its first frame, and the host refuses any other version.
pub const VERSION: u32 = 9;
/// The maximum amount of data in one message.
pub const CHUNK_BYTES_MAX: usize = 64 * 1024;
/// How much standard input may be in flight to one process before the guest acknowledges it.
pub const STDIN_WINDOW_BYTES: usize = 256 * 1024;
/// How much data of one link may be in flight in one direction before the receiver reports that it took some.
pub const LINK_WINDOW_BYTES: usize = 256 * 1024;
/// A receiver reports what it took once it is this much. The sender then never waits for a report that does not come.
pub const LINK_TAKEN_BYTES: usize = LINK_WINDOW_BYTES / 4;
/// The maximum number of links of one sandbox. The number of a link is smaller than this.
pub const LINKS_MAX: u32 = 64;
/// The maximum number of listeners of one sandbox. The number of a listener is smaller than this.
pub const LISTENERS_MAX: u32 = 8;
/// The longest file path in a request.
pub const PATH_BYTES_MAX: usize = 4096;
/// The maximum number of entries in one `Files` message.
pub const LIST_ENTRIES_MAX: usize = 256;

/// Host to guest.
///
/// The host sends files and the order that needs them together, without waiting. An order names in `after`
/// the number of the files that precede it. The guest drops the order when one of those files could not be
/// placed. The number 0 means no files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuest {
    /// Start a program. A driver's channel is file descriptor 3.
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
    /// Send a signal to a process and its process group (see setpgid(2)).
    Signal {
        /// The process.
        process: u32,
        /// Signal number.
        signal: i32,
    },
    /// Send everything that a process has written by now, and resume the process if it is stopped (SIGCONT).
    /// Answered by `Done`.
    Drain {
        /// Number of the answer.
        request: u32,
        /// The process.
        process: u32,
    },
    /// Kill every process except the guest. These are the processes that a program left behind.
    KillRest,
    /// Write a file beneath the workspace and create its parent directories. The guest answers only on
    /// failure; it then places no further files with this number.
    PutFile {
        /// The number of the single `Failed` answer.
        request: u32,
        /// Relative to the workspace.
        path: String,
        /// Whether to append to the file that was begun (`true`) or to start a new one (`false`).
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
        /// The offset of the first byte.
        offset: u64,
        /// Number of bytes, at most [`CHUNK_BYTES_MAX`].
        bytes: u32,
    },
    /// List all files beneath the workspace; answered by `Files` messages, then `Done`.
    ListFiles {
        /// Number of the answers.
        request: u32,
        /// Number of entries after which the guest stops.
        entries_max: u32,
    },
    /// End the sandbox from inside.
    Shutdown,
    /// Ask whether a process reads its input. Answered by `Done`, or by `Failed` if the process is stopped
    /// and has not read everything that was written to its driver.
    Hears {
        /// Number of the answer.
        request: u32,
        /// The process.
        process: u32,
    },
    /// Listen inside the sandbox. Each accepted connection becomes a link. The guest answers by `Listening`, or by
    /// `Failed` with the kind `Listen`; it then drops the orders that name this number in `after`. With an order behind it,
    /// `Listening` may come together with the next message.
    Listen {
        /// Number of the answer: that of the files that the order needs.
        request: u32,
        /// The number by which both sides identify it, smaller than [`LISTENERS_MAX`].
        listener: u32,
        /// Where to listen.
        at: ListenAt,
    },
    /// Stop listening and close every link. Answered by `Done`, after which the guest sends nothing about these links.
    EndLinks {
        /// Number of the answer.
        request: u32,
    },
    /// Bytes for the program at a link; at most [`LINK_WINDOW_BYTES`] may be unacknowledged.
    Link {
        /// The link.
        link: u32,
        /// At least one byte, at most [`CHUNK_BYTES_MAX`].
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// This many bytes of a link were taken by the receiver outside.
    LinkTaken {
        /// The link.
        link: u32,
        /// Bytes since the last such message.
        bytes: u32,
    },
    /// No more bytes come for the program at a link. The other direction stays open.
    LinkEnd {
        /// The link.
        link: u32,
    },
    /// The host has closed its end, after all bytes before. The number is free once both sides have sent this.
    LinkClosed {
        /// The link.
        link: u32,
    },
    /// Answered by `Done` once the first thread of a process waits for the next message to its driver. The
    /// answer follows everything that the driver had sent by then. There is no answer for a process that ends
    /// before. A process has at most one such question; a new one replaces the old one.
    AwaitIdle {
        /// Number of the answer.
        request: u32,
        /// The process.
        process: u32,
    },
    /// Create a named pipe. `Stdin` and `StdinEnd` with this number bring what its reader reads. A named pipe that
    /// has the number already is removed first. An interpreter that outlives its runs reads the standard input of
    /// each run from such a pipe. The guest answers only on failure; it then drops the orders that name this request in
    /// `after`.
    OpenInput {
        /// Number of the answer: that of the files that the order needs.
        request: u32,
        /// The number, which no process has.
        process: u32,
        /// Absolute, at most [`PATH_BYTES_MAX`] bytes. The guest creates its folder, and replaces a file that is
        /// there.
        path: String,
    },
    /// Remove a named pipe. What its reader has not read is lost.
    CloseInput {
        /// The number.
        process: u32,
    },
    /// Answered by `Done` once a thread of the sandbox waits for standard input of a process, and there is none. The
    /// guest has at most one such question; a new one replaces the old one.
    AwaitRead {
        /// Number of the answer.
        request: u32,
        /// The number of a process or of a named pipe.
        process: u32,
    },
    /// Change the size of a process's terminal. The kernel sends SIGWINCH.
    Resize {
        /// The process.
        process: u32,
        /// The new size.
        size: WindowSize,
    },
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WindowSize {
    /// Number of lines.
    pub rows: u16,
    /// Number of characters of a line.
    pub columns: u16,
}

/// Where the guest listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ListenAt {
    /// A Unix stream socket at this absolute path. The guest creates its folder, and replaces a socket that is there.
    Socket(String),
    /// A TCP port on 127.0.0.1, not 0.
    Loopback(u16),
}

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenProcess {
    /// The number by which both sides identify it.
    pub process: u32,
    /// Not started when one of these files could not be placed.
    pub after: u32,
    /// Program and arguments; the program is an absolute path.
    pub argv: Vec<String>,
    /// The complete environment.
    pub env: Vec<(String, String)>,
    /// Working directory, absolute.
    pub cwd: String,
    /// Whether it is a driver. Other programs get no file descriptor beyond their standard streams.
    pub has_channel: bool,
    /// Whether a copy of the guest's warm interpreter may be used instead, if the guest carries one. The
    /// interpreter was started with these arguments and this environment.
    pub fork: Fork,
    /// The size of the terminal that becomes its standard streams and its controlling terminal. `None` gives it
    /// pipes. Everything that it writes to a terminal is reported as standard output.
    pub terminal: Option<WindowSize>,
}

/// Whether a program may be a copy of the guest's warm interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fork {
    /// No: the guest starts the program.
    Never,
    /// Yes, for the last time: the guest need not carry the interpreter any longer.
    Once,
    /// Yes, and further programs may be copies too.
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
    /// Bytes from the driver of a process. All output that the process wrote before them has been sent.
    Control {
        /// The process.
        process: u32,
        /// At most [`CHUNK_BYTES_MAX`] bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// This many bytes of standard input have left the guest.
    StdinTaken {
        /// The process.
        process: u32,
        /// Bytes since the last such message.
        bytes: u32,
    },
    /// A process ended. All output that it wrote has been sent.
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
    /// The guest listens.
    Listening {
        /// Number of the request.
        request: u32,
        /// The listener.
        listener: u32,
    },
    /// A program connected to a listener. The guest chooses a number that is free.
    LinkOpened {
        /// The link, smaller than [`LINKS_MAX`].
        link: u32,
        /// The listener.
        listener: u32,
    },
    /// Bytes from the program at a link; at most [`LINK_WINDOW_BYTES`] may be unacknowledged.
    Link {
        /// The link.
        link: u32,
        /// At least one byte, at most [`CHUNK_BYTES_MAX`].
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// This many bytes of a link have left the guest, or were dropped because no program reads them any more.
    LinkTaken {
        /// The link.
        link: u32,
        /// Bytes since the last such message.
        bytes: u32,
    },
    /// No more bytes come from the program at a link. The other direction stays open.
    LinkEnd {
        /// The link.
        link: u32,
    },
    /// The guest has closed its end, after all bytes before. The number is free once both sides have sent this.
    LinkClosed {
        /// The link.
        link: u32,
    },
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// File descriptor 1.
    Stdout,
    /// File descriptor 2.
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

/// Which part of a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The program could not be started.
    Start,
    /// The file could not be reached or written.
    File,
    /// The request is invalid (unknown process, path outside the workspace, too long).
    Refused,
    /// The guest could not listen there.
    Listen,
}

/// A file of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Relative to the workspace; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Its type.
    pub kind: FileKind,
    /// Length of a regular file.
    pub size_bytes: u64,
    /// Modification time, nanoseconds since the epoch.
    pub modified_ns: i64,
}

/// The type of an entry; devices, sockets and pipes are `Other`.
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
