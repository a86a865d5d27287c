//! Which connection is closed when there are more than the server allows: never one that has shown the token for one
//! that has not, and never one with a request in progress.

use std::net::TcpStream;

use functional::http::{Request, Server, call_run, modern_message};
use functional::socket::{Socket, TEXT, upgrade};
use functional::{SOON, marked, marker, until};
use harness::{Build, Palisade, users};
use serde_json::json;

const EVICTIONS: &str = "palisade_http_refusals_total{reason=\"idle\"}";

/// A server with that many slots; one in eight of them is for connections that have yet to show the token.
fn server_with_slots(slots: usize) -> Server {
    let palisade = Palisade::new(Build::Real, users()[0], &["serve", "--listen", "127.0.0.1:0"])
        .env("PALISADE_LOG", "info")
        .env("PALISADE_SERVE_CONNECTIONS_MAX", &slots.to_string());
    Server::start_command(users()[0], palisade.into_command())
}

/// Opens bare connections until that many were closed for others.
fn flood(server: &Server, evictions: f64) -> Vec<TcpStream> {
    let mut bare = Vec::new();
    until(SOON, "bare connections make room for others", || {
        bare.extend((0..50).map(|_| TcpStream::connect(server.address).unwrap()));
        (server.metric(EVICTIONS) >= evictions).then_some(())
    });
    bare
}

/// Opens a WebSocket with a request that stays unanswered; the server acknowledges it first.
fn subscribed(server: &Server) -> Socket {
    let mut socket = Socket::open(server);
    let filter = json!({"notifications": {"toolsListChanged": true}});
    socket.send(TEXT, modern_message(1, "subscriptions/listen", filter).as_bytes()).unwrap();
    let told = socket.message();
    assert_eq!(told["method"], "notifications/subscriptions/acknowledged", "{told}");
    socket
}

fn is_well(socket: &mut Socket) {
    socket.send(TEXT, modern_message(9, "tools/call", call_run("bash", "echo well")).as_bytes()).unwrap();
    let answer = until(SOON, "an answer", || Some(socket.message()).filter(|message| message["id"] == 9));
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "well\n", "{answer}");
}

#[test]
fn bare_connections_close_no_connection_that_has_shown_the_token() {
    let server = server_with_slots(64);
    let word = marker("kept");
    let mut running = Socket::open(&server);
    let code = format!("exec -a {word} sleep 1000");
    running.send(TEXT, modern_message(1, "tools/call", call_run("bash", &code)).as_bytes()).unwrap();
    until(SOON, "the program runs", || (!marked(&word).is_empty()).then_some(()));
    let mut listening = subscribed(&server);
    let mut idle = Socket::open(&server);
    is_well(&mut idle);
    let mut kept_alive = server.connect();
    kept_alive.send(&Request::modern("tools/list", json!({})).bytes(&server));
    assert_eq!(kept_alive.answer().status, 200);

    // The next caller gets in all the while: each look at the counter is one.
    let bare = flood(&server, 500.0);
    assert_eq!(marked(&word).len(), 1, "the program was ended");
    is_well(&mut listening);
    is_well(&mut idle);
    kept_alive.send(&Request::modern("tools/list", json!({})).bytes(&server));
    assert_eq!(kept_alive.answer().status, 200);
    server.is_well();
    assert!(server.metric("palisade_http_connections") <= 64.0);
    drop(bare);
}

#[test]
fn requests_without_a_token_close_no_connection_that_has_shown_it() {
    let server = server_with_slots(16);
    let mut idle = Socket::open(&server);
    is_well(&mut idle);
    let mut strangers = Vec::new();
    let asked = upgrade().without("Authorization").bytes(&server);
    until(SOON, "strangers make room for others", || {
        let mut wire = server.connect();
        wire.try_send(&asked).ok();
        strangers.push(wire);
        (server.metric(EVICTIONS) >= 50.0).then_some(())
    });
    is_well(&mut idle);
}

#[test]
fn a_caller_with_the_token_takes_the_seat_of_an_idle_one_and_of_no_busy_one() {
    // One for newcomers, seven for callers.
    let server = server_with_slots(8);
    let mut busy: Vec<_> = (0..6).map(|_| subscribed(&server)).collect();
    let mut idle = Socket::open(&server);
    assert_eq!(server.ask(&Request::modern("tools/list", json!({}))).status, 200);
    assert!(idle.is_ended());
    busy.push(subscribed(&server));
    let refused = server.ask(&Request::modern("tools/list", json!({})));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.text().contains("serve.connections_max"), "{refused:?}");
    drop(busy.pop());
    until(SOON, "the slot is free again", || {
        (server.ask(&Request::modern("tools/list", json!({}))).status == 200).then_some(())
    });
    // The others were left alone.
    busy.iter_mut().for_each(is_well);
}
