//! Idempotency keys with real servers: a call is carried out once, whatever happens to its caller or its server.

use std::time::{Duration, Instant};

use functional::http::{Request, Server};
use functional::{SOON, until};
use harness::mcp::Client;
use harness::{Build, Palisade, User, users};
use serde_json::{Value, json};

const HEADER: &str = "Idempotency-Key";

fn serve(user: User) -> Server {
    let palisade = Palisade::new(Build::Real, user, &["serve", "--listen", "127.0.0.1:0"]);
    Server::start_command(user, palisade.env("PALISADE_LOG", "info").into_command())
}

fn call(name: &str, arguments: Value) -> Request {
    Request::modern("tools/call", json!({"name": name, "arguments": arguments}))
}

fn run(code: &str) -> Value {
    json!({"language": "bash", "code": code})
}

fn result(server: &Server, request: &Request) -> Value {
    let answer = server.ask(request);
    let result = answer.result();
    assert!(result.is_object(), "{answer:?}");
    result
}

fn open(server: &Server) -> String {
    let opened = result(server, &call("sandbox_open", json!({})));
    opened["structuredContent"]["sandbox_id"].as_str().unwrap().to_owned()
}

/// How often a program of the sandbox has left its mark.
fn marks(server: &Server, sandbox: &str) -> usize {
    let read = result(server, &call("read_file", json!({"sandbox_id": sandbox, "path": "marks"})));
    read["structuredContent"]["text"].as_str().map_or(0, str::len)
}

#[test]
fn the_same_call_is_carried_out_once_and_its_answer_given_again() {
    let user = users()[0];
    let (server, other) = (serve(user), serve(user));
    let sandbox = open(&server);
    let arguments =
        json!({"language": "bash", "code": "printf x >> marks; echo $RANDOM$RANDOM", "sandbox_id": sandbox});
    let request = call("run", arguments.clone()).header(HEADER, "once");
    let first = result(&server, &request);
    assert_eq!(first["structuredContent"]["outcome"], "completed", "{first:#}");
    assert!(first["_meta"]["palisade/replayed"].is_null(), "{first:#}");
    // As a synonym, in another order, by `_meta`, from another server.
    let same = json!({"sandbox_id": sandbox, "code": arguments["code"], "language": "sh"});
    let by_meta = Request::modern(
        "tools/call",
        json!({"name": "run", "arguments": same, "_meta": {"palisade/idempotency_key": "once"}}),
    );
    for (server, request) in
        [(&server, &request), (&server, &by_meta), (&other, &request), (&other, &by_meta)]
    {
        let again = result(server, request);
        assert_eq!(again["_meta"]["palisade/replayed"], true, "{again:#}");
        assert_eq!(again["structuredContent"], first["structuredContent"]);
        assert_eq!(again["content"], first["content"]);
    }
    assert_eq!(marks(&server, &sandbox), 1);
    let conflict = result(&server, &call("run", run("echo other")).header(HEADER, "once"));
    assert_eq!(conflict["structuredContent"]["outcome"], "refused", "{conflict:#}");
    assert_eq!(conflict["structuredContent"]["error"]["code"], "idempotency_conflict");
    // The name of a closed sandbox leads nowhere, but the call is the same.
    let close = call("sandbox_close", json!({"sandbox_id": sandbox})).header(HEADER, "once");
    for _ in 0..2 {
        assert_eq!(result(&server, &close)["structuredContent"]["closed"], true);
    }
}

#[test]
fn a_call_that_was_refused_is_not_recorded_and_a_bad_key_is_refused() {
    let server = serve(users()[0]);
    let bad = call("run", json!({"language": "bash"})).header(HEADER, "k");
    assert_eq!(result(&server, &bad)["structuredContent"]["outcome"], "refused");
    let good = result(&server, &call("run", run("echo good")).header(HEADER, "k"));
    assert_eq!(good["structuredContent"]["stdout"], "good\n", "{good:#}");
    let two = call("run", run("echo no")).header(HEADER, "a").header(HEADER, "b");
    let differs = Request::modern(
        "tools/call",
        json!({"name": "run", "arguments": run("echo no"), "_meta": {"palisade/idempotency_key": "other"}}),
    );
    let no_text = Request::modern(
        "tools/call",
        json!({"name": "run", "arguments": run("echo no"), "_meta": {"palisade/idempotency_key": 5}}),
    );
    let with = |key: &str| call("run", run("echo no")).header(HEADER, key);
    for request in [
        two,
        differs.header(HEADER, "k2"),
        no_text,
        with(""),
        with("a b"),
        with("a\tb"),
        with(&"x".repeat(256)),
    ] {
        let refused = result(&server, &request)["structuredContent"].clone();
        assert_eq!(refused["outcome"], "refused", "{refused:#}");
        assert_eq!(refused["error"]["code"], "bad_arguments", "{refused:#}");
    }
    // A tool that changes nothing has no use for a key.
    let listed = result(&server, &call("sandbox_list", json!({})).header(HEADER, "a b"));
    assert!(listed["structuredContent"]["sandboxes"].is_array(), "{listed:#}");
}

