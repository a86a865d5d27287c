//! Messages with a mistake: the same answer over standard input, WebSocket and HTTP.

use functional::http::{LEGACY, Request, Server, modern_message};
use functional::socket::{Socket, TEXT};
use harness::mcp::Client;
use harness::users;
use serde_json::{Value, json};

/// The request with these parameters over every transport; the answers.
fn asked(server: &Server, client: &Client, params: &Value) -> [(&'static str, Value); 4] {
    let session = server.open_session();
    let mut socket = Socket::open(server);
    socket.send(TEXT, modern_message(9, "tools/call", params.clone()).as_bytes()).unwrap();
    let legacy = Request::legacy("tools/call", params.clone());
    let legacy = legacy.header("Mcp-Session-Id", &session).header("MCP-Protocol-Version", LEGACY);
    [
        ("stdio", client.send("tools/call", params.clone()).answer().unwrap()),
        ("websocket", socket.message()),
        ("http", server.ask(&Request::modern("tools/call", params.clone())).message()),
        ("legacy http", server.ask(&legacy).message()),
    ]
}

#[test]
fn arguments_that_are_no_object_are_repaired_or_refused_by_the_tool() {
    let (server, client) = (Server::start(), Client::new(users()[0]));
    let text = json!({"language": "bash", "code": "echo repaired"}).to_string();
    for (transport, answer) in asked(&server, &client, &json!({"name": "run", "arguments": text})) {
        let stdout = &answer["result"]["structuredContent"]["stdout"];
        assert_eq!(stdout, "repaired\n", "{transport}: {answer:#}");
    }
    for arguments in
        [json!([]), json!([{"language": "bash"}]), json!(5), json!(1.5), json!(true), json!("echo")]
    {
        for (transport, answer) in asked(&server, &client, &json!({"name": "run", "arguments": arguments})) {
            let result = &answer["result"];
            let error = &result["structuredContent"]["error"];
            assert_eq!(result["isError"], true, "{transport} {arguments}: {answer:#}");
            assert_eq!(error["code"], "bad_arguments", "{transport} {arguments}: {answer:#}");
            assert!(error["remedy"].as_str().unwrap().contains("language, code"), "{transport}: {error:#}");
        }
    }
}

#[test]
fn a_call_without_the_name_of_a_tool_is_told_how_to_name_one() {
    let (server, client) = (Server::start(), Client::new(users()[0]));
    for params in [json!({}), json!({"name": 5, "arguments": {}}), json!({"arguments": {"code": "1"}})] {
        for (transport, answer) in asked(&server, &client, &params) {
            let error = &answer["error"];
            assert_eq!(error["code"], -32602, "{transport} {params}: {answer:#}");
            assert_eq!(error["data"]["code"], "bad_arguments", "{transport} {params}: {answer:#}");
            assert!(error["data"]["remedy"].as_str().unwrap().contains("tools/list"), "{answer:#}");
        }
    }
}

#[test]
fn a_known_method_with_wrong_parameters_is_not_unknown() {
    let (server, client) = (Server::start(), Client::new(users()[0]));
    for (method, params) in [("resources/read", json!({})), ("prompts/get", json!({"name": 7}))] {
        let answer = client.send(method, params.clone()).answer().unwrap();
        assert_eq!(answer["error"]["code"], -32602, "{answer:#}");
        let answer = server.ask(&Request::modern(method, params));
        assert_eq!((answer.status, &answer.message()["error"]["code"]), (400, &json!(-32602)), "{answer:?}");
    }
}

#[test]
fn frames_that_are_no_message_are_answered() {
    let server = Server::start();
    let mut socket = Socket::open(&server);
    for (text, code) in [
        ("not json", -32700),
        ("[]", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
    ] {
        socket.send(TEXT, text.as_bytes()).unwrap();
        let answer = socket.message();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(null), &json!(code)),
            "{text}: {answer}"
        );
    }
}
