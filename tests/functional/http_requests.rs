//! Requests over HTTP that are wrong in one way: each is turned away with the right status, and the server goes on.

use functional::http::{Answer, LEGACY, Request, Server, call_run, modern_message};
use serde_json::{Value, json};

const BODY_BYTES_MAX: usize = 32 << 20;

fn list() -> Request {
    Request::modern("tools/list", json!({}))
}

/// Asserts that the answer is this JSON-RPC error, in a bad request.
fn is_error(answer: &Answer, id: &Value, code: i64, what: &str) {
    let message = answer.message();
    let found = (answer.status, answer.header("content-type"), &message["id"], &message["error"]["code"]);
    assert_eq!(found, (400, Some("application/json"), id, &json!(code)), "{what}: {answer:?}");
}

#[test]
fn what_is_no_json_rpc_is_a_json_rpc_error() {
    let server = Server::start();
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let lone = br#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"run","arguments":{"code":"\ud800"}}}"#;
    let cases: [(&[u8], Value, i64); 14] = [
        (b"", json!(null), -32700),
        (b"{", json!(null), -32700),
        (b"not json", json!(null), -32700),
        (b"\xff\xfe", json!(null), -32700),
        (&deep, json!(null), -32700),
        (lone, json!(4), -32700),
        (b"null", json!(null), -32600),
        (b"5", json!(null), -32600),
        (b"\"x\"", json!(null), -32600),
        (b"{}", json!(null), -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1}", json!(1), -32600),
        (b"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"tools/list\"}", json!(1), -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":7}", json!("a"), -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/read\"}", json!(1), -32602),
    ];
    for (body, id, code) in cases {
        is_error(&server.ask(&Request::post(body)), &id, code, &String::from_utf8_lossy(body));
    }
    for id in ["null", "1.5", "{}", "[1]", "true", "99999999999999999999999"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{}}}}"#);
        is_error(&server.ask(&Request::post(body)), &json!(null), -32600, id);
    }
    server.is_well();
}

#[test]
fn a_batch_is_refused() {
    let server = Server::start();
    let one = modern_message(1, "tools/list", json!({}));
    for batch in ["[]".to_owned(), format!("[{one}]"), format!("[{}]", vec![one; 5000].join(","))] {
        is_error(&server.ask(&Request::post(batch)), &json!(null), -32600, "a batch");
    }
    server.is_well();
}

#[test]
fn text_that_is_no_utf8_is_a_bad_request() {
    let server = Server::start();
    let mut message = modern_message(1, "tools/call", call_run("bash", "echo X")).into_bytes();
    let place = message.iter().position(|byte| *byte == b'X').unwrap();
    message[place] = 0xff;
    let request = Request::post(message).header("MCP-Protocol-Version", "2026-07-28");
    let answer = server.ask(&request.header("Mcp-Method", "tools/call").header("Mcp-Name", "run"));
    is_error(&answer, &json!(1), -32700, "no UTF-8");
    server.is_well();
}

#[test]
fn media_types_are_read_as_http_defines_them() {
    let server = Server::start();
    for accept in [
        "*/*",
        "application/*",
        "Application/JSON, Text/Event-Stream",
        "text/event-stream;q=0.5, application/json;q=0.9, */*;q=0.1",
    ] {
        let answer = server.ask(&list().without("Accept").header("Accept", accept));
        assert_eq!(answer.status, 200, "{accept}: {answer:?}");
    }
    assert_eq!(server.ask(&list().without("Accept")).status, 200, "no header accepts everything");
    for kind in ["Application/JSON", "application/json; charset=utf-8", "APPLICATION/JSON;charset=\"UTF-8\""]
    {
        let answer = server.ask(&list().without("Content-Type").header("Content-Type", kind));
        assert_eq!(answer.status, 200, "{kind}: {answer:?}");
    }
}

#[test]
fn only_json_is_taken() {
    let server = Server::start();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "x"] {
        let answer = server.ask(&list().without("Content-Type").header("Content-Type", kind));
        assert_eq!(answer.status, 415, "{kind}: {answer:?}");
    }
    assert_eq!(server.ask(&list().without("Content-Type")).status, 415);
    let answer = server.ask(&list().without("Accept").header("Accept", "image/png"));
    assert_eq!(answer.status, 406, "{answer:?}");
}

#[test]
fn headers_that_contradict_the_message_are_refused() {
    let server = Server::start();
    let run = || Request::modern("tools/call", call_run("bash", "echo 1"));
    for (name, value) in
        [("Mcp-Name", "get_capabilities"), ("Mcp-Method", "tools/list"), ("MCP-Protocol-Version", LEGACY)]
    {
        let answer = server.ask(&run().without(name).header(name, value));
        assert_eq!(answer.status, 400, "{name}: {answer:?}");
    }
}