#[test]
fn sixteen_calls_with_one_key_run_one_program() {
    let user = users()[0];
    let servers = [serve(user), serve(user)];
    let sandbox = open(&servers[0]);
    let code = "printf x >> marks; sleep 0.3; echo done $RANDOM";
    let arguments = json!({"language": "bash", "code": code, "sandbox_id": sandbox});
    let request = call("run", arguments).header(HEADER, "race");
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let ask = |server| {
            let request = &request;
            move || result(server, request)["structuredContent"].clone()
        };
        let asked: Vec<_> = (0..16).map(|number| scope.spawn(ask(&servers[number % 2]))).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    assert_eq!(answers[0]["outcome"], "completed", "{:#}", answers[0]);
    assert_eq!(marks(&servers[0], &sandbox), 1);
}

#[test]
fn a_caller_that_lost_its_connection_gets_the_run_by_asking_again() {
    let server = serve(users()[0]);
    let sandbox = open(&server);
    let arguments =
        json!({"language": "bash", "code": "printf x >> marks; sleep 1; echo done", "sandbox_id": sandbox});
    let request = call("run", arguments).header(HEADER, "again");
    let mut wire = server.connect();
    wire.send(&request.bytes(&server));
    until(SOON, "the program runs", || (marks(&server, &sandbox) == 1).then_some(()));
    drop(wire);
    let again = result(&server, &request);
    assert_eq!(again["structuredContent"]["stdout"], "done\n", "{again:#}");
    assert_eq!(marks(&server, &sandbox), 1);
}

#[test]
fn a_run_that_was_handed_over_is_followed_by_the_same_call() {
    let server = serve(users()[0]);
    let arguments = json!({"language": "bash", "code": "sleep 1; echo done", "limits": {"wait_ms": 0}});
    let request = call("run", arguments).header(HEADER, "long");
    let first = result(&server, &request)["structuredContent"].clone();
    assert_eq!(first["outcome"], "running", "{first:#}");
    let again = result(&server, &request);
    assert_eq!(again["structuredContent"]["run_id"], first["run_id"]);
    assert_eq!(again["structuredContent"]["stdout"], "done\n", "{again:#}");
    assert_eq!(again["_meta"]["palisade/replayed"], true);
}

#[test]
fn a_call_whose_server_was_killed_is_never_carried_out_again() {
    let user = users()[0];
    let (server, next) = (serve(user), serve(user));
    let sandbox = open(&server);
    let arguments =
        json!({"language": "bash", "code": "printf x >> marks; sleep 1000", "sandbox_id": sandbox});
    let request = call("run", arguments).header(HEADER, "crash");
    let mut wire = server.connect();
    wire.send(&request.bytes(&server));
    until(SOON, "the program runs", || (marks(&next, &sandbox) == 1).then_some(()));
    drop(server);
    for _ in 0..2 {
        let asked = Instant::now();
        let again = result(&next, &request)["structuredContent"].clone();
        assert_eq!(again["outcome"], "unavailable", "{again:#}");
        assert_eq!(again["error"]["code"], "idempotency_interrupted");
        assert!(again["error"]["message"].as_str().unwrap().contains("run_"), "{again:#}");
        assert!(asked.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(marks(&next, &sandbox), 1);
}

#[test]
fn a_key_works_over_standard_input_too() {
    let client = Client::start(Palisade::new(Build::Real, users()[0], &["mcp"]));
    let arguments = run("echo $RANDOM$RANDOM");
    let ask = || {
        let params =
            json!({"name": "run", "arguments": arguments, "_meta": {"palisade/idempotency_key": "k"}});
        client.send("tools/call", params).answer().unwrap()
    };
    let (first, again) = (ask(), ask());
    assert_eq!(
        first["result"]["structuredContent"]["stdout"],
        again["result"]["structuredContent"]["stdout"]
    );
    assert_eq!(again["result"]["_meta"]["palisade/replayed"], true, "{again:#}");
}
