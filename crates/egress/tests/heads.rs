//! Heads that two readers could understand differently.

use tokio::io::AsyncWriteExt;

use crate::stage::{Stage, finish};

const RULES: [&str; 2] = ["plain.example:PORT http loopback", "tls.example:PORT loopback"];

async fn is_bad(request: &str) {
    Stage::new(&RULES).await.is_refused(request, "bad_request").await;
}

#[tokio::test]
async fn an_ordinary_request_reaches_its_origin() {
    let stage = Stage::new(&RULES).await;
    let answer = stage
        .talk("GET http://plain.example:PORT/x HTTP/1.1\r\nHost: plain.example:PORT\r\nA: b\r\n\r\n")
        .await;
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    stage.verdict("allowed").await;
    let port = stage.origin.port;
    let expected =
        format!("GET /x HTTP/1.1\r\nHost: plain.example:{port}\r\nConnection: close\r\na: b\r\n\r\n");
    assert_eq!(stage.origin.received(), [expected]);
}

#[tokio::test]
async fn a_head_in_single_bytes_is_read() {
    let stage = Stage::new(&RULES).await;
    let mut program = stage.connect();
    let request = format!("GET http://plain.example:{}/ HTTP/1.1\r\n\r\n", stage.origin.port);
    for byte in request.bytes() {
        program.write_all(&[byte]).await.unwrap();
        program.flush().await.unwrap();
    }
    assert!(finish(program).await.ends_with("ok"));
}

#[tokio::test]
async fn a_folded_field_is_refused() {
    is_bad("GET http://plain.example:PORT/ HTTP/1.1\r\nX: a\r\n Host: evil.example\r\n\r\n").await;
}

#[tokio::test]
async fn a_bare_line_feed_is_refused() {
    is_bad("GET http://plain.example:PORT/ HTTP/1.1\r\nX: a\nHost: evil.example\r\n\r\n").await;
}

#[tokio::test]
async fn a_nul_in_a_field_is_refused() {
    is_bad("GET http://plain.example:PORT/ HTTP/1.1\r\nX: a\0b\r\n\r\n").await;
}

#[tokio::test]
async fn white_space_before_a_colon_is_refused() {
    is_bad("POST http://plain.example:PORT/ HTTP/1.1\r\nTransfer-Encoding : chunked\r\nContent-Length: 1\r\n\r\nx").await;
}

#[tokio::test]
async fn two_hosts_are_refused() {
    is_bad("CONNECT tls.example:PORT HTTP/1.1\r\nHost: tls.example\r\nHost: tls.example\r\n\r\n").await;
}

#[tokio::test]
async fn a_host_that_differs_from_the_target_is_refused() {
    let stage = Stage::new(&RULES).await;
    let request = "GET http://plain.example:PORT/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    stage.is_refused(request, "host_mismatch").await;
    assert!(stage.names.asked().is_empty());
}

