//! A mirror for unit tests: a function from paths to answers, over HTTP on loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use engine::packages::Ecosystem;

use crate::blobs::Blobs;
use crate::fetch::Fetcher;
use crate::index::Documents;
use crate::session::{Session, Supply};
use crate::settings::{Mirror, PackagesConfig};

/// The body for a path, or a status.
pub(crate) type Body = Result<Vec<u8>, u16>;

/// Serves on a port of loopback until the process ends. Returns the address.
pub(crate) fn serve(answer: impl Fn(&str) -> Body + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            // A client that goes away ends its thread only.
            std::thread::spawn(move || one(stream, &*answer).ok());
        }
    });
    format!("http://127.0.0.1:{port}")
}

/// Answers one request. The connection is not kept.
fn one(mut stream: TcpStream, answer: &(dyn Fn(&str) -> Body + Send + Sync)) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let body = answer(first.split(' ').nth(1).unwrap_or_default());
    let (status, body) = body.map_or_else(|status| (status, Vec::new()), |body| (200, body));
    write!(
        stream,
        "HTTP/1.1 {status} Answer\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)
}

/// An installation from a mirror, with a store in that folder.
pub(crate) fn session(
    folder: &harness::TestFolder,
    ecosystem: Ecosystem,
    mirror: &str,
    set: impl FnOnce(&mut PackagesConfig),
) -> Arc<Session> {
    let mut config = PackagesConfig::new(folder.path().to_owned());
    config.mirrors.insert(ecosystem, Mirror::parse(mirror).unwrap());
    set(&mut config);
    let fetcher = Arc::new(Fetcher::new(&config));
    let documents = Documents::new(folder.path().join("index"), Arc::clone(&fetcher), &config);
    let blobs = Blobs::new(folder.path().join("blobs"));
    let supply = Supply { config, fetcher, documents, blobs };
    Arc::new(Session::new(Arc::new(supply), ecosystem, None))
}

/// An address where nothing answers.
pub(crate) const NOTHING: &str = "http://127.0.0.1:9/simple";
