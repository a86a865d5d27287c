//! Web pages that use the server from a browser: what a browser asks before, and what it must find in the answers.

use functional::http::{Answer, Request, Server};
use functional::socket::upgrade;
use harness::users;
use serde_json::json;

const PAGE: &str = "https://app.example.com";

fn serving() -> Server {
    Server::start_as(users()[0], &["--listen", "127.0.0.1:0", "--allow-origin", PAGE])
}

/// The question of a browser before a page's first request.
fn preflight(path: &str, origin: &str) -> Request {
    Request::new("OPTIONS", path, Vec::new())
        .without("Authorization")
        .header("Origin", origin)
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "authorization,content-type,mcp-protocol-version")
}

/// Whether the comma-separated header names this value.
fn names(answer: &Answer, header: &str, wanted: &str) -> bool {
    answer.header(header).is_some_and(|list| list.split(", ").any(|name| name.eq_ignore_ascii_case(wanted)))
}

#[test]
fn a_preflight_of_an_allowed_page_is_answered_without_a_token() {
    let server = serving();
    for path in ["/mcp", "/files/token/name"] {
        let answer =
            server.ask(&preflight(path, PAGE).header("Access-Control-Request-Private-Network", "true"));
        assert_eq!(answer.status, 204, "{answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE), "{answer:?}");
        assert_eq!(answer.header("access-control-allow-private-network"), Some("true"), "{answer:?}");
        assert_eq!(answer.header("access-control-allow-credentials"), None);
        for method in ["GET", "POST", "DELETE", "PUT"] {
            assert!(names(&answer, "access-control-allow-methods", method), "{method}: {answer:?}");
        }
        for name in ["Authorization", "Content-Type", "Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method"]
        {
            assert!(names(&answer, "access-control-allow-headers", name), "{name}: {answer:?}");
        }
        assert!(names(&answer, "vary", "Origin"), "{answer:?}");
    }
}

#[test]
fn an_allowed_page_may_read_every_answer() {
    let server = serving();
    let list = || Request::modern("tools/list", json!({}));
    for (request, status) in [
        (list().header("Origin", PAGE), 200),
        (list().header("Origin", PAGE).without("Authorization"), 401),
        (Request::post("not json").header("Origin", PAGE), 400),
        (Request::get("/nothing").header("Origin", PAGE), 404),
    ] {
        let answer = server.ask(&request);
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE), "{answer:?}");
        assert!(names(&answer, "access-control-expose-headers", "Mcp-Session-Id"), "{answer:?}");
        assert!(names(&answer, "vary", "Origin"), "{answer:?}");
    }
}

#[test]
fn other_pages_get_no_such_headers() {
    let server = serving();
    for origin in
        ["https://evil.example", "null", "http://app.example.com", "https://app.example.com.evil.example"]
    {
        for request in
            [preflight("/mcp", origin), Request::modern("tools/list", json!({})).header("Origin", origin)]
        {
            let answer = server.ask(&request);
            assert_eq!(answer.status, 403, "{origin}: {answer:?}");
            let text = format!("{answer:?}");
            assert!(!text.contains("access-control-allow"), "{origin}: {answer:?}");
        }
    }
    let rebound = server.ask(&preflight("/mcp", PAGE).header("Host", "evil.example"));
    assert_eq!(rebound.status, 403, "{rebound:?}");
    let program = server.ask(&Request::modern("tools/list", json!({})));
    assert_eq!((program.status, program.header("access-control-allow-origin")), (200, None), "{program:?}");
}

#[test]
fn a_page_shows_its_token_as_a_subprotocol_of_a_websocket() {
    let server = serving();
    let page = |protocols: &str| {
        let request = upgrade().without("Authorization").header("Origin", PAGE);
        server.ask(&request.header("Sec-WebSocket-Protocol", protocols))
    };
    let answer = page(&format!("mcp, bearer.{}", server.token));
    assert_eq!((answer.status, answer.header("sec-websocket-protocol")), (101, Some("mcp")), "{answer:?}");
    for wrong in ["mcp", "mcp, bearer.", "mcp, bearer.wrong", "bearer", &server.token] {
        let answer = page(wrong);
        assert_eq!(answer.status, 401, "{wrong}: {answer:?}");
        assert!(!format!("{answer:?}").contains(&server.token), "{answer:?}");
    }
    let elsewhere = Request::get("/metrics").without("Authorization");
    let shown = elsewhere.header("Sec-WebSocket-Protocol", &format!("mcp, bearer.{}", server.token));
    assert_eq!(server.ask(&shown).status, 401, "only a WebSocket may show the token there");
    assert!(!server.log().contains(&server.token));
}
