//! File URLs over HTTP, without the other parts of a server.

use std::path::Path;

use axum::Extension;
use axum::http::Uri;
use engine::Principal;
use engine::workspace::{FilePath, Quota};
use tower::ServiceExt;

use super::*;
use mcp::file_urls::FileUrlMaker;

use crate::test_workspaces::{SANDBOX, TestWorkspaces};
use harness::TestFolder;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";

struct Site {
    workspaces: Arc<TestWorkspaces>,
    router: Router,
    urls: SignedFileUrls,
    counters: Arc<Counters>,
    _state: TestFolder,
}

/// The file that the policy of these tests forbids.
const FORBIDDEN: &str = "forbidden";

impl Site {
    fn new() -> Self {
        Self::over(TestWorkspaces::new())
    }

    fn over(workspaces: TestWorkspaces) -> Self {
        let (state, workspaces, counters) =
            (TestFolder::new(), Arc::new(workspaces), Arc::<Counters>::default());
        let key = Arc::new(FileUrlKey::obtain(state.path()).unwrap());
        let callers = Callers::new(Path::new("/nonexistent"), None, true, None, Box::new(|_, _, _| {}));
        let may_use: UrlJudge = Box::new(|_, grant| grant.path.as_str() != FORBIDDEN);
        let (files, counted) = (Arc::clone(&workspaces) as _, Arc::clone(&counters));
        let files = Files::new(files, Arc::clone(&key), callers, counted, may_use);
        let urls = SignedFileUrls::new(&key, "http://localhost");
        Self { workspaces, router: routes(files), urls, counters, _state: state }
    }

    fn url(&self, action: FileAction, path: &str) -> Uri {
        self.url_for(&Principal::local(), action, path)
    }

    fn url_for(&self, principal: &Principal, action: FileAction, path: &str) -> Uri {
        let url = self.urls.make(action, principal, SANDBOX, &FilePath::parse(path).unwrap()).unwrap();
        url.url.strip_prefix("http://localhost").unwrap().parse().unwrap()
    }

