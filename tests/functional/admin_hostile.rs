//! Hostile requests to the admin API: nothing changes, and every refusal has the documented form.

use functional::admin::{AdminClient, V1, json_request};
use functional::http::{Request, Server};
use serde_json::{Value, json};

const BODY_BYTES_MAX: usize = 64 << 10;

fn code(answer: &functional::http::Answer) -> (u16, String) {
    (answer.status, answer.message()["error"]["code"].as_str().unwrap_or("(none)").to_owned())
}

#[test]
fn ids_that_are_none_find_nothing() {
    let server = Server::start();
    let client = AdminClient::owner(&server);
    for id in
        ["..", "%2e%2e", "a%2Fb", "%2Fetc%2Fpasswd", "%00", "run_%27%20OR%201=1", "é", "%F0%9F%92%A9", "*"]
    {
        assert_eq!(client.get(&format!("/runs/{id}")).status, 404, "{id}");
        for path in ["/keys/ID/revoke", "/keys/ID/rotate", "/runs/ID/cancel", "/sandboxes/ID/close"] {
            let answer = client.post(&path.replace("ID", id), &json!({}));
            assert_eq!(answer.status, 404, "{id} {path}: {answer:?}");
        }
    }
    let long = "x".repeat(300);
    assert_eq!(client.get(&format!("/runs/{long}")).status, 400);
    // Not UTF-8, and paths that the document does not have.
    for path in [
        "/admin/v1/runs/%ff",
        "/admin/v1/keys/a/b/revoke",
        "/admin/v1/",
        "/admin",
        "/admin/v2/keys",
        "/admin/v1//keys",
    ] {
        let answer = server.ask(&Request::get(path));
        assert!([400, 404].contains(&answer.status), "{path}: {answer:?}");
        assert!(answer.message()["error"]["remedy"].is_string(), "{path}: {answer:?}");
    }
}

#[test]
fn bodies_are_bounded_and_must_be_the_documented_json() {
    let server = Server::start();
    let client = AdminClient::owner(&server);
    let send = |body: Vec<u8>| client.send(json_request("/keys", body), "post", "/keys");
    let huge = json!({"name": "x".repeat(BODY_BYTES_MAX), "scopes": ["run"]}).to_string();
    assert_eq!(code(&send(huge.into_bytes())), (413, "body_too_large".to_owned()));
    let deep = "[".repeat(20_000);
    for bad in [
        "",
        "null",
        "[]",
        "{",
        "\u{feff}{}",
        r#"{"name": "a"}"#,
        r#"{"name": "a", "scopes": ["run"], "name": "b"}"#,
        r#"{"name": "a", "scopes": ["run"], "admin": true}"#,
        r#"{"name": "a", "scopes": "run"}"#,
        r#"{"name": "a", "scopes": []}"#,
        r#"{"name": "a", "scopes": ["root"]}"#,
        r#"{"name": "a", "scopes": ["run"], "expires_in_s": -1}"#,
        r#"{"name": "a", "scopes": ["run"], "expires_in_s": 0}"#,
        r#"{"name": "a", "scopes": ["run"], "expires_in_s": 3155760001}"#,
        r#"{"name": "a", "scopes": ["run"], "policy": "../../etc"}"#,
        r#"{"name": "owner", "scopes": ["run"]}"#,
        r#"{"name": "a/b", "scopes": ["run"]}"#,
        r#"{"name": "", "scopes": ["run"]}"#,
        &deep,
    ] {
        let answer = send(bad.as_bytes().to_vec());
        assert_eq!(answer.status, 400, "{:.80}: {answer:?}", bad);
    }
    assert_eq!(send(vec![0xff, 0xfe]).status, 400);
    // A body without an end.
    let mut wire = server.connect();
    let head = json_request("/keys", "").header("Transfer-Encoding", "chunked").without("Content-Length");
    wire.send(&head.bytes(&server));
    let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 65536], b"\r\n"].concat();
    wire.send(&chunk);
    wire.send(b"1\r\n \r\n");
    assert_eq!(code(&wire.answer()), (413, "body_too_large".to_owned()));
    assert_eq!(client.read("/keys?state=all")["items"], json!([]), "nothing was made");
}

#[test]
fn what_a_web_page_can_send_changes_nothing() {
    let server = Server::start();
    let body = json!({"name": "evil", "scopes": ["admin"]}).to_string();
    let post = || Request::new("POST", &format!("{V1}/keys"), body.clone().into_bytes());
    for media in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""]
    {
        let answer = server.ask(&post().header("Content-Type", media));
        assert_eq!(code(&answer), (415, "not_json".to_owned()), "{media}");
    }
    assert_eq!(server.ask(&post()).status, 415);
    let json = || post().header("Content-Type", "application/json");
    let foreign = server.ask(&json().header("Origin", "https://evil.example"));
    assert_eq!(code(&foreign), (403, "unknown_origin".to_owned()));
    let rebound = server.ask(&json().header("Host", "evil.example"));
    assert_eq!(code(&rebound), (403, "unknown_host".to_owned()));
    let bare = server.ask(&json().without("Authorization"));
    assert_eq!(code(&bare), (401, "no_credential".to_owned()));
    let wrong = server.ask(&json().header("Authorization", "Bearer wrong"));
    assert_eq!(code(&wrong), (401, "invalid_token".to_owned()));
    for method in ["PUT", "DELETE", "PATCH", "TRACE"] {
        let request = Request::new(method, &format!("{V1}/keys"), body.clone().into_bytes());
        assert_eq!(server.ask(&request.header("Content-Type", "application/json")).status, 405, "{method}");
    }
    // A path that changes something does not answer to GET.
    assert_eq!(server.ask(&Request::get("/admin/v1/keys/x/revoke")).status, 405);
    assert_eq!(AdminClient::owner(&server).read("/keys?state=all")["items"], json!([]));
}

#[test]
fn queries_have_the_documented_parameters_only() {
    let server = Server::start();
    let client = AdminClient::owner(&server);
    for bad in [
        "x=1",
        "limit=1&limit=2",
        "principal=",
        "principal=a%20b",
        "state=gone",
        "limit=%",
        "cursor",
        "%ff=1",
    ] {
        let answer = client.get(&format!("/keys?{bad}"));
        assert_eq!(code(&answer), (400, "bad_query".to_owned()), "{bad}");
    }
    assert_eq!(client.get(&format!("/keys?state={}", "x".repeat(4000))).status, 400);
    assert_eq!(client.get("/keys?").status, 200);
}

#[test]
fn an_explained_call_is_not_counted_and_its_arguments_are_not_logged() {
    let server = Server::start();
    let client = AdminClient::owner(&server);
    let asked = json!({"principal": "owner", "tool": "run", "arguments": {"code": "hush-hush"}});
    let told: Value = client.post("/policies/explain", &asked).message();
    assert_eq!(told["verdict"], "allowed");
    assert!(!server.log().contains("hush-hush"));
    for bad in [
        json!({"principal": "", "tool": "x"}),
        json!({"principal": "a b", "tool": "x"}),
        json!({"tool": "x"}),
    ] {
        assert_eq!(client.post("/policies/explain", &bad).status, 400, "{bad}");
    }
}
