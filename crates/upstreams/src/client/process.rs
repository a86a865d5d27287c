//! A server as a process of the user (`wall = "none"`), started through the role [`crate::supervisor`].
//!
//! The supervisor ends the whole process tree when its standard input closes; so dropping the connection is enough, and so
//! is the death of Palisade by any signal.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::lines::{Behind, LinePeer};
use crate::host::{ToolError, ToolErrorCode};
use crate::supervisor::ROLE;

/// Variables that every server gets from the user's environment.
const INHERITED: [&str; 10] = [
    "HOME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "USER",
    "LANG",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
];
/// Says to a Palisade that is started as a server of another one, by whatever wrapper, that it is one.
pub const DEPTH_VARIABLE: &str = "PALISADE_TOOLS_DEPTH";
/// How much of standard error is kept.
const WORDS_BYTES_MAX: usize = 4096;
/// How long the supervisor may take to end.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// A command with everything filled in.
pub(crate) struct Filled<'a> {
    pub(crate) command: &'a str,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: Option<&'a Path>,
}

/// Starts a server behind a supervisor. `launcher` is the executable that knows the role.
pub(crate) fn start(launcher: &Path, filled: Filled<'_>) -> Result<LinePeer, ToolError> {
    let unstartable = |error: std::io::Error| {
        let message = format!("`{}` could not be started: {error}", filled.command);
        ToolError::new(ToolErrorCode::ServerUnavailable, message)
    };
    let arguments: Vec<OsString> = [ROLE, filled.command]
        .into_iter()
        .map(OsString::from)
        .chain(filled.args.iter().map(Into::into))
        .collect();
    let mut command = Command::new(launcher);
    command.args(arguments).env_clear().process_group(0);
    command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(&filled.env).env(DEPTH_VARIABLE, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(cwd) = filled.cwd {
        command.current_dir(cwd);
    }
    let mut child = command.spawn().map_err(unstartable)?;
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
        return Err(unstartable(std::io::ErrorKind::BrokenPipe.into()));
    };
    let writer = pipe::Sender::from_owned_fd(OwnedFd::from(stdin)).map_err(unstartable)?;
    let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout)).map_err(unstartable)?;
    let stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(stderr)).map_err(unstartable)?;
    let words = Arc::new(Mutex::new(Vec::new()));
    tokio::spawn(keep_words(stderr, Arc::clone(&words)));
    let (gone, is_gone) = watch::channel(false);
    reap(child, gone).map_err(unstartable)?;
    Ok(LinePeer::new(reader, writer, Box::new(Process { words, is_gone })))
}

struct Process {
    words: Arc<Mutex<Vec<u8>>>,
    is_gone: watch::Receiver<bool>,
}

impl Behind for Process {
    fn end(&self) -> sandbox::BoxFuture<'_, ()> {
        let mut is_gone = self.is_gone.clone();
        Box::pin(async move {
            let gone = is_gone.wait_for(|gone| *gone);
            if tokio::time::timeout(END_PATIENCE, gone).await.is_err() {
                tracing::error!("upstream_survived");
            }
        })
    }

    fn last_words(&self) -> String {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        last_line(&words)
    }
}

/// The last line of what a server said, cut only after credentials are taken out of it ([`crate::redact::error`]).
pub(crate) fn last_line(words: &[u8]) -> String {
    let text = String::from_utf8_lossy(words);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    last.to_owned()
}

/// Keeps the end of what the server writes to standard error.
async fn keep_words(mut stderr: pipe::Receiver, words: Arc<Mutex<Vec<u8>>>) {
    let mut piece = [0; WORDS_BYTES_MAX];
    while let Ok(count) = stderr.read(&mut piece).await {
        if count == 0 {
            return;
        }
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend_from_slice(&piece[..count]);
        let surplus = words.len().saturating_sub(WORDS_BYTES_MAX);
        if surplus > 0 {
            // A line goes as a whole: its end may be the end of a credential.
            let line = words.iter().skip(surplus).position(|byte| *byte == b'\n');
            let end = line.map_or(words.len(), |line| surplus + line + 1);
            words.drain(..end);
        }
    }
}

/// Waits for the supervisor in a thread of its own, so that no zombie remains. The thread ends with the process, which ends
/// with the connection.
fn reap(mut child: Child, gone: watch::Sender<bool>) -> std::io::Result<()> {
    let wait = move || {
        if let Err(error) = child.wait() {
            tracing::warn!(%error, "upstream_not_awaited");
        }
        gone.send_replace(true);
    };
    std::thread::Builder::new().name("upstream-wait".to_owned()).stack_size(64 << 10).spawn(wait).map(drop)
}
