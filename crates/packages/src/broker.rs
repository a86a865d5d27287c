//! The broker of an installation: an index and files over plain HTTP, on a loopback port inside the builder's sandbox.
//!
//! Only GET and HEAD of names that exist. Nothing that the builder sends reaches a mirror, except the name of a package.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::links::{Broker, Link, LinkCall};
use engine::packages::Ecosystem;
use futures_util::stream;
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sandbox::BoxFuture;

use crate::go;
use crate::index::pypi::SIMPLE_JSON;
use crate::session::{NoAnswer, Session};

/// The port of the broker inside the builder.
pub(crate) const PORT: u16 = 8091;
/// How much of a file is sent at once.
const PART_BYTES: usize = 256 << 10;
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

type FileStream = stream::Iter<FileParts>;
type Body = Either<Full<Bytes>, http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>>;

/// The address of the broker, for tools inside.
pub(crate) fn base() -> String {
    format!("http://127.0.0.1:{PORT}")
}

/// Serves the index of one installation.
pub(crate) struct IndexBroker(pub(crate) Arc<Session>);

impl Broker for IndexBroker {
    fn serve(self: Arc<Self>, link: Link, _call: LinkCall) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let broker = Arc::clone(&self);
                async move { Ok::<_, Infallible>(broker.answer(&request).await) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(HEAD_BYTES_MAX);
            server.serve_connection(TokioIo::new(link), service).await.map_err(io::Error::other)
        })
    }
}

impl IndexBroker {
    async fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        let is_head = request.method() == Method::HEAD;
        if !is_head && request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED);
        }
        let session = &self.0;
        let path = request.uri().path();
        let answer = match session.ecosystem {
            Ecosystem::Pypi => match path.strip_prefix("/files/").and_then(|rest| rest.split_once('/')) {
                Some((digest, name)) if name.ends_with(".metadata") => {
                    session.metadata(digest).await.map(|file| content(file, request.headers(), is_head))
                }
                Some((digest, _)) => {
                    session.file(digest).await.map(|file| content(file, request.headers(), is_head))
                }
                None => match path.strip_prefix("/simple/") {
                    Some(name) => {
                        let page = session.page(name.trim_end_matches('/'), &base()).await;
                        page.map(|page| document(page, SIMPLE_JSON))
                    }
                    None => Err(NoAnswer::NotFound),
                },
            },
            Ecosystem::Npm => match path.strip_prefix("/-/files/").and_then(|rest| rest.split_once('/')) {
                Some((digest, _)) => {
                    session.file(digest).await.map(|file| content(file, request.headers(), is_head))
                }
                None => {
                    let name = path.trim_start_matches('/').replace("%2f", "/").replace("%2F", "/");
                    let name = name.replace("%40", "@");
                    session.page(&name, &base()).await.map(|page| document(page, "application/json"))
                }
            },
            Ecosystem::Go if request.uri().query().is_some() => Err(NoAnswer::NotFound),
            Ecosystem::Go => go::answer(session, path).await.map(|answer| match answer {
                go::Answer::Document(text) => document(text, "text/plain; charset=utf-8"),
                go::Answer::Archive(file) => content(file, request.headers(), is_head),
            }),
        };
        answer.unwrap_or_else(|why| {
            plain(match why {
                NoAnswer::NotFound => StatusCode::NOT_FOUND,
                // Not 403: tools take that for a missing login and ask further addresses.
                NoAnswer::Denied => StatusCode::NOT_FOUND,
                // Not 5xx: tools would repeat what was already repeated.
                NoAnswer::Failed => StatusCode::CONFLICT,
            })
        })
    }
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = status;
    response
}

fn document(page: Vec<u8>, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(page))));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

/// A file, or the part of it that the request asks for.
fn content(mut file: File, headers: &HeaderMap, is_head: bool) -> Response<Body> {
    let Ok(size) = file.metadata().map(|meta| meta.len()) else { return plain(StatusCode::CONFLICT) };
    let asked = headers.get(RANGE).map(|value| value.to_str().ok().and_then(|text| range(text, size)));
    let (status, from, count) = match asked {
        None => (StatusCode::OK, 0, size),
        Some(Some((from, count))) => (StatusCode::PARTIAL_CONTENT, from, count),
        Some(None) => return plain(StatusCode::RANGE_NOT_SATISFIABLE),
    };
    if file.seek(SeekFrom::Start(from)).is_err() {
        return plain(StatusCode::CONFLICT);
    }
    let body = match is_head {
        true => Either::Left(Full::default()),
        false => {
            let parts: FileStream = stream::iter(FileParts { file, left: count });
            Either::Right(BodyExt::boxed_unsync(StreamBody::new(parts)))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let head = response.headers_mut();
    head.insert(CONTENT_TYPE, http::HeaderValue::from_static("application/octet-stream"));
    head.insert(ACCEPT_RANGES, http::HeaderValue::from_static("bytes"));
    head.insert(CONTENT_LENGTH, count.into());
    if status == StatusCode::PARTIAL_CONTENT
        && let Ok(value) = format!("bytes {from}-{}/{size}", from + count - 1).parse()
    {
        head.insert(CONTENT_RANGE, value);
    }
    response
}

/// Start and length of a single range.
fn range(text: &str, size: u64) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to) = match (first.is_empty(), last.is_empty()) {
        (true, false) => (size.saturating_sub(last.parse().ok()?), size.checked_sub(1)?),
        (false, true) => (first.parse().ok()?, size.checked_sub(1)?),
        (false, false) => (first.parse().ok()?, last.parse::<u64>().ok()?.min(size.checked_sub(1)?)),
        (true, true) => return None,
    };
    (from <= to).then(|| (from, to - from + 1))
}

/// Reads the parts of a file.
struct FileParts {
    file: File,
    left: u64,
}

impl Iterator for FileParts {
    type Item = io::Result<Frame<Bytes>>;

    fn next(&mut self) -> Option<Self::Item> {
        let most = usize::try_from(self.left).unwrap_or(PART_BYTES).min(PART_BYTES);
        if most == 0 {
            return None;
        }
        let mut part = vec![0; most];
        match self.file.read(&mut part) {
            Ok(0) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                part.truncate(count);
                self.left -= count as u64;
                Some(Ok(Frame::data(Bytes::from(part))))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_within_the_file() {
        for (text, wanted) in [
            ("bytes=0-9", Some((0, 10))),
            ("bytes=90-200", Some((90, 10))),
            ("bytes=-10", Some((90, 10))),
            ("bytes=-1000", Some((0, 100))),
            ("bytes=50-", Some((50, 50))),
            ("bytes=100-", None),
            ("bytes=9-0", None),
            ("bytes=-", None),
            ("bytes=0-1,5-6", None),
            ("items=0-1", None),
        ] {
            assert_eq!(range(text, 100), wanted, "{text}");
        }
        assert_eq!(range("bytes=-1", 0), None);
    }
}
