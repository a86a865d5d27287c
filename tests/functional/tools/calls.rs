//! Ordinary calls, as a model and its program make them.

use functional::outcome;
use harness::mcp::Client;
use serde_json::{Value, json};

use super::{Upstream, python};

#[test]
fn a_program_calls_tools_of_another_server_and_a_picture_comes_back() {
    let upstream = Upstream::new();
    let client = upstream.client();
    let found = client.call("find_tools", json!({"words": "arguments"}));
    assert_eq!(found["tools"][0]["name"], "small.echo", "{found:#}");
    let one = client.call("find_tools", json!({"words": "small.echo"}));
    assert_eq!(one["tools"][0]["input"]["properties"]["a"]["type"], "integer", "{one:#}");
    let whole = client.call_whole("run", python("print(tools.small.echo(a=7)); display(tools.small.shot())"));
    let result = &whole["structuredContent"];
    assert_eq!((outcome(result), result["stdout"].as_str()), ("completed", Some("{'a': 7}\n")), "{whole:#}");
    assert_eq!((&result["tools"]["calls"], &result["tools"]["by_server"]["small"]), (&json!(2), &json!(2)));
    assert_eq!(pictures(&whole), 1, "{whole:#}");
}

fn pictures(whole: &Value) -> usize {
    let blocks = whole["content"].as_array().unwrap();
    blocks.iter().filter(|block| block["type"] == "image" && block["mimeType"] == "image/png").count()
}

#[test]
fn a_picture_goes_to_a_tool_and_comes_back_in_every_language() {
    let upstream = Upstream::new();
    let client = upstream.client();
    let python_code = "shot = tools.read('small', 'docs://a.png')\n\
                       for given in (shot, shot.data): assert tools.small.turn(picture=given).data == shot.data\n\
                       display(tools.small.turn(picture=shot)); print(shot.mime, len(shot))";
    let javascript = "const shot = await tools.read('small', 'docs://a.png');\n\
                      const same = await tools.small.turn({ picture: shot.data });\n\
                      display(await tools.small.turn({ picture: shot })); console.log(shot.mime, same.data.length);";
    let bash = "tools read small docs://a.png -o a.png && tools small.turn picture@=a.png -o b.png && cmp a.png b.png \
                && echo image/png $(wc -c < b.png)";
    for (language, code, shown) in [
        ("python", python_code, 1),
        ("javascript", javascript, 1),
        ("typescript", javascript, 1),
        ("bash", bash, 0),
    ] {
        let whole =
            client.call_whole("run", json!({"language": language, "code": code, "access": ["small"]}));
        let result = &whole["structuredContent"];
        assert_eq!(result["stdout"], "image/png 70\n", "{language}: {whole:#}");
        assert_eq!(pictures(&whole), shown, "{language}: {whole:#}");
    }
}

#[test]
fn declarations_of_a_server_are_a_resource_in_both_notations() {
    let upstream = Upstream::new();
    let client = upstream.client();
    client.call("find_tools", json!({"words": "arguments"}));
    for (uri, mime, expected) in [
        ("palisade://tools/small", "text/x-python", "a: int"),
        ("palisade://tools/small?language=typescript", "text/typescript", "a?: number"),
    ] {
        let answer = client.send("resources/read", json!({ "uri": uri })).answer().unwrap();
        let content = &answer["result"]["contents"][0];
        assert_eq!(content["mimeType"], mime, "{answer:#}");
        assert!(content["text"].as_str().unwrap().contains(expected), "{answer:#}");
    }
    let none = client.send("resources/read", json!({"uri": "palisade://tools/nobody"})).answer().unwrap();
    assert!(none["error"].is_object(), "{none:#}");
}

#[test]
fn every_nested_call_is_judged_by_the_policy_and_audited() {
    let upstream = Upstream::empty();
    let rules = r#"{"version": "1", "default": "allow", "hide": ["small.shot"],
        "tools": {"small.dashed_name": {"deny_if": {"args.a": {"eq": 1}}}, "small.echo": {"limits": [{"window": "day", "max": 2}]}}}"#;
    std::fs::create_dir(upstream.path("policies")).unwrap();
    std::fs::write(upstream.path("policies/p.json"), rules).unwrap();
    upstream.configure(&upstream.small(""));
    let folder = upstream.path("policies");
    let accepted = upstream.palisade(&["tools", "accept", "small"]).end();
    assert_eq!(accepted.status.code(), Some(0), "{accepted:?}");
    let mcp = upstream.palisade(&["mcp"]).env("PALISADE_POLICY_FOLDER", folder.to_str().unwrap());
    let client = Client::start(mcp.env("PALISADE_POLICY_BIND", "*=p"));
    let code = "def code(call):\n  try: return call() and 'ok'\n  except tools.Error as e: return e.code\n\
                small = tools.small\n\
                print([code(lambda: small.echo(a=n)) for n in range(3)], code(lambda: small['dashed-name'](a=1)),\n\
                  code(lambda: small.dashed_name(a=2)), code(lambda: small.shot()),\n\
                  code(lambda: tools.describe('small.shot')), [t['name'] for t in tools.find('picture')])";
    let result = client.call("run", python(code));
    let expected =
        "['ok', 'ok', 'policy_denied'] policy_denied ok unknown_tool unknown_tool ['small.turn']\n";
    assert_eq!(result["stdout"], expected, "{result:#}");
    assert_eq!((&result["tools"]["calls"], &result["tools"]["denied"]), (&json!(3), &json!(2)), "{result:#}");
    let found = client.call("find_tools", json!({"words": "picture"}));
    assert_eq!((found["tools"].as_array().unwrap().len(), &found["total"]), (1, &json!(1)), "{found:#}");
    let declared = client.send("resources/read", json!({"uri": "palisade://tools/small"})).answer().unwrap();
    assert!(declared["error"].is_object(), "one of its tools is hidden: {declared:#}");
    drop(client);
    let audited = upstream.palisade(&["audit", "export"]).end();
    for name in ["small.echo", "small.dashed-name", "small.shot"] {
        assert!(audited.stdout.contains(name), "{name}: {audited:?}");
    }
}
