//! Messages that are not what the protocol says, and what each of them is answered with.

use super::*;

fn call(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#)
}

fn refusal(text: impl AsRef<[u8]>) -> Value {
    match read(text.as_ref()) {
        Read::Refused(refused) => refused.answer(),
        other => panic!("{}: {other:?}", String::from_utf8_lossy(text.as_ref())),
    }
}

fn repaired(params: &str) -> (Value, Option<IllTypedArguments>) {
    match read(call(params).as_bytes()) {
        Read::Repaired(Repaired { text, complaint }) => (serde_json::from_slice(&text).unwrap(), complaint),
        other => panic!("{params}: {other:?}"),
    }
}

#[test]
fn arguments_in_the_form_of_a_string_are_taken() {
    let (message, complaint) = repaired(
        r#"{"_meta":{"a":1},"name":"run","arguments":"{\"code\":\"1\",\"n\":123456789012345678901}"}"#,
    );
    assert_eq!(complaint, None);
    assert_eq!(
        message["params"].to_string(),
        r#"{"_meta":{"a":1},"name":"run","arguments":{"code":"1","n":123456789012345678901}}"#
    );
}

#[test]
fn arguments_of_another_type_reach_the_tool_with_a_complaint() {
    for arguments in ["[]", "[{}]", "5", "1.5", "true", r#""""#, r#""x""#, r#""[1]""#, r#""null""#, r#""{""#]
    {
        let (message, complaint) = repaired(&format!(r#"{{"name":"run","arguments":{arguments}}}"#));
        assert_eq!(message["params"]["arguments"], json!({}), "{arguments}");
        assert!(complaint.is_some(), "{arguments}");
    }
    for fine in ["{}", "null"] {
        let read = read(call(&format!(r#"{{"name":"run","arguments":{fine}}}"#)).as_bytes());
        assert!(matches!(read, Read::Message(_)), "{fine}: {read:?}");
    }
}

#[test]
fn a_call_that_names_no_tool_is_told_how_to_name_one() {
    for params in
        ["[]", "5", "null", "\"run\"", "{}", r#"{"arguments":{}}"#, r#"{"name":5}"#, r#"{"name":null}"#]
    {
        let error = refusal(call(params));
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(7), &json!(-32602)), "{params}: {error}");
        assert_eq!(error["error"]["data"]["code"], "bad_arguments", "{params}: {error}");
        assert!(error["error"]["data"]["remedy"].as_str().unwrap().contains("tools/list"));
    }
    let bare = refusal(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#);
    assert_eq!(bare["error"]["data"]["code"], "bad_arguments");
}

#[test]
fn a_known_method_with_wrong_parameters_is_no_unknown_method() {
    for (method, params) in [
        ("initialize", "{}"),
        ("resources/read", "{}"),
        ("resources/read", r#"{"uri":5}"#),
        ("prompts/get", "{}"),
        ("completion/complete", r#"{"ref":5}"#),
        ("tasks/get", "{}"),
        ("tools/call", r#"{"name":"run","_meta":5}"#),
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":"a","method":"{method}","params":{params}}}"#);
        let error = refusal(text);
        assert_eq!(
            (&error["id"], &error["error"]["code"]),
            (&json!("a"), &json!(-32602)),
            "{method} {error}"
        );
    }
    let removed = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    assert!(matches!(read(removed), Read::Message(_)), "newer revisions do not have the method");
    let unknown = br#"{"jsonrpc":"2.0","id":1,"method":"no/such","params":{}}"#;
    assert!(matches!(read(unknown), Read::Message(_)), "the library answers an unknown method");
}

#[test]
fn what_is_no_json_is_a_parse_error() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"x","params":{}1{}}}"#,
        "[".repeat(500),
        "]".repeat(500)
    );
    let cases: [(&[u8], Value); 6] = [
        (b"not json", json!(null)),
        (b"{", json!(null)),
        (br#"{"jsonrpc":"2.0","id":7,"method":"tools/list""#, json!(7)),
        (deep.as_bytes(), json!(7)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\xff\"}", json!(7)),
        (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run","arguments":{"code":"\ud800"}}}"#, json!(7)),
    ];
    for (text, id) in cases {
        let error = refusal(text);
        assert_eq!((&error["id"], &error["error"]["code"]), (&id, &json!(-32700)), "{error}");
    }
}

#[test]
fn what_is_json_but_no_json_rpc_is_an_invalid_request() {
    let mut cases = vec![
        ("null".to_owned(), json!(null)),
        ("5".to_owned(), json!(null)),
        ("[]".to_owned(), json!(null)),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#.to_owned(), json!(null)),
        ("{}".to_owned(), json!(null)),
        (r#"{"jsonrpc":"2.0","id":1}"#.to_owned(), json!(1)),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#.to_owned(), json!(1)),
        (r#"{"id":"x","method":"ping"}"#.to_owned(), json!("x")),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#.to_owned(), json!(1)),
    ];
    for id in ["null", "1.5", "{}", "[]", "true", "18446744073709551616", "1e400"] {
        cases.push((format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#), json!(null)));
        cases.push((
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"run"}}}}"#),
            json!(null),
        ));
    }
    for (text, id) in cases {
        let error = refusal(&text);
        assert_eq!((&error["id"], &error["error"]["code"]), (&id, &json!(-32600)), "{text}: {error}");
        assert!(error.as_object().unwrap().contains_key("id"), "{error}");
    }
}

#[test]
fn what_needs_no_answer_gets_none() {
    for text in ["", " \r\n", "\u{feff}"] {
        assert!(matches!(read(text.as_bytes()), Read::Nothing), "{text:?}");
    }
    let error = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#;
    assert!(matches!(read(error), Read::Message(_)), "a client's error has no id if it knows none");
    let marked = "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}";
    assert!(matches!(read(marked.as_bytes()), Read::Message(_)));
}

#[test]
fn a_call_that_is_read_quickly_is_what_the_library_reads() {
    let calls = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run"}}"#,
        r#"{"jsonrpc":"2.0","id":"a\u00e9","method":"tools/call","params":{"name":"run","arguments":{"code":"é\n","variables":{"n":123456789012345678901234567890,"x":1.50}}}}"#,
        r#"{"params":{"_meta":{"progressToken":7,"x":{"y":[1]}},"arguments":{},"name":"run"},"method":"tools/call","id":-3,"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run","arguments":{"a":null},"task":{"ttl":1000},"more":[]}}"#,
    ];
    for call in calls {
        let quick = parse_call(call.as_bytes()).unwrap_or_else(|| panic!("not read: {call}"));
        let usual: Incoming = serde_json::from_slice(call.as_bytes()).unwrap();
        assert_eq!(format!("{quick:?}"), format!("{usual:?}"), "{call}");
    }
    let others = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"run"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"run"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run"},"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"run"}}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{"name":"run"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{}}}"#,
    ];
    for other in others {
        assert!(parse_call(other.as_bytes()).is_none(), "{other}");
    }
    // Ids that only one of the two parsers might accept.
    for id in ["1.0", "1e3", "true", "18446744073709551616", "[]", "1.5"] {
        let call =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"run"}}}}"#);
        let usual = serde_json::from_str::<Incoming>(&call).ok().map(|message| format!("{message:?}"));
        let quick = parse_call(call.as_bytes()).map(|message| format!("{message:?}"));
        assert!(quick.is_none() || quick == usual, "{id}: {quick:?} {usual:?}");
    }
}
