//! Calls as models write them: other names, numbers as text, names instead of ids, and mistakes with an answer.

use functional::outcome;
use harness::mcp::Client;
use harness::users;
use serde_json::{Value, json};

fn remedy(result: &Value) -> &str {
    assert_eq!(outcome(result), "refused", "{result:#}");
    result["error"]["remedy"].as_str().unwrap_or_default()
}

#[test]
fn what_is_meant_is_understood() {
    for user in users() {
        let client = Client::new(user);
        for (language, code) in [("Py", "print(42)"), ("node", "console.log(42)"), ("SH", "echo 42")] {
            let result =
                client.call("run", json!({ "language": language, "code": code, "timeout_ms": "9000" }));
            assert_eq!(result["stdout"], "42\n", "{language}: {result:#}");
        }
        let inputs = json!([{ "path": "/workspace/data/in.txt", "text": "abc" }]);
        let asked = json!({ "language": "bash", "code": "cat data/in.txt", "inputs": inputs });
        assert_eq!(client.call("run", asked)["stdout"], "abc");
        let checked = client.call("validate_code", json!({ "language": "JS", "code": "let a = 1" }));
        assert_eq!(checked["valid"], true, "{checked:#}");
        assert!(client.end().success());
    }
}

#[test]
fn the_name_of_a_sandbox_serves_as_its_id_in_every_tool() {
    for user in users() {
        let client = Client::new(user);
        let id = client.open(json!({ "name": "my analysis" }));
        let name = "my analysis";
        let written =
            client.call("write_file", json!({ "sandbox_id": name, "path": "/workspace/a", "text": "abc" }));
        assert_eq!(written["size_bytes"], 3, "{written:#}");
        let part =
            client.call("read_file", json!({ "sandbox_id": name, "path": "a", "offset": "1", "limit": "1" }));
        assert_eq!(part["text"], "b", "{part:#}");
        let listed = client.call("list_files", json!({ "sandbox_id": name, "recursive": "true" }));
        assert_eq!(listed["entries"][0]["path"], "a", "{listed:#}");
        let result = client.run(name, "python", "open('a').read()");
        assert_eq!((&result["value"]["json"], &result["sandbox_id"]), (&json!("abc"), &json!(id)));
        let unknown = client.run("nobody", "python", "1");
        assert_eq!(unknown["error"]["code"], "unknown_sandbox");
        let other = client.open(json!({ "name": name }));
        let both = client.call("sandbox_close", json!({ "sandbox_id": name }));
        assert_eq!(both["error"]["code"], "ambiguous_sandbox", "{both:#}");
        client.call("sandbox_close", json!({ "sandbox_id": other }));
        assert_eq!(client.call("sandbox_close", json!({ "sandbox_id": name }))["closed"], true);
        assert!(client.end().success());
    }
}

#[test]
fn a_mistake_is_answered_with_what_to_write_instead() {
    let client = Client::new(users()[0]);
    let run = |more: Value| {
        let mut asked = json!({ "language": "python", "code": "1" });
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.call("run", asked)
    };
    assert!(remedy(&client.call("run", json!({ "code": "1" }))).contains("bash, c, cpp"));
    assert!(remedy(&run(json!({ "language": "pyhton" }))).starts_with("did you mean python?"));
    assert!(remedy(&run(json!({ "memory_mb": 64 }))).contains("inside `limits`"));
    assert!(remedy(&run(json!({ "limits": { "timeout_ms": 5 } }))).contains("beside `limits`"));
    assert!(remedy(&run(json!({ "timeout": 5 }))).contains("did you mean `timeout_ms`?"));
    let unknown = client.begin("execute_code", json!({})).answer().unwrap();
    let message = unknown["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("did you mean `run`?") && message.contains("sandbox_open"), "{unknown:#}");
    assert!(client.end().success());
}

#[test]
fn results_are_bounded_and_say_nothing_twice() {
    for user in users() {
        let client = Client::new(user);
        let result = client.call("run", json!({ "language": "python", "code": "'x' * 50000" }));
        assert!(result["value"]["repr"].as_str().unwrap().len() < 20_100, "{result:#}");
        assert_eq!(result["truncated"], json!({ "value_bytes": 50_002 }));
        assert_eq!(result["isolation"]["backend"], "native");
        assert_eq!(result["isolation"].get("notes"), None);
        assert!(client.end().success());
    }
}
