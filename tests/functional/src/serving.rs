//! A `palisade serve` of a test's own, command lines that talk to it, and a terminal to type into.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use harness::{Build, Ended, Palisade, User};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{SOON, until};

/// What a child has printed so far on one stream.
#[derive(Clone, Default)]
pub struct Said {
    text: Arc<Mutex<String>>,
    is_over: Arc<AtomicBool>,
}

impl Said {
    /// Listens on a thread of its own.
    pub fn listen(stream: impl Read + Send + 'static) -> Self {
        let said = Self::default();
        let kept = said.clone();
        std::thread::spawn(move || {
            let mut stream = stream;
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                kept.text.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            kept.is_over.store(true, Ordering::Release);
        });
        said
    }

    /// All of it so far.
    pub fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// All of it, to the end of the stream: the end of a process may be seen before its last words.
    pub fn whole(&self) -> String {
        until(SOON, "the stream ends", || self.is_over.load(Ordering::Acquire).then_some(()));
        self.text()
    }

    /// Waits until that is said.
    pub fn wait_for(&self, wanted: &str) {
        let what = format!("`{wanted}` is said");
        until(SOON, &what, || self.text().contains(wanted).then_some(()));
    }
}

/// A server with a state directory of its own; killed when dropped.
pub struct Server {
    child: Child,
    /// Its log.
    pub said: Said,
    /// Its own.
    pub state_dir: PathBuf,
    /// Who runs it.
    pub user: User,
}

impl Server {
    /// Starts one in a new state directory of that name.
    pub fn start(user: User, name: &str) -> Self {
        let state_dir = crate::own_folder(user, name);
        fs::set_permissions(&state_dir, fs::Permissions::from_mode(0o700)).unwrap();
        Self::start_in(user, state_dir, &[])
    }

    /// Starts one there.
    pub fn start_in(user: User, state_dir: PathBuf, flags: &[&str]) -> Self {
        let args = ["serve", "--listen", "127.0.0.1:0", "--state-dir", state_dir.to_str().unwrap()];
        let mut command = Palisade::new(Build::Real, user, &args).args(flags).into_command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Said::listen(child.stderr.take().unwrap());
        said.wait_for("\"listening\"");
        Self { child, said, state_dir, user }
    }

    /// Kills it without a warning.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Where its control socket is.
    pub fn socket(&self) -> PathBuf {
        self.state_dir.join("control.sock")
    }

    /// A command line for this server, as its own user.
    pub fn palisade(&self, args: &[&str]) -> Palisade {
        let state_dir = self.state_dir.to_str().unwrap();
        Palisade::new(Build::Real, self.user, args).env("PALISADE_STATE_DIR", state_dir)
    }

    /// Runs a command line for this server to its end.
    pub fn end(&self, args: &[&str]) -> Ended {
        self.palisade(args).end()
    }

    /// Standard output of a command that must succeed, without the last line end.
    pub fn said_by(&self, args: &[&str]) -> String {
        let ended = self.end(args);
        assert_eq!(ended.status.code(), Some(0), "{args:?} as {:?}: {}", self.user, ended.stderr);
        ended.stdout.trim_end().to_owned()
    }

    /// Opens a sandbox; its id.
    pub fn open(&self) -> String {
        self.said_by(&["sandbox", "open"])
    }

    /// The open sandboxes.
    pub fn sandboxes(&self) -> Vec<Value> {
        serde_json::from_str(&self.said_by(&["sandbox", "ls", "--json"])).unwrap()
    }

    /// `sandbox_list` over TCP, with or without a token: the whole response.
    pub fn list_over_tcp(&self, token: Option<&str>) -> String {
        let text = self.said.text();
        let address = text.split("\"url\":\"http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sandbox_list","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\n{token}content-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
             mcp-method: tools/call\r\nmcp-name: sandbox_list\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        self.child.wait().ok();
    }
}

/// A shell on a terminal of its own, made by script(1).
pub struct Terminal {
    child: Child,
    keys: Option<ChildStdin>,
    /// All that was shown.
    pub screen: Said,
}

impl Terminal {
    /// Starts `palisade ARGS` for that server, on a terminal without a cursor.
    pub fn start(server: &Server, args: &str) -> Self {
        Self::start_on("dumb", server, args)
    }

    /// Starts it on a terminal of that kind.
    pub fn start_on(kind: &str, server: &Server, args: &str) -> Self {
        Self::start_behind(kind, server, &format!("exec {} {args}", Self::palisade()))
    }

    /// The path of the command, for [`Self::start_behind`].
    pub fn palisade() -> String {
        harness::binary(Build::Real).display().to_string()
    }

    /// Starts that line of a shell on a terminal of that kind.
    pub fn start_behind(kind: &str, server: &Server, line: &str) -> Self {
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", line, "/dev/null"]).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("TERM", kind).env("SHELL", "/bin/sh");
        command.env("PALISADE_STATE_DIR", &server.state_dir).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let screen = Said::listen(child.stdout.take().unwrap());
        Self { keys: child.stdin.take(), child, screen }
    }

    /// Types.
    pub fn press(&mut self, keys: &str) {
        self.keys.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the prompt has been shown so often.
    pub fn prompts(&self, count: usize) {
        let shown = || (self.screen.text().matches("python> ").count() >= count).then_some(());
        until(SOON, &format!("{count} prompts in {:?}", self.screen.text()), shown);
    }

    /// Waits for a prompt behind the last time that this was shown.
    pub fn prompt_behind(&self, shown: &str) {
        let is_ready = || {
            let text = self.screen.text();
            text.rsplit_once(shown).is_some_and(|(_, behind)| behind.contains("> ")).then_some(())
        };
        until(SOON, &format!("a prompt behind {shown:?} in {:?}", self.screen.text()), is_ready);
    }

    /// Waits for its end.
    pub fn status(&mut self) -> Option<i32> {
        until(SOON, "the terminal ends", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
