//! Plain HTTP over a unix socket: questions to an engine, and a proxy that changes what an engine is asked for.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use harness::engines::ask;
use serde_json::Value;

/// Changes the request for a container.
pub(crate) type Edit = Box<dyn Fn(&mut Value) + Send + Sync>;

/// The ids of containers (`containers`) or images (`images`) with the label of a server.
pub(crate) fn labelled(socket: &Path, what: &str, server: &str) -> Vec<String> {
    let filter = format!("%7B%22label%22%3A%5B%22org.palisade.server%3D{server}%22%5D%7D");
    let body =
        ask(socket, "GET", &format!("{what}/json?all=true&filters={filter}"), ("", b"")).unwrap_or_default();
    let told: Value = serde_json::from_slice(&body).unwrap_or_default();
    let ids = told.as_array().into_iter().flatten().filter_map(|one| one["Id"].as_str().map(str::to_owned));
    ids.collect()
}

/// An engine that asks the real one for something else. Returns its socket.
pub(crate) fn liar(real: &Path, at: &Path, edit: Edit) -> io::Result<PathBuf> {
    proxy(real, at, edit, |head| head)
}

/// An engine that lists everything, whatever it was asked for. Returns its socket.
pub(crate) fn without_filters(real: &Path, at: &Path) -> io::Result<PathBuf> {
    proxy(real, at, Box::new(|_| ()), |head| head.replacen("&filters=", "&ignored=", 1))
}

fn proxy(real: &Path, at: &Path, edit: Edit, head: fn(String) -> String) -> io::Result<PathBuf> {
    std::fs::remove_file(at).ok();
    let listener = UnixListener::bind(at)?;
    let real = real.to_owned();
    std::thread::spawn(move || {
        // Ends with the test process.
        for stream in listener.incoming().flatten() {
            if let Err(error) = pass_on(stream, &real, &edit, head) {
                eprintln!("proxy: {error}");
            }
        }
    });
    Ok(at.to_owned())
}

fn pass_on(mut client: UnixStream, real: &Path, edit: &Edit, other: fn(String) -> String) -> io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let mut head = other(String::from_utf8_lossy(&head).into_owned());
    let is_length = |line: &&str| line.to_ascii_lowercase().starts_with("content-length:");
    let line = head.lines().find(is_length).map(str::to_owned);
    let length = line.as_ref().and_then(|line| line.split(':').nth(1)?.trim().parse::<usize>().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body)?;
    if head.contains("/containers/create")
        && let Ok(mut request) = serde_json::from_slice::<Value>(&body)
    {
        edit(&mut request);
        body = request.to_string().into_bytes();
        if let Some(line) = line {
            head = head.replace(&line, &format!("content-length: {}", body.len()));
        }
    }
    let mut engine = UnixStream::connect(real)?;
    engine.write_all(head.as_bytes())?;
    engine.write_all(&body)?;
    io::copy(&mut engine, &mut client).map(drop)
}
