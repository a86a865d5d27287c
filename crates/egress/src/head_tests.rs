//! Tests of heads: what is accepted, what is refused, and what an origin gets.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Head, Refusal> {
    Head::parse(text.as_bytes())
}

fn rewritten(text: &str) -> String {
    let head = parse(text).unwrap();
    let Ask::Plain(plain) = &head.ask else { panic!("{head:?}") };
    String::from_utf8(head.rewritten(plain)).unwrap()
}

#[test]
fn a_tunnel_is_asked_for_with_and_without_a_host_field() {
    for text in [
        "CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\nUser-Agent: curl/8\r\n\r\n",
        "CONNECT API.example:443 HTTP/1.0\r\n\r\n",
        "CONNECT api.example:443 HTTP/1.1\r\nHost: api.example\r\nProxy-Connection: Keep-Alive\r\n\r\n",
    ] {
        let head = parse(text).unwrap();
        assert_eq!((head.host.to_string().as_str(), head.port, head.ask), ("api.example", 443, Ask::Connect));
    }
}

#[test]
fn a_plain_request_is_written_anew() {
    let text = "GET http://Plain.example/a?b=c HTTP/1.1\r\nhost: plain.example\r\nAccept:  */* \r\nProxy-Authorization: Basic x\r\n\
                Connection: keep-alive, X-Drop\r\nX-Drop: 1\r\nUpgrade: h2c\r\nProxy-Connection: keep-alive\r\n\r\n";
    let expected = "GET /a?b=c HTTP/1.1\r\nHost: plain.example\r\nConnection: close\r\naccept: */*\r\n\r\n";
    assert_eq!(rewritten(text), expected);
    let text = "POST HTTP://plain.example:8080?q HTTP/1.1\r\nContent-Length: 3\r\nConnection: content-length\r\n\r\n";
    let expected =
        "POST /?q HTTP/1.1\r\nHost: plain.example:8080\r\nConnection: close\r\ncontent-length: 3\r\n\r\n";
    assert_eq!(rewritten(text), expected);
    let text = "PUT http://plain.example/ HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n";
    assert!(rewritten(text).ends_with("Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"));
}

#[test]
fn two_hosts_and_a_foreign_host_are_refused() {
    for text in [
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: b.example\r\n\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:80\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost:\r\n\r\n",
    ] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn folded_and_split_fields_are_refused() {
    for text in [
        "GET http://a.example/ HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\n\tX: a\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nX : a\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nX\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\n: a\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nX: a\nY: b\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nX: a\rY: b\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\nX: a\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nX: a\0b\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHo\u{17f}t: a\r\n\r\n",
    ] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_length_beside_a_transfer_coding_is_refused() {
    for fields in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: 3, 3",
        "Content-Length: +3",
        "Content-Length: -1",
        "Content-Length: 0x3",
        "Content-Length:",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: \u{b}chunked",
    ] {
        assert!(parse(&format!("POST http://a.example/ HTTP/1.1\r\n{fields}\r\n\r\n")).is_err(), "{fields}");
    }
    assert!(parse("POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    assert!(parse("CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 3\r\n\r\n").is_err());
}

#[test]
fn other_forms_of_targets_are_refused() {
    for line in [
        "GET / HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET https://a.example/ HTTP/1.1",
        "GET ftp://a.example/ HTTP/1.1",
        "GET //a.example/ HTTP/1.1",
        "GET http:a.example HTTP/1.1",
        "GET http://user@a.example/ HTTP/1.1",
        "GET http://user:pass@a.example/ HTTP/1.1",
        "GET http://a.example:80:80/ HTTP/1.1",
        "GET http://a.example:/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http://a.example/#f HTTP/1.1",
        "GET http://a.example\\@b.example/ HTTP/1.1",
        "GET http://a.example/ HTTP/2",
        "GET http://a.example/ HTTP/1.1 x",
        "GET  http://a.example/ HTTP/1.1",
        " GET http://a.example/ HTTP/1.1",
        "GET http://a.example/ http/1.1",
        "G\tET http://a.example/ HTTP/1.1",
        "CONNECT a.example HTTP/1.1",
        "CONNECT http://a.example:443 HTTP/1.1",
        "CONNECT a.example:443/ HTTP/1.1",
        "CONNECT user@a.example:443 HTTP/1.1",
        "CONNECT a.example.:443 HTTP/1.1",
        "CONNECT a.example%00:443 HTTP/1.1",
        "CONNECT 2130706433:443 HTTP/1.1",
        "CONNECT ::1:443 HTTP/1.1",
        "CONNECT [::1%25lo]:443 HTTP/1.1",
        "connect a.example:443 HTTP/1.1",
        "",
    ] {
        assert!(parse(&format!("{line}\r\n\r\n")).is_err(), "{line}");
    }
}

proptest! {
    #![proptest_config(harness::properties())]

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in vec(any::<u8>(), 0..400)) {
        let mut text = bytes.clone();
        text.extend_from_slice(b"\r\n\r\n");
        Head::parse(&bytes).ok();
        Head::parse(&text).ok();
    }

    #[test]
    fn what_is_written_anew_is_one_request(
        value in "[ -~]{0,30}",
        path in "/[!-~&&[^#]]{0,30}",
        name in "[A-Za-z-]{1,12}",
    ) {
        let text = format!("GET http://a.example{path} HTTP/1.1\r\n{name}: {value}\r\n\r\n");
        if let Ok(head) = parse(&text) && let Ask::Plain(plain) = &head.ask {
            let written = head.rewritten(plain);
            prop_assert_eq!(end_of_head(&written), Some(written.len()));
            let text = String::from_utf8_lossy(&written).into_owned();
            prop_assert_eq!(text.matches("Host: ").count(), 1);
            prop_assert_eq!(text.matches("\r\n").count(), text.matches('\n').count());
        }
    }
}
