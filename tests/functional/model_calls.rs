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

#[test]
fn a_program_that_was_damaged_on_its_way_is_understood_or_refused() {
    let client = Client::new(users()[0]);
    for (language, code, stdout) in [
        ("python", "```python\nprint(42)\n```", "42\n"),
        ("bash", "\u{feff}for i in 4 2; do\r\nprintf %s $i\r\ndone\r\n", "42"),
        ("python", "\u{feff}print(42)\r\n", "42\n"),
        ("php", "echo 6*7;", "42"),
    ] {
        let result =
            client.call("run", json!({ "language": language, "code": code, "stdin": null, "limits": null }));
        assert_eq!(result["stdout"], stdout, "{language}: {result:#}");
    }
    let fenced = json!({ "language": "python", "code": "```python\nx = 1\n```" });
    assert_eq!(client.call("validate_code", fenced)["valid"], true);
    for code in ["", " \n", "```python\n```"] {
        let result = client.call("run", json!({ "language": "python", "code": code }));
        assert_eq!(result["error"]["code"], "bad_code", "{result:#}");
    }
    assert!(client.end().success());
}

#[test]
fn inputs_are_understood_as_they_are_commonly_written() {
    let client = Client::new(users()[0]);
    let run = |inputs: Value| {
        client.call(
            "run",
            json!({ "language": "bash", "code": "cat a/b 2>/dev/null || cat a", "inputs": inputs }),
        )
    };
    for content in ["aGVsbG8=", "aGVsbG8", "aGVs\nbG8=\n", "data:text/plain;base64,aGVsbG8="] {
        assert_eq!(run(json!([{ "path": "./a", "base64": content }]))["stdout"], "hello", "{content}");
    }
    for twice in [
        json!([{ "path": "a", "text": "1" }, { "path": "a", "text": "2" }]),
        json!([{ "path": "a", "text": "1" }, { "path": "a/b", "text": "2" }]),
    ] {
        let result = run(twice);
        assert_eq!(result["error"]["code"], "bad_inputs", "{result:#}");
    }
    assert!(remedy(&run(json!({ "a": "hello" }))).contains("\"path\""));
    assert!(remedy(&run(json!([{ "path": "a", "base64": "hello, world" }]))).contains("`text`"));
    assert!(client.end().success());
}

#[test]
fn other_words_and_the_walls_of_a_sandbox_are_answered_with_what_to_do() {
    let client = Client::new(users()[0]);
    let asked = |name: &str| {
        let mut given = json!({ "language": "python", "code": "1" });
        given[name] = json!("x");
        remedy(&client.call("run", given)).to_owned()
    };
    assert!(asked("script").starts_with("did you mean `code`?"));
    assert!(asked("files").starts_with("did you mean `inputs`?"));
    assert!(asked("session_id").starts_with("did you mean `sandbox_id`?"));
    assert!(asked("env").contains("$NAME"), "{}", asked("env"));
    assert!(asked("packages").contains("write [\"pandas\""), "{}", asked("packages"));
    let off = client.call("run", json!({ "language": "python", "code": "1", "packages": ["x"] }));
    assert_eq!(off["error"]["code"], "packages_off", "{off:#}");
    let failed = |language: &str, code: &str| {
        let result = client.call("run", json!({ "language": language, "code": code }));
        assert_eq!(outcome(&result), "failed", "{result:#}");
        result["error"]["remedy"].as_str().unwrap_or_default().to_owned()
    };
    let python = "import urllib.request; urllib.request.urlopen('http://service.invalid/')";
    assert!(failed("python", python).contains("no network"));
    let node = "await fetch('http://service.invalid/')";
    assert!(failed("javascript", node).contains("no network"));
    assert!(failed("python", "input()").contains("stdin"));
    assert!(failed("python", "open('/home/user/data.csv')").contains("inputs"));
    assert!(client.end().success());
}
