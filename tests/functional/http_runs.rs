//! Runs over HTTP and how they end: with the connection in the newer era, with the session in the older ones, with
//! the server in both. What has ended leaves no process.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use functional::http::{Request, Server, Wire, call_run};
use functional::socket::{Socket, TEXT};
use functional::{SOON, marked, marker, until};
use harness::{User, users};
use rustix::process::Signal;
use serde_json::json;

/// The promise: so long after the end of whatever held it, nothing of a run lives.
const AFTERLIFE: Duration = Duration::from_secs(2);
const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

/// A program with a daemon that refuses to die, both with the word in their names.
fn restless(word: &str) -> String {
    format!(
        "trap '' TERM INT HUP; setsid bash -c 'trap \"\" TERM INT HUP; exec -a {word} sleep 1000' & \
         exec -a {word} sleep 1000"
    )
}

fn wait_until_it_runs(word: &str) {
    until(SOON, "the program and its daemon run", || (marked(word).len() >= 2).then_some(()));
}

fn wait_until_all_is_dead(word: &str) {
    until(AFTERLIFE, "every process of the run is dead", || marked(word).is_empty().then_some(()));
}

/// Sends a request that is not answered yet.
fn begin(server: &Server, request: &Request) -> Wire {
    let mut wire = server.connect();
    wire.send(&request.bytes(server));
    wire
}

fn legacy_run(session: &str, code: &str) -> Request {
    Request::legacy("tools/call", call_run("bash", code)).header("Mcp-Session-Id", session)
}

#[test]
fn in_the_newer_era_a_disconnect_kills_the_run() {
    for user in users() {
        let server = Server::start_as(user, &LISTEN);
        let word = marker("disconnect");
        let wire = begin(&server, &Request::run("bash", &restless(&word)));
        wait_until_it_runs(&word);
        drop(wire);
        wait_until_all_is_dead(&word);
        server.is_well();
    }
}

#[test]
fn in_the_newer_era_a_disconnect_from_a_stream_kills_the_run() {
    let server = Server::start();
    let word = marker("stream");
    let mut params = call_run("bash", &format!("echo begun; {}", restless(&word)));
    params["_meta"] = json!({"progressToken": "p"});
    let mut wire = begin(&server, &Request::modern("tools/call", params));
    wait_until_it_runs(&word);
    let head = wire.head().unwrap();
    assert_eq!(head.header("content-type"), Some("text/event-stream"), "{head:?}");
    drop(wire);
    wait_until_all_is_dead(&word);
    server.is_well();
}

#[test]
fn saying_nothing_more_but_listening_is_no_reason_to_lose_the_answer() {
    let server = Server::start();
    let mut wire = begin(&server, &Request::run("bash", "sleep 0.3; echo heard"));
    wire.close_writing();
    // Whether half a connection is a whole one is the server's choice; a run that goes on unheard is not.
    match wire.try_answer() {
        Ok(answer) => assert_eq!(answer.result()["structuredContent"]["stdout"], "heard\n"),
        Err(error) => eprintln!("a half-closed connection counts as closed here: {error}"),
    }
    server.is_well();
}

#[test]
fn in_the_older_eras_a_disconnect_does_not_cancel_and_the_end_of_the_session_does() {
    for user in users() {
        let server = Server::start_as(user, &LISTEN);
        let session = server.open_session();
        let word = marker("session");
        let wire = begin(&server, &legacy_run(&session, &restless(&word)));
        wait_until_it_runs(&word);
        drop(wire);
        // Long enough for the promise of the newer era to come true, if it were made here.
        std::thread::sleep(AFTERLIFE);
        assert_eq!(marked(&word).len(), 2, "a disconnect has cancelled the run");

        let ended =
            server.ask(&Request::new("DELETE", "/mcp", Vec::new()).header("Mcp-Session-Id", &session));
        assert_eq!(ended.status, 204, "{ended:?}");
        until(AFTERLIFE, "the runs of an ended session end", || marked(&word).is_empty().then_some(()));
        let after = server.ask(&legacy_run(&session, "echo 1"));
        assert_eq!(after.status, 404, "{after:?}");
        server.is_well();
    }
}

#[test]
fn a_cancelled_notification_kills_the_run_of_its_session_alone() {
    let server = Server::start();
    let (own, other) = (server.open_session(), server.open_session());
    let (word, kept) = (marker("cancelled"), marker("kept"));
    let mut wire = begin(&server, &legacy_run(&own, &restless(&word)));
    let _kept_wire = begin(&server, &legacy_run(&other, &restless(&kept)));
    wait_until_it_runs(&word);
    wait_until_it_runs(&kept);
    let told = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let answer = server.ask(&Request::post(told.to_string()).header("Mcp-Session-Id", &own));
    assert_eq!(answer.status, 202, "{answer:?}");
    wait_until_all_is_dead(&word);
    assert_eq!(marked(&kept).len(), 2, "the same number in another session was cancelled");
    // A cancelled request needs no answer; the connection must not hang for ever either way.
    wire.try_answer().ok();
}

