//! Servers behind a wall that the test provides: what the wall gives to a server beside its configuration.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use sandbox::BoxFuture;
use upstreams::{
    ServerWall, ToolError, Transport, Upstreams, UpstreamsConfig, WalledEnd, WalledProcess, WalledProgram,
    WalledStart,
};

use crate::stage::{Folder, call, spec, text};

const SECRET: &str = "tok-of-access-0123";

/// A wall that holds nothing, and gives a secret as `access` does.
struct Wall;

struct End(Mutex<Child>);

impl WalledEnd for End {
    fn end(&self) -> BoxFuture<'_, ()> {
        let mut child = self.0.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        Box::pin(std::future::ready(()))
    }

    fn last_words(&self) -> Vec<u8> {
        format!("cannot use {SECRET}\n").into_bytes()
    }
}

impl WalledStart for Wall {
    fn start<'a>(&'a self, program: WalledProgram<'a>) -> BoxFuture<'a, Result<WalledProcess, ToolError>> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let child = Command::new(&program.command[0])
            .args(&program.command[1..])
            .env("TOKEN", SECRET)
            .stdin(OwnedFd::from(theirs.try_clone().unwrap()))
            .stdout(OwnedFd::from(theirs))
            .spawn()
            .unwrap();
        let (reader, writer) = tokio::io::split(tokio::net::UnixStream::from_std(ours).unwrap());
        Box::pin(std::future::ready(Ok(WalledProcess {
            reader: Box::new(reader),
            writer: Box::new(writer),
            end: Box::new(End(Mutex::new(child))),
            // A short value occurs by chance, so it stays.
            secrets: vec![SECRET.to_owned(), "tok".to_owned()],
        })))
    }
}

pub(crate) async fn a_secret_that_a_server_gets_by_access_is_taken_out_of_its_results() {
    let folder = Folder::new();
    let mut spec = spec("secret", &folder);
    let Transport::Stdio(stdio) = &mut spec.transport else { panic!() };
    stdio.wall = ServerWall::Own { read: Vec::new(), write: Vec::new(), access: vec!["web".to_owned()] };
    let host = Upstreams::new(UpstreamsConfig {
        state_dir: folder.0.clone(),
        launcher: std::env::current_exe().unwrap(),
        wall: Some(Arc::new(Wall)),
        servers: vec![spec],
    });
    assert_eq!(text(&call(&host, "echo", "").await.unwrap()), "[redacted]");
    for asked in ["refuse", "die"] {
        let error = call(&host, "echo", asked).await.unwrap_err();
        assert!(!error.message.contains(SECRET), "{error}");
    }
    host.close().await;
}
