//! Connections that are too many, too slow or half there, and the places where a server listens. A client that
//! behaves keeps being served all the while.

use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use functional::http::{Request, Server, Wire};
use functional::tls::certificate;
use functional::{SOON, is_quick, own_folder, until};
use harness::{Build, Palisade, User, users};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::json;

const SLOTS_MAX: f64 = 2048.0;
/// Of a request's head; the server's own.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
const OPEN_FILES: u64 = 7000;
const USUAL_OPEN_FILES: u64 = 1024;

fn list() -> Request {
    Request::modern("tools/list", json!({}))
}

/// Lets this process have more open files; whether that is possible here.
fn allow_open_files(count: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let is_possible = limit.maximum.is_none_or(|maximum| maximum >= count);
    if is_possible {
        setrlimit(Resource::Nofile, Rlimit { current: Some(count), ..limit }).unwrap();
    } else {
        eprintln!("SKIPPED: no more than {:?} open files here", limit.maximum);
    }
    is_possible
}

/// Opens connections that say so much and nothing more.
fn crowd(server: &Server, count: usize, word: &[u8]) -> Vec<TcpStream> {
    use std::io::Write;
    let open = |_| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        // Whoever has lost his slot already cannot speak any more.
        stream.write_all(word).ok();
        stream
    };
    (0..count).map(open).collect()
}

fn open_files(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid().as_raw_nonzero())).unwrap().count()
}

#[test]
fn thousands_of_idle_connections_keep_nobody_out() {
    if !allow_open_files(OPEN_FILES) {
        return;
    }
    let server = Server::start();
    let mut regular = server.connect();
    let mut idle = Vec::new();
    let count = if is_quick() { 2500 } else { 5000 };
    while idle.len() < count {
        idle.extend(crowd(&server, 250, b""));
        // The one that works was never idle for long, so its slot is not the one that is needed.
        regular.send(&list().bytes(&server));
        assert_eq!(regular.answer().status, 200, "after {} connections", idle.len());
        server.is_well();
    }
    assert!(server.metric("palisade_http_connections") <= SLOTS_MAX);
    assert!(server.metric("palisade_http_refusals_total{reason=\"idle\"}") >= (count - 2100) as f64);
    drop(idle);
    until(SOON, "the slots are free again", || {
        (server.metric("palisade_http_connections") < 10.0).then_some(())
    });
    // Spares have a dozen each.
    until(SOON, "the descriptors are closed", || (open_files(&server) < 250).then_some(()));
}

#[test]
fn with_the_usual_number_of_descriptors_idle_connections_keep_nobody_out() {
    let own = getrlimit(Resource::Nofile);
    // Inherited by the server: soft limit only, as a login shell has it.
    setrlimit(Resource::Nofile, Rlimit { current: Some(USUAL_OPEN_FILES), ..own }).unwrap();
    let server = Server::start();
    if !allow_open_files(OPEN_FILES) {
        return;
    }
    let began = Instant::now();
    let idle = crowd(&server, 1500, b"");
    for _ in 0..5 {
        server.is_well();
    }
    assert!(began.elapsed() < Duration::from_secs(15), "it took {:?}", began.elapsed());
    drop(idle);
}

#[test]
fn with_few_descriptors_idle_connections_keep_nobody_out() {
    let palisade = Palisade::new(Build::Real, users()[0], &["serve", "--listen", "127.0.0.1:0"]);
    let inner = palisade.env("PALISADE_LOG", "info").into_command();
    let mut outer = Command::new("prlimit");
    outer
        .arg("--nofile=512:512")
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_clear()
        .current_dir("/");
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let server = Server::start_command(users()[0], outer);
    let began = Instant::now();
    let idle = crowd(&server, 800, b"");
    for _ in 0..5 {
        server.is_well();
    }
    assert!(began.elapsed() < Duration::from_secs(15), "it took {:?}", began.elapsed());
    drop(idle);
}

#[test]
fn half_requests_from_half_open_sockets_are_dropped() {
    let server = Server::start();
    let whole = list().bytes(&server);
    for end in [10, whole.len() / 2, whole.len() - 1] {
        let crowd = crowd(&server, 300, &whole[..end]);
        for stream in &crowd {
            stream.shutdown(std::net::Shutdown::Write).ok();
        }
        until(SOON, "their slots are free", || {
            (server.metric("palisade_http_connections") < 10.0).then_some(())
        });
        server.is_well();
        drop(crowd);
    }
}

