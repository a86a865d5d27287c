//! WebSockets that misbehave: the socket ends, its runs end, and nobody else notices.

use std::time::Duration;

use functional::http::{Request, Server, call_run, modern_message};
use functional::socket::{CLOSE, PING, PONG, Socket, TEXT, upgrade};
use functional::{SOON, marked, marker, until};
use serde_json::json;

/// The promise: so long after the end of a socket none of its programs lives.
const AFTERLIFE: Duration = Duration::from_secs(2);
const FRAME_BYTES_MAX: usize = 32 << 20;

fn ask(socket: &mut Socket, id: u64, code: &str) {
    let message = modern_message(id, "tools/call", call_run("bash", code));
    socket.send(TEXT, message.as_bytes()).unwrap();
}

fn is_well(socket: &mut Socket) {
    ask(socket, 77, "echo well");
    let message = socket.message();
    assert_eq!(message["id"], 77, "{message}");
    assert_eq!(message["result"]["structuredContent"]["stdout"], "well\n", "{message}");
}

/// Starts a program that can be seen from outside.
fn start(socket: &mut Socket, label: &str) -> String {
    let word = marker(label);
    ask(socket, 1, &format!("setsid bash -c 'exec -a {word} sleep 1000' & exec -a {word} sleep 1000"));
    until(SOON, "the program runs", || (marked(&word).len() >= 2).then_some(()));
    word
}

#[test]
fn a_conversation_works() {
    let server = Server::start();
    let mut socket = Socket::open(&server);
    socket.send(TEXT, modern_message(1, "server/discover", json!({})).as_bytes()).unwrap();
    assert_eq!(
        socket.message()["result"]["supportedVersions"].as_array().unwrap().last().unwrap(),
        "2026-07-28"
    );
    is_well(&mut socket);
}

#[test]
fn a_ping_is_answered_with_its_own_words() {
    let server = Server::start();
    let mut socket = Socket::open(&server);
    socket.send(PING, b"are you there").unwrap();
    assert_eq!(socket.receive().unwrap(), (PONG, b"are you there".to_vec()));
    is_well(&mut socket);
}

/// A browser that gets no answer to its close frame reports an abnormal end (code 1006).
#[test]
fn a_close_frame_is_answered_with_its_own_code() {
    let server = Server::start();
    let mut socket = Socket::open(&server);
    is_well(&mut socket);
    let code = 1000_u16.to_be_bytes();
    socket.send(CLOSE, &code).unwrap();
    assert_eq!(socket.receive().unwrap(), (CLOSE, code.to_vec()));
    assert!(socket.is_ended());
}

#[test]
fn an_oversized_frame_ends_the_socket_at_its_announcement() {
    let server = Server::start();
    let mut socket = Socket::open(&server);
    is_well(&mut socket);
    socket.announce(TEXT, FRAME_BYTES_MAX + 1);
    assert!(socket.is_ended());
    let mut other = Socket::open(&server);
    other.announce(TEXT, usize::try_from(i64::MAX).unwrap());
    assert!(other.is_ended());
    server.is_well();
}

#[test]
fn text_that_is_no_utf8_ends_the_socket() {
    let server = Server::start();
    let mut socket = Socket::open(&server);
    socket.send(TEXT, b"{\"jsonrpc\": \"\xff\xfe\"}").unwrap();
    assert!(socket.is_ended());
    server.is_well();
}

#[test]
fn nonsense_in_a_frame_leaves_the_socket_alone() {
    let server = Server::start();
    let mut socket = Socket::open(&server);
    for nonsense in ["", "not json", "[]", "null", "{}", "\n\n{\n", "{\"jsonrpc\":\"2.0\"}"] {
        socket.send(TEXT, nonsense.as_bytes()).unwrap();
    }
    ask(&mut socket, 5, "echo still here");
    let answer =
        until(SOON, "an answer to the run", || Some(socket.message()).filter(|message| message["id"] == 5));
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "still here\n");
}

#[test]
fn frames_that_break_the_protocol_end_the_socket() {
    let server = Server::start();
    // An unknown kind; a ping longer than its kind allows; a continuation of nothing.
    for (kind, payload) in [(3, vec![]), (PING, vec![0; 200]), (0, b"x".to_vec())] {
        let mut socket = Socket::open(&server);
        socket.send(kind, &payload).unwrap();
        assert!(socket.is_ended(), "kind {kind}");
    }
    server.is_well();
}

#[test]
fn closing_kills_the_runs_of_the_socket_and_of_no_other() {
    let server = Server::start();
    let (mut staying, mut leaving) = (Socket::open(&server), Socket::open(&server));
    let kept = start(&mut staying, "stays");
    let word = start(&mut leaving, "closed");
    leaving.send(CLOSE, &1000_u16.to_be_bytes()).unwrap();
    until(AFTERLIFE, "the runs of a closed socket end", || marked(&word).is_empty().then_some(()));
    assert_eq!(marked(&kept).len(), 2, "another socket's run ended too");
}

#[test]
fn a_connection_that_breaks_off_kills_its_runs() {
    let server = Server::start();
    let mut socket = Socket::open(&server);
    let word = start(&mut socket, "broken");
    drop(socket);
    until(AFTERLIFE, "the runs of a broken socket end", || marked(&word).is_empty().then_some(()));
    server.is_well();
}

#[test]
fn a_cancelled_request_kills_its_run_and_keeps_the_socket() {
    let server = Server::start();
    let mut socket = Socket::open(&server);
    let word = start(&mut socket, "cancelled");
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    socket.send(TEXT, cancelled.to_string().as_bytes()).unwrap();
    until(AFTERLIFE, "a cancelled run ends", || marked(&word).is_empty().then_some(()));
    is_well(&mut socket);
}

#[test]
fn strangers_are_turned_away_before_the_upgrade() {
    let server = Server::start();
    let own = format!("http://{}", server.address);
    let cases: [(Request, u16); 6] = [
        (upgrade().without("Authorization"), 401),
        (upgrade().header("Authorization", "Bearer wrong"), 401),
        (upgrade().header("Origin", "http://evil.example"), 403),
        (upgrade().header("Origin", "null"), 403),
        (upgrade().header("Host", "evil.example"), 403),
        (upgrade().header("Origin", &own), 101),
    ];
    for (request, status) in cases {
        assert_eq!(server.ask(&request).status, status, "{request:?}");
    }
    let plain = server.ask(&Request::get("/mcp/ws"));
    assert!([400, 426].contains(&plain.status), "{plain:?}");
}