#[test]
fn a_session_cannot_be_guessed() {
    let server = Server::start();
    let session = server.open_session();
    assert!(session.len() >= 32, "{session}");
    assert_ne!(session, server.open_session());
    let first = if session.starts_with('0') { "1" } else { "0" };
    let flipped = format!("{first}{}", &session[1..]);
    let guesses =
        ["none", "0", "", "*", "../x", &flipped, &session[1..], &format!("{session}0"), &"a".repeat(10_000)];
    for guess in guesses {
        let answer = server.ask(&legacy_run(guess, "echo 1"));
        assert!([400, 404].contains(&answer.status), "{guess:.40}: {answer:?}");
        let listening = server
            .ask(&Request::get("/mcp").header("Accept", "text/event-stream").header("Mcp-Session-Id", guess));
        assert!([400, 404].contains(&listening.status), "{guess:.40}: {listening:?}");
    }
    let stranger = server.ask(&legacy_run(&session, "echo 1").without("Authorization"));
    assert_eq!(stranger.status, 401, "an id is no token");
    assert_eq!(server.ask(&legacy_run(&session, "echo 1")).result()["structuredContent"]["stdout"], "1\n");
}

#[test]
fn the_sudden_death_of_the_server_leaves_no_process() {
    for user in users() {
        let mut server = Server::start_as(user, &LISTEN);
        let session = server.open_session();
        let words = [marker("modern"), marker("legacy"), marker("socket")];
        let _modern = begin(&server, &Request::run("bash", &restless(&words[0])));
        let _legacy = begin(&server, &legacy_run(&session, &restless(&words[1])));
        let mut socket = Socket::open(&server);
        let message =
            functional::http::modern_message(1, "tools/call", call_run("bash", &restless(&words[2])));
        socket.send(TEXT, message.as_bytes()).unwrap();
        words.iter().for_each(|word| wait_until_it_runs(word));
        server.signal(Signal::KILL);
        server.wait(SOON);
        words.iter().for_each(|word| wait_until_all_is_dead(word));
    }
}

#[test]
fn a_server_that_is_told_to_end_lets_runs_finish() {
    let mut server = Server::start();
    let word = marker("finishing");
    let code = format!("(exec -a {word} sleep 1.5); echo finished");
    let mut modern = begin(&server, &Request::run("bash", &code));
    let mut legacy = begin(&server, &legacy_run(&server.open_session(), &code));
    let mut socket = Socket::open(&server);
    let message = functional::http::modern_message(1, "tools/call", call_run("bash", &code));
    socket.send(TEXT, message.as_bytes()).unwrap();
    until(SOON, "all three run", || (marked(&word).len() >= 3).then_some(()));
    server.signal(Signal::TERM);
    for answer in [modern.answer(), legacy.answer()] {
        assert_eq!(answer.result()["structuredContent"]["stdout"], "finished\n", "{answer:?}");
    }
    assert_eq!(socket.message()["result"]["structuredContent"]["stdout"], "finished\n");
    assert_eq!(server.wait(SOON).code(), Some(0), "{}", server.log());
    assert!(marked(&word).is_empty());
}

#[test]
fn a_server_that_is_ending_is_not_ready() {
    let mut server = Server::start();
    server.wait_until_ready();
    let word = marker("holding");
    let _holding = begin(&server, &Request::run("bash", &format!("exec -a {word} sleep 5")));
    until(SOON, "the run that holds the end up", || (!marked(&word).is_empty()).then_some(()));
    server.signal(Signal::TERM);
    until(SOON, "the end begins", || server.log().contains("\"closing\"").then_some(()));
    // Whoever still gets through is told; whoever does not knows as much.
    if let Ok(stream) = TcpStream::connect(server.address) {
        let mut wire = Wire::tcp(stream);
        if wire.try_send(&Request::get("/readyz").bytes(&server)).is_ok()
            && let Ok(answer) = wire.try_answer()
        {
            assert_eq!((answer.status, answer.text().contains("closing")), (503, true), "{answer:?}");
        }
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait(SOON).code(), Some(0));
}

#[test]
fn the_second_signal_ends_runs_at_once_and_their_answers_come_out() {
    for user in [users()[0], *users().last().unwrap_or(&User::Ordinary)] {
        let mut server = Server::start_as(user, &LISTEN);
        let word = marker("impatient");
        let mut wire = begin(&server, &Request::run("bash", &restless(&word)));
        wait_until_it_runs(&word);
        let began = Instant::now();
        server.signal(Signal::TERM);
        until(SOON, "the end begins", || server.log().contains("\"closing\"").then_some(()));
        server.signal(Signal::TERM);
        let answer = wire.answer();
        assert_eq!(answer.result()["structuredContent"]["outcome"], "killed", "{answer:?}");
        assert_eq!(server.wait(SOON).code(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(6), "it took {:?}", began.elapsed());
        assert!(marked(&word).is_empty());
    }
}