#[test]
fn connections_that_are_reset_leave_nothing() {
    let server = Server::start();
    server.is_well();
    // What a server opens for itself in its first seconds is no more than this.
    let before = open_files(&server) + 50;
    for _ in 0..if is_quick() { 200 } else { 1000 } {
        let stream = TcpStream::connect(server.address).unwrap();
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
    }
    server.is_well();
    until(SOON, "the descriptors are closed", || (open_files(&server) <= before).then_some(()));
}

#[test]
fn slow_writers_are_dropped() {
    if is_quick() {
        return;
    }
    let server = Server::start();
    let request = list().bytes(&server);
    let body = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 10;
    std::thread::scope(|scope| {
        let dripping = scope.spawn(|| {
            let (mut wire, began) = (server.connect(), Instant::now());
            for byte in request.iter().cycle().take(60) {
                if wire.try_send(&[*byte]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_secs(1));
            }
            began.elapsed()
        });
        let stopping = scope.spawn(|| {
            let mut wire = server.connect();
            wire.send(&request[..body]);
            wire.answer().status
        });
        assert!(dripping.join().unwrap() < HEAD_PATIENCE + Duration::from_secs(5), "a head that drips");
        assert_eq!(stopping.join().unwrap(), 408, "a body that stops");
    });
    server.is_well();
}

/// One request by the client of openssl; all that came back.
fn ask_by_tls(server: &Server, request: &Request, options: &[&str]) -> String {
    use std::io::Write;
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &server.address.to_string()])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = client.stdin.take().unwrap();
    // A refused handshake ends the client early.
    stdin.write_all(&request.clone().header("Connection", "close").bytes(server)).ok();
    let ended = client.wait_with_output().unwrap();
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

#[test]
fn half_handshakes_keep_nobody_out() {
    let user = users()[0];
    let folder = own_folder(user, "tls");
    let Some(made) = certificate(&folder, "localhost") else { return };
    if !allow_open_files(OPEN_FILES) {
        return;
    }
    let files = ["--tls-cert", &made.certificate, "--tls-key", &made.key];
    let server = Server::start_as(user, &[&["--listen", "127.0.0.1:0"], &files[..]].concat());
    let well = || {
        let answer = ask_by_tls(&server, &list(), &[]);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"run\""), "{answer}");
    };
    well();
    assert!(ask_by_tls(&server, &list(), &["-tls1_1"]).is_empty(), "an old version was spoken");
    // The beginning of a greeting, and a plain request to a port that speaks TLS.
    let count = if is_quick() { 500 } else { 2500 };
    let silent = crowd(&server, count, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    let plain = crowd(&server, 200, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    well();
    let taken = || {
        let page = ask_by_tls(&server, &Request::get("/metrics"), &[]);
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix("palisade_http_connections ")?.trim().parse::<f64>().ok());
        line.unwrap_or_else(|| panic!("{page}"))
    };
    // Nobody left; they were turned out, by time or for others.
    until(SOON, "half handshakes lose their slots", || (taken() < 10.0).then_some(()));
    drop((silent, plain));
    well();
}

fn socket_command(user: User, path: &Path) -> Palisade {
    let place = format!("unix:{}", path.display());
    Palisade::new(Build::Real, user, &["serve", "--listen", "127.0.0.1:0", "--listen", &place])
        .env("PALISADE_LOG", "info")
}

fn asks_by_socket(server: &Server, path: &Path, request: &Request) -> u16 {
    let mut wire = Wire::unix(path);
    wire.send(&request.clone().header("Host", "localhost").bytes(server));
    wire.answer().status
}

