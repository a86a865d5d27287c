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

/// Values below the least one of every number that a schema describes, with the path to it.
fn below(schema: &Value, path: &[String], found: &mut Vec<(Vec<String>, Value)>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = [path, std::slice::from_ref(name)].concat();
        if let Some(least) = property["minimum"].as_i64() {
            found.push((path.clone(), json!(least - 1)));
        }
        if let Some(least) = property["exclusiveMinimum"].as_f64() {
            found.push((path.clone(), json!(least)));
        }
        below(property, &path, found);
    }
}

#[test]
fn no_tool_takes_a_number_that_its_schema_excludes() {
    let client = Client::new(users()[0]);
    let listed = client.send("tools/list", json!({})).answer().unwrap();
    let mut count = 0;
    for tool in listed["result"]["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let mut found = Vec::new();
        below(&tool["inputSchema"], &[], &mut found);
        for (path, value) in found {
            let mut arguments = json!({});
            for required in tool["inputSchema"]["required"].as_array().into_iter().flatten() {
                arguments[required.as_str().unwrap()] = json!("bash");
            }
            match path.as_slice() {
                [own] => arguments[own] = value,
                [outer, own] => arguments[outer][own] = value,
                _ => panic!("{path:?}"),
            }
            let result = client.call_whole(name, arguments.clone());
            let code = &result["structuredContent"]["error"]["code"];
            assert!(
                ["bad_arguments", "bad_limit"].map(Value::from).contains(code),
                "{name} {arguments}: {result:#}"
            );
            count += 1;
        }
    }
    assert!(count >= 15, "{count} numbers");
}