#[test]
fn an_announced_body_that_is_too_large_is_refused_unread() {
    let server = Server::start();
    let request =
        list().without("Content-Length").header("Content-Length", &(BODY_BYTES_MAX + 1).to_string());
    let mut wire = server.connect();
    // Only the head and the beginning of the body: the answer must not wait for the rest.
    wire.send(&request.bytes(&server));
    assert_eq!(wire.answer().status, 413);
    assert!(wire.rest().is_empty(), "the connection goes on");
    server.is_well();
}

#[test]
fn a_chunked_body_that_is_too_large_is_cut_off() {
    let server = Server::start();
    let request = Request::new("POST", "/mcp", Vec::new())
        .without("Content-Length")
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .header("Transfer-Encoding", "chunked");
    let mut wire = server.connect();
    wire.send(&request.bytes(&server));
    let chunk = [b"100000\r\n".to_vec(), vec![b' '; 1 << 20], b"\r\n".to_vec()].concat();
    let sent = (0..64).take_while(|_| wire.try_send(&chunk).is_ok()).count();
    assert!(sent < 64, "all of it was read");
    // What was on its way when the server hung up may have cost us the answer (RFC 9112 section 9.6).
    if let Ok(answer) = wire.try_answer() {
        assert_eq!(answer.status, 413, "{answer:?}");
    }
    server.is_well();
    assert!(server.metric("palisade_http_refusals_total{reason=\"body\"}") >= 1.0);
}

#[test]
fn a_huge_head_is_refused() {
    let server = Server::start();
    let large = "x".repeat(200 << 10);
    let many = (0..5000).fold(list(), |request, number| request.header(&format!("X-{number}"), "y"));
    for request in [list().header("X-Large", &large), many, Request::get(&format!("/mcp?{large}"))] {
        let mut wire = server.connect();
        // The server may leave before it has all of it.
        wire.try_send(&request.bytes(&server)).ok();
        if let Ok(answer) = wire.try_answer() {
            assert!([414, 431].contains(&answer.status), "{answer:?}");
        }
    }
    server.is_well();
}

/// Whatever a proxy in front may think of these, this server sees one request or none, never two.
#[test]
fn no_request_can_be_smuggled_into_another() {
    let server = Server::start();
    let hidden = String::from_utf8(Request::get("/metrics").bytes(&server)).unwrap();
    let length = hidden.len().to_string();
    let attempts: [&[(&str, &str)]; 9] = [
        &[("Content-Length", "0"), ("Content-Length", &length)],
        &[("Content-Length", &format!("0, {length}"))],
        &[("Content-Length", &format!("+{length}"))],
        &[("Content-Length", "0x10")],
        &[("Content-Length", "-1")],
        &[("Content-Length", &length), ("Transfer-Encoding", "xchunked")],
        &[("Transfer-Encoding", "chunked, identity")],
        &[("Transfer-Encoding", "identity")],
        &[("Content-Length", &length), (" Transfer-Encoding", "chunked")],
    ];
    for headers in attempts {
        let mut request = Request::new("POST", "/mcp", hidden.clone().into_bytes()).without("Content-Length");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answers = all_answers(&server, &request.bytes(&server));
        assert!(!answers.contains("palisade_info"), "{headers:?}: {answers}");
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{headers:?}: {answers}");
        assert!(
            answers.starts_with("HTTP/1.1 4") || answers.starts_with("HTTP/1.1 501"),
            "{headers:?}: {answers}"
        );
    }
    server.is_well();
}

/// RFC 9112 section 6.3: the chunks count, and the connection is not to be used afterwards.
#[test]
fn a_length_beside_chunks_does_not_split_a_request() {
    let server = Server::start();
    let hidden = String::from_utf8(Request::get("/metrics").bytes(&server)).unwrap();
    let body = format!("0\r\n\r\n{hidden}");
    let request = Request::new("POST", "/mcp", body.into_bytes()).header("Transfer-Encoding", "chunked");
    let bytes = request.header("Content-Length", "5").bytes(&server);
    let answers = all_answers(&server, &bytes);
    assert!(!answers.contains("palisade_info"), "the second request was answered: {answers}");
}

#[test]
fn a_line_without_carriage_return_ends_no_head_for_others() {
    let server = Server::start();
    for text in [
        "GET /metrics HTTP/1.1\nHost: localhost\n\n",
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\n X: folded\r\n\r\n",
    ] {
        let answers = all_answers(&server, text.as_bytes());
        assert!(!answers.contains("palisade_info"), "{answers}");
    }
    server.is_well();
}