#[test]
fn a_unix_socket_is_its_owners_and_outlives_no_server() {
    for user in users() {
        let path = own_folder(user, "socket").join("p.sock");
        let mut server = Server::start_command(user, socket_command(user, &path).into_command());
        let found = std::fs::symlink_metadata(&path).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o077, 0, "others can open it");
        assert_eq!(asks_by_socket(&server, &path, &list()), 200);
        assert_eq!(asks_by_socket(&server, &path, &list().without("Authorization")), 401);

        let second = socket_command(user, &path).end();
        assert_eq!(second.status.code(), Some(125), "{second:?}");
        assert!(second.stderr.contains("another server"), "{}", second.stderr);
        assert_eq!(asks_by_socket(&server, &path, &list()), 200, "the first one lost its socket");

        server.signal(Signal::KILL);
        server.wait(SOON);
        let mut next = Server::start_command(user, socket_command(user, &path).into_command());
        assert_eq!(
            asks_by_socket(&next, &path, &list()),
            200,
            "the socket of a dead server was not replaced"
        );
        next.signal(Signal::TERM);
        assert_eq!(next.wait(SOON).code(), Some(0));
        assert!(!path.exists(), "the socket stays behind");
    }
}

#[test]
fn what_others_can_reach_is_not_opened_in_the_clear() {
    let user = users()[0];
    let refusals = [
        (vec!["--listen", "0.0.0.0:0"], "--tls-cert"),
        (vec!["--listen", "[::]:0"], "--tls-cert"),
        (vec!["--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0"], "--tls-cert"),
        (vec!["--listen", "0.0.0.0:0", "--no-auth", "--behind-proxy", "127.0.0.1"], "--no-auth"),
        (vec!["--listen", "0.0.0.0:0", "--behind-proxy", "0.0.0.0/0"], "no address of a proxy"),
    ];
    for (arguments, words) in refusals {
        let ended = Palisade::new(Build::Real, user, &["serve"]).args(&arguments).within(SOON).end();
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn only_the_named_proxy_may_connect_where_other_machines_could() {
    let user = users()[0];
    let open = ["--listen", "0.0.0.0:0", "--behind-proxy"];
    let server = Server::start_as(user, &[open.as_slice(), &["192.0.2.7,127.0.0.0/8"]].concat());
    assert_eq!(server.ask(&Request::get("/healthz")).status, 200, "a named peer");
    drop(server);
    let server =
        Server::start_as(user, &[open.as_slice(), &["192.0.2.7", "--listen", "127.0.0.1:0"]].concat());
    let forwarded =
        Request::get("/healthz").header("X-Forwarded-For", "192.0.2.7").header("Forwarded", "for=192.0.2.7");
    let mut wire = server.connect();
    let answer = wire.try_send(&forwarded.bytes(&server)).and_then(|()| wire.try_answer());
    assert!(answer.is_err(), "{answer:?}");
}

/// A client writes head and body apart, and a refusal needs the head only. The same connection carries the next request, as
/// a client that logs in sends it.
#[test]
fn a_refusal_before_the_body_came_keeps_its_connection_for_the_next_request() {
    let server = Server::start();
    for wrong in [list().header("Authorization", "Bearer wrong"), list().header("Host", "elsewhere.example")]
    {
        let bytes = wrong.bytes(&server);
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let mut wire = server.connect();
        wire.send(&bytes[..head]);
        std::thread::sleep(Duration::from_millis(100));
        wire.send(&bytes[head..]);
        let refused = wire.answer();
        assert!([401, 403].contains(&refused.status), "{refused:?}");
        wire.send(&list().bytes(&server));
        assert_eq!(wire.answer().status, 200);
    }
}

/// A rest that does not come, is large, or would be sent only if it were asked for, ends the connection, and the client is
/// told.
#[test]
fn a_refusal_whose_body_stays_unread_says_that_its_connection_ends() {
    let server = Server::start();
    let wrong = |length: &str| {
        let request = Request::new("POST", "/mcp", Vec::new());
        request.header("Authorization", "Bearer wrong").header("Content-Length", length)
    };
    let asks = wrong("5").header("Expect", "100-continue");
    for (request, body) in [(wrong("5"), 0), (wrong("1000000"), 200_000), (asks, 0)] {
        let mut wire = server.connect();
        wire.send(&request.bytes(&server));
        // The server may have left before all of it is written.
        wire.try_send(&vec![b'x'; body]).ok();
        let refused = wire.answer();
        assert_eq!((refused.status, refused.header("connection")), (401, Some("close")), "{refused:?}");
    }
}