    async fn ask(&self, method: Method, uri: &Uri, headers: &[(HeaderName, &str)], body: Body) -> Response {
        let mut request = Request::new(body);
        (*request.method_mut(), *request.uri_mut()) = (method, uri.clone());
        for (name, value) in headers {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn get(&self, uri: &Uri) -> Response {
        self.ask(Method::GET, uri, &[], Body::empty()).await
    }

    async fn put(&self, uri: &Uri, body: impl Into<Body>) -> Response {
        self.ask(Method::PUT, uri, &[], body.into()).await
    }
}

async fn bytes(response: Response) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn a_file_is_downloaded_as_nothing_but_a_file() {
    let site = Site::new();
    site.workspaces.put("out/ä.png", PNG);
    let response = site.get(&site.url(FileAction::Download, "out/ä.png")).await;
    assert_eq!(response.status(), 200);
    let headers = response.headers().clone();
    for (name, value) in [
        ("content-type", "image/png"),
        ("content-length", "18"),
        ("content-disposition", "attachment; filename=\"_.png\"; filename*=UTF-8''%C3%A4.png"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox; default-src 'none'"),
        ("cache-control", "private, no-store"),
        ("accept-ranges", "bytes"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert_eq!(bytes(response).await, PNG);
}

#[tokio::test]
async fn a_page_among_the_files_is_saved_and_not_shown() {
    let site = Site::new();
    site.workspaces.put("evil.html", "<script>alert(1)</script>");
    let response = site.get(&site.url(FileAction::Download, "evil.html")).await;
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    assert!(response.headers()["content-disposition"].to_str().unwrap().starts_with("attachment;"));
    assert!(response.headers()["content-security-policy"].to_str().unwrap().starts_with("sandbox;"));
}

#[tokio::test]
async fn parts_and_heads_are_given() {
    let site = Site::new();
    site.workspaces.put("digits", "0123456789");
    let uri = site.url(FileAction::Download, "digits");
    let part = site.ask(Method::GET, &uri, &[(header::RANGE, "bytes=2-4")], Body::empty()).await;
    assert_eq!(
        (part.status(), &part.headers()["content-range"]),
        (StatusCode::PARTIAL_CONTENT, &HeaderValue::from_static("bytes 2-4/10"))
    );
    assert_eq!(bytes(part).await, "234");
    let beyond = site.ask(Method::GET, &uri, &[(header::RANGE, "bytes=10-")], Body::empty()).await;
    assert_eq!(
        (beyond.status(), &beyond.headers()["content-range"]),
        (StatusCode::RANGE_NOT_SATISFIABLE, &HeaderValue::from_static("bytes */10"))
    );
    let head = site.ask(Method::HEAD, &uri, &[], Body::empty()).await;
    assert_eq!(
        (head.status(), &head.headers()["content-length"]),
        (StatusCode::OK, &HeaderValue::from_static("10"))
    );
    assert!(bytes(head).await.is_empty());
}

#[tokio::test]
async fn every_wrong_url_gets_the_same_answer() {
    let site = Site::new();
    site.workspaces.put("file", "x");
    let good = site.url(FileAction::Download, "file");
    assert_eq!(site.get(&good).await.status(), 200);
    let expected = |response: &Response| response.status() == StatusCode::NOT_FOUND;
    let text = "this link is not valid, or not any more: ask for a new one\n";
    let stranger = site.url_for(&Principal::anonymous(), FileAction::Download, "file");
    let other_action = site.url(FileAction::Upload, "file");
    let mut forged = good.path().to_owned();
    forged.replace_range(10..11, if &forged[10..11] == "x" { "y" } else { "x" });
    for wrong in [stranger, other_action, forged.parse().unwrap(), "/files/x/y".parse().unwrap()] {
        let response = site.get(&wrong).await;
        assert!(expected(&response), "{wrong}");
        assert_eq!(bytes(response).await, text, "{wrong}");
    }
    let response = site.put(&good, "overwritten").await;
    assert!(expected(&response) && response.headers()["connection"] == "close");
    site.workspaces.close();
    let response = site.get(&good).await;
    assert!(expected(&response));
    assert_eq!(bytes(response).await, text, "a closed sandbox");
    assert_eq!(site.workspaces.get("file").unwrap(), b"x");
    let page = super::super::metrics::page(
        &site.counters,
        &super::super::metrics::Levels { connections: 0, requests: 0, sessions: 0 },
        &engine::telemetry::Snapshot::default(),
    );
    assert!(page.contains("palisade_http_refusals_total{reason=\"link\"} 6"), "{page}");
}

#[tokio::test]
async fn a_url_of_what_the_policy_forbids_by_now_gets_the_answer_of_a_wrong_one() {
    let site = Site::new();
    site.workspaces.put(FORBIDDEN, "hush");
    let wrong = site.get(&site.url(FileAction::Upload, "other")).await;
    let refused = site.get(&site.url(FileAction::Download, FORBIDDEN)).await;
    assert_eq!((refused.status(), bytes(refused).await), (wrong.status(), bytes(wrong).await));
    assert_eq!(site.put(&site.url(FileAction::Upload, FORBIDDEN), "changed").await.status(), 404);
    assert_eq!(site.workspaces.get(FORBIDDEN).unwrap(), b"hush");
}

#[tokio::test]
async fn an_upload_makes_the_file_and_only_a_whole_one() {
    let site = Site::new();
    let uri = site.url(FileAction::Upload, "data/in.bin");
    let pieces = (0..40).map(|number| Ok::<_, std::io::Error>(Bytes::from(vec![number; 50_000])));
    let response = site.put(&uri, Body::from_stream(stream::iter(pieces))).await;
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(bytes(response).await, "{\"path\":\"data/in.bin\",\"size_bytes\":2000000}\n");
    let written = site.workspaces.get("data/in.bin").unwrap();
    assert!(
        written.len() == 2_000_000
            && written.chunks(50_000).enumerate().all(|(at, piece)| piece == vec![at as u8; 50_000])
    );
    let breaks = [Ok(Bytes::from_static(b"half")), Err(std::io::Error::other("gone"))];
    let broken =
        site.put(&site.url(FileAction::Upload, "broken"), Body::from_stream(stream::iter(breaks))).await;
    assert_eq!(broken.status(), StatusCode::BAD_REQUEST);
    for (name, value) in [(header::CONTENT_RANGE, "bytes 0-1/2"), (header::CONTENT_ENCODING, "gzip")] {
        let response =
            site.ask(Method::PUT, &site.url(FileAction::Upload, "part"), &[(name, value)], "xx".into()).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    }
    assert_eq!(site.workspaces.names(), 1, "a draft or a part was left");
}

#[tokio::test]
async fn too_much_is_refused_announced_or_not() {
    let site = Site::over(TestWorkspaces::with(Quota { bytes: 1 << 20, inodes: 10 }));
    let full = site.put(&site.url(FileAction::Upload, "big"), vec![1; 2 << 20]).await;
    assert_eq!(
        (full.status(), full.headers()["connection"].to_str().ok()),
        (StatusCode::INSUFFICIENT_STORAGE, Some("close"))
    );
    let pieces = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[1; 100_000])));
    let endless = site.put(&site.url(FileAction::Upload, "big"), Body::from_stream(pieces)).await;
    assert_eq!(endless.status(), StatusCode::INSUFFICIENT_STORAGE);
    assert_eq!(site.workspaces.names(), 0);
}

#[tokio::test]
async fn a_file_beyond_the_maximum_is_not_sent() {
    let site = Site::new();
    let file = site.workspaces.put("holes", "");
    std::fs::File::options()
        .write(true)
        .open(file)
        .unwrap()
        .set_len(mcp::file_urls::TRANSFER_BYTES_MAX + 1)
        .unwrap();
    let response = site.get(&site.url(FileAction::Download, "holes")).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_file_that_shrinks_on_its_way_is_not_taken_for_whole() {
    let site = Site::new();
    let file = site.workspaces.put("file", vec![1; 4 << 20]);
    let response = site.get(&site.url(FileAction::Download, "file")).await;
    std::fs::File::options().write(true).open(file).unwrap().set_len(10).unwrap();
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_gives_its_place_back() {
    let site = Site::new();
    site.workspaces.put("file", vec![1; 4 << 20]);
    let uri = site.url(FileAction::Download, "file");
    let mut stopped = Vec::new();
    for _ in 0..TRANSFERS_MAX {
        stopped.push(site.get(&uri).await);
    }
    assert_eq!(site.get(&uri).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    tokio::time::sleep(PAUSE_MAX * 3).await;
    assert_eq!(site.get(&uri).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn other_methods_are_named() {
    let site = Site::new();
    let response = site.ask(Method::DELETE, &site.url(FileAction::Upload, "file"), &[], Body::empty()).await;
    assert_eq!(
        (response.status(), response.headers()["allow"].to_str().ok()),
        (StatusCode::METHOD_NOT_ALLOWED, Some("GET, HEAD, PUT"))
    );
}

#[tokio::test]
async fn urls_lead_back_by_the_name_that_the_caller_used_or_the_operator_gave() {
    let state = TestFolder::new();
    let key = Arc::new(FileUrlKey::obtain(state.path()).unwrap());
    for (public_url, wanted) in [
        (None, "https://tools.example.com:8443/files/"),
        (Some("https://proxy.example.com/sandbox/"), "https://proxy.example.com/sandbox/files/"),
    ] {
        let offered = FileUrlOffer {
            key: Arc::clone(&key),
            public_url: public_url.map(str::to_owned),
            scheme: "https",
        };
        let made = |Extension(urls): Extension<FileUrls>| async move {
            let path = FilePath::parse("a").unwrap();
            urls.make(FileAction::Download, &Principal::local(), SANDBOX, &path).unwrap().url
        };
        let router = Router::new()
            .fallback(made)
            .layer(axum::middleware::from_fn_with_state(Arc::new(offered), offer));
        let mut request = Request::new(Body::empty());
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("tools.example.com:8443"));
        let url = bytes(router.oneshot(request).await.unwrap()).await;
        assert!(url.starts_with(wanted.as_bytes()), "{url:?}");
    }
}

/// Peak memory of this process; every test runs in a separate process.
fn memory_peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_largest_file_goes_both_ways_in_a_little_memory() {
    const PIECE: usize = 64 << 10;
    let site = Site::new();
    let count = mcp::file_urls::TRANSFER_BYTES_MAX as usize / PIECE;
    let before = memory_peak_kb();
    let pieces = (0..count).map(|number| Ok::<_, std::io::Error>(Bytes::from(vec![number as u8; PIECE])));
    let put = site.put(&site.url(FileAction::Upload, "large"), Body::from_stream(stream::iter(pieces))).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    let response = site.get(&site.url(FileAction::Download, "large")).await;
    let mut body = response.into_body();
    let mut taken = 0;
    while let Some(frame) = body.frame().await {
        for byte in frame.unwrap().into_data().unwrap() {
            assert_eq!(byte, (taken / PIECE) as u8);
            taken += 1;
        }
    }
    assert_eq!(taken as u64, mcp::file_urls::TRANSFER_BYTES_MAX);
    let grown = memory_peak_kb() - before;
    assert!(grown < 16 << 10, "{grown} kB");
}

/// Checks the bytes that a real HTTP server sends, and that it closes the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_work_on_a_real_connection() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_util::sync::CancellationToken;

    let site = Site::new();
    let (listener, address) = super::super::listen::open(&"127.0.0.1:0".parse().unwrap(), &[]).await.unwrap();
    let closing = CancellationToken::new();
    let serving = super::super::connections::Serving {
        router: site.router.clone(),
        tls: None,
        bodies: super::super::body::BodyBudget::default(),
        slots: Arc::new(super::super::connection_slots::ConnectionSlots::new(8)),
        counters: Arc::default(),
        closing: closing.clone(),
        closed: closing.clone(),
    };
    tokio::spawn(super::super::connections::accept_all(listener, serving));
    let ask = async |request: String| {
        let mut stream = tokio::net::TcpStream::connect(address.to_string()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer))
            .await
            .unwrap()
            .unwrap();
        String::from_utf8(answer).unwrap()
    };
    let upload = site.url(FileAction::Upload, "data.txt");
    let head = "Host: localhost\r\nConnection: close\r\n";
    let put = ask(format!("PUT {upload} HTTP/1.1\r\n{head}Content-Length: 10\r\n\r\n0123456789")).await;
    assert!(put.starts_with("HTTP/1.1 201 Created\r\n"), "{put}");
    let chunked = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let other = site.url(FileAction::Upload, "chunked.txt");
    let put = ask(format!("PUT {other} HTTP/1.1\r\n{head}{chunked}")).await;
    assert!(put.ends_with("\"size_bytes\":3}\n"), "{put}");
    let download = site.url(FileAction::Download, "data.txt");
    let got = ask(format!("GET {download} HTTP/1.1\r\n{head}Range: bytes=-4\r\n\r\n")).await;
    assert!(got.starts_with("HTTP/1.1 206 Partial Content\r\n") && got.ends_with("\r\n\r\n6789"), "{got}");
    // The server refuses before it reads the body: it answers, and the connection ends.
    let refused =
        ask(format!("PUT {download} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")).await;
    assert!(refused.starts_with("HTTP/1.1 404 Not Found\r\n"), "{refused}");
    closing.cancel();
}