fn all_answers(server: &Server, bytes: &[u8]) -> String {
    let mut wire = server.connect();
    wire.try_send(bytes).ok();
    wire.close_writing();
    String::from_utf8_lossy(&wire.rest()).into_owned()
}

#[test]
fn requests_in_one_pipe_are_answered_in_order() {
    let server = Server::start();
    let mut wire = server.connect();
    let codes: Vec<String> =
        (0..20).map(|number| format!("sleep 0.0{}; echo {number}", 9 - number % 10)).collect();
    let all: Vec<u8> = codes.iter().flat_map(|code| Request::run("bash", code).bytes(&server)).collect();
    wire.send(&all);
    for number in 0..20 {
        let answer = wire.answer();
        assert_eq!(answer.result()["structuredContent"]["stdout"], format!("{number}\n"), "{answer:?}");
    }
}

#[test]
fn names_that_are_not_this_servers_are_turned_away() {
    let server = Server::start();
    let port = server.address.port();
    for host in
        ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil.example", "", "a b"]
    {
        let answer = server.ask(&list().header("Host", host));
        assert!([400, 403].contains(&answer.status), "{host}: {answer:?}");
    }
    assert!([400, 403].contains(&server.ask(&list().without("Host")).status));
    let two = list().header("Host", "localhost").header("Host", "evil.example");
    assert!([400, 403].contains(&server.ask(&two).status));
    for host in ["localhost".to_owned(), format!("LOCALHOST:{port}"), "[::1]".to_owned()] {
        assert_eq!(server.ask(&list().header("Host", &host)).status, 200, "{host}");
    }
}

#[test]
fn pages_of_others_are_turned_away() {
    let server = Server::start();
    let own = format!("http://{}", server.address);
    for origin in
        ["http://evil.example", "null", "https://localhost.evil.example", "", "file://", "http://localhost:1"]
    {
        let answer = server.ask(&list().header("Origin", origin));
        assert_eq!(answer.status, 403, "{origin}: {answer:?}");
        assert!(answer.header("access-control-allow-origin").is_none());
    }
    assert_eq!(server.ask(&list().header("Origin", &own)).status, 200);
    let two = list().header("Origin", &own).header("Origin", "http://evil.example");
    assert_eq!(server.ask(&two).status, 403);
}

#[test]
fn only_the_token_in_its_header_opens() {
    let server = Server::start();
    let right = format!("Bearer {}", server.token);
    let wrong = format!("Bearer {}", server.token.replace(|letter: char| letter.is_ascii_digit(), "a"));
    for value in
        ["", "Bearer", &wrong, &format!("{right}x"), &server.token, &format!("Basic {}", server.token)]
    {
        let answer = server.ask(&list().header("Authorization", value));
        assert_eq!(answer.status, 401, "{value}");
        assert!(
            answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")),
            "{answer:?}"
        );
        assert!(answer.message()["error"]["message"].as_str().unwrap().contains("bearer token is needed"));
        assert!(!answer.text().contains(&server.token));
    }
    assert_eq!(server.ask(&list().without("Authorization")).status, 401);
    for second in [&right, &wrong] {
        let two = list().header("Authorization", &right).header("Authorization", second);
        assert_eq!(server.ask(&two).status, 401);
    }
    for name in ["access_token", "token", "authorization"] {
        let request = Request::get(&format!("/metrics?{name}={}", server.token)).without("Authorization");
        assert_eq!(server.ask(&request).status, 401, "{name} in the address");
    }
    assert_eq!(server.ask(&Request::get("/metrics").without("Authorization")).status, 401);
    assert_eq!(server.ask(&Request::get("/healthz").without("Authorization")).status, 200);
    // Its canaries may take longer than an answer waits for them: 503 is an answer to a caller without a token too.
    let ready = server.ask(&Request::get("/readyz").without("Authorization"));
    assert!([200, 503].contains(&ready.status), "{ready:?}");
    assert!(!server.log().contains(&server.token), "the token is in the log");
}

#[test]
fn other_paths_and_methods_reach_nothing() {
    let server = Server::start();
    for path in [
        "/",
        "/mcp/",
        "/mcp/../metrics",
        "//mcp",
        "/%6dcp",
        "/mcp%00",
        "/.well-known/x",
        "/files/../../etc/passwd",
    ] {
        assert_eq!(server.ask(&Request::get(path)).status, 404, "{path}");
    }
    for method in ["PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO"] {
        let answer = server.ask(&Request::new(method, "/mcp", Vec::new()));
        assert!([400, 403, 404, 405].contains(&answer.status), "{method}: {answer:?}");
    }
    server.is_well();
}