#[tokio::test]
async fn a_length_beside_a_transfer_coding_is_refused() {
    is_bad("POST http://plain.example:PORT/ HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn two_lengths_are_refused() {
    is_bad("POST http://plain.example:PORT/ HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 30\r\n\r\nabc")
        .await;
}

#[tokio::test]
async fn another_transfer_coding_is_refused() {
    is_bad("POST http://plain.example:PORT/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n").await;
}

#[tokio::test]
async fn a_path_without_a_host_is_refused() {
    is_bad("GET / HTTP/1.1\r\nHost: plain.example\r\n\r\n").await;
}

#[tokio::test]
async fn an_https_address_without_a_tunnel_is_refused() {
    is_bad("GET https://tls.example/ HTTP/1.1\r\n\r\n").await;
}

#[tokio::test]
async fn a_head_of_more_than_8_kib_is_refused() {
    let stage = Stage::new(&RULES).await;
    let request = format!("GET http://plain.example:PORT/ HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(9000));
    stage.is_refused(&request, "head_too_long").await;
    let stage = Stage::new(&RULES).await;
    stage.is_refused(&"A".repeat(20_000), "head_too_long").await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_is_refused_after_10_s() {
    let stage = Stage::new(&RULES).await;
    let mut program = stage.connect();
    program.write_all(b"GET http://plain.example/ HTTP/1.1\r\nX: ").await.unwrap();
    let began = tokio::time::Instant::now();
    assert!(finish(program).await.contains("head_too_slow"));
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn a_second_request_on_a_connection_is_not_passed_on() {
    let stage = Stage::new(&RULES).await;
    let one = "GET http://plain.example:PORT/first HTTP/1.1\r\n\r\n";
    let answer = stage.talk(format!("{one}GET http://evil.example/second HTTP/1.1\r\n\r\n")).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    stage.verdict("allowed").await;
    let received = stage.origin.received();
    assert!(
        received.len() == 1 && received[0].starts_with("GET /first") && !received[0].contains("second"),
        "{received:?}"
    );
    assert_eq!(stage.names.asked(), ["plain.example"]);
}

#[tokio::test]
async fn what_follows_a_body_is_not_passed_on() {
    let stage = Stage::new(&RULES).await;
    let request = "POST http://plain.example:PORT/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /smuggled HTTP/1.1\r\n\r\n";
    stage.talk(request).await;
    stage.verdict("allowed").await;
    let received = stage.origin.received().concat();
    assert!(received.ends_with("\r\n\r\nabc") && !received.contains("smuggled"), "{received}");
}

#[tokio::test]
async fn chunks_are_written_anew_and_their_end_is_the_end() {
    let stage = Stage::new(&RULES).await;
    let head = "POST http://plain.example:PORT/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    stage.talk(format!("{head}003\r\nabc\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")).await;
    stage.verdict("allowed").await;
    let received = stage.origin.received().concat();
    assert!(received.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "{received}");
    for body in [
        "3;x=y\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "-1\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\n",
    ] {
        let stage = Stage::new(&RULES).await;
        stage.talk(format!("{head}{body}")).await;
        let received = stage.origin.received().concat();
        assert!(!received.contains(";x=y") && !received.ends_with("0\r\n\r\n"), "{body:?}: {received}");
    }
}

#[tokio::test]
async fn fields_for_the_proxy_do_not_reach_the_origin() {
    let stage = Stage::new(&RULES).await;
    let fields =
        "Proxy-Authorization: Basic x\r\nConnection: X-Own\r\nX-Own: 1\r\nUpgrade: h2c\r\nTE: trailers";
    stage.talk(format!("GET http://plain.example:PORT/ HTTP/1.1\r\n{fields}\r\n\r\n")).await;
    stage.verdict("allowed").await;
    let received = stage.origin.received().concat().to_lowercase();
    for field in ["proxy-", "x-own", "upgrade", "te:"] {
        assert!(!received.contains(field), "{field}: {received}");
    }
}

#[tokio::test]
async fn a_tunnel_with_a_body_or_in_another_form_is_refused() {
    for line in [
        "CONNECT tls.example:PORT HTTP/1.1\r\nContent-Length: 5",
        "CONNECT tls.example:PORT HTTP/1.1\r\nTransfer-Encoding: chunked",
        "CONNECT tls.example:PORT HTTP/2.0",
        "CONNECT  tls.example:PORT HTTP/1.1",
        "CONNECT\ttls.example:PORT HTTP/1.1",
        "CONNECT tls.example:PORT HTTP/1.1 ",
        "CONNECT http://tls.example:PORT/ HTTP/1.1",
        "CONNECT tls.example HTTP/1.1",
        "connect tls.example:PORT HTTP/1.1",
        "\r\nCONNECT tls.example:PORT HTTP/1.1",
    ] {
        is_bad(&format!("{line}\r\n\r\n")).await;
    }
}

#[tokio::test]
async fn a_length_in_another_notation_is_refused() {
    for length in ["+3", "-0", "0x3", "3, 3", "3 3", "3.0", "\u{663}", "9999999999999999999", ""] {
        let head = "POST http://plain.example:PORT/ HTTP/1.1";
        is_bad(&format!("{head}\r\nContent-Length: {length}\r\n\r\nabc")).await;
    }
    for (version, coding) in
        [("1.1", "\"chunked\""), ("1.1", "chunked, identity"), ("1.1", "xchunked"), ("1.0", "chunked")]
    {
        let head = format!("POST http://plain.example:PORT/ HTTP/{version}");
        is_bad(&format!("{head}\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n")).await;
    }
}

#[tokio::test]
async fn an_authority_that_two_readers_split_differently_is_refused() {
    for (address, code) in [
        ("http://plain.example:PORT\\@evil.example/", "bad_request"),
        ("http://evil.example\\@plain.example:PORT/", "bad_host"),
        ("http://plain.example:PORT@evil.example/", "bad_request"),
        ("http://evil.example:80@plain.example:PORT/", "bad_host"),
        ("http://plain.example:PORT:80/", "bad_host"),
        ("http://plain.example;evil.example:PORT/", "bad_host"),
        ("http://plain.example%2f.evil.example:PORT/", "bad_host"),
        ("http:/plain.example:PORT/", "bad_request"),
        ("http:\\\\plain.example:PORT/", "bad_request"),
        ("http:///plain.example:PORT/", "bad_host"),
        ("http://plain.example:PORT#@evil.example/", "bad_request"),
    ] {
        let stage = Stage::new(&RULES).await;
        stage.is_refused(&format!("GET {address} HTTP/1.1\r\n\r\n"), code).await;
        assert!(stage.names.asked().is_empty(), "{address}");
    }
}

#[tokio::test]
async fn the_fields_that_frame_a_request_cannot_be_named_as_options_of_a_connection() {
    let stage = Stage::new(&RULES).await;
    let options = "Connection: close, content-length, host, transfer-encoding";
    let head = "POST http://plain.example:PORT/ HTTP/1.1\r\nContent-Length: 3";
    stage.talk(format!("{head}\r\n{options}\r\n\r\nabc")).await;
    stage.verdict("allowed").await;
    let received = stage.origin.received().concat();
    let host = format!("Host: plain.example:{}\r\n", stage.origin.port);
    assert!(received.contains(&host) && received.contains("content-length: 3\r\n"), "{received}");
    assert_eq!(received.matches("onnection:").count(), 1, "{received}");
}
