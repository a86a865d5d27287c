//! Tunnels: what may be said in one, and to which server.

use tokio::io::AsyncWriteExt;

use crate::stage::{Stage, hello};

const RULES: [&str; 3] =
    ["a.example:PORT loopback", "b.example:PORT loopback", "raw.example:PORT raw loopback"];

/// Sends bytes in a tunnel to an allowed host. The origin must not see any of them.
async fn is_refused(bytes: &[u8], code: &str) {
    let stage = Stage::new(&RULES).await;
    stage.tunnel("a.example:PORT", bytes).await;
    stage.verdict(code).await;
    assert!(stage.origin.received().concat().is_empty(), "{:?}", stage.origin.received());
}

#[tokio::test]
async fn a_hello_for_the_host_passes_whole_and_in_pieces() {
    for record_bytes in [9999, 50, 1] {
        let stage = Stage::new(&RULES).await;
        let bytes = hello(&["A.example"], record_bytes);
        let mut program = stage.open("a.example:PORT").await;
        for piece in bytes.chunks(7) {
            program.write_all(piece).await.unwrap();
            program.flush().await.unwrap();
        }
        program.shutdown().await.unwrap();
        assert!(crate::stage::finish(program).await.ends_with("ok"));
        assert_eq!(stage.origin.received(), [String::from_utf8_lossy(&bytes)]);
    }
}

#[tokio::test]
async fn a_hello_for_another_server_is_refused() {
    is_refused(&hello(&["evil.example"], 9999), "sni_mismatch").await;
}

#[tokio::test]
async fn a_hello_for_another_allowed_server_is_refused() {
    is_refused(&hello(&["b.example"], 9999), "sni_mismatch").await;
}

#[tokio::test]
async fn a_hello_for_another_server_in_many_records_is_refused() {
    is_refused(&hello(&["evil.example"], 1), "sni_mismatch").await;
}

#[tokio::test]
async fn a_hello_without_a_server_is_refused() {
    is_refused(&hello(&[], 9999), "sni_missing").await;
}

#[tokio::test]
async fn a_hello_for_two_servers_is_refused() {
    is_refused(&hello(&["a.example", "evil.example"], 9999), "not_tls").await;
}

#[tokio::test]
async fn a_hello_for_a_name_with_a_nul_or_a_final_dot_is_refused() {
    is_refused(&hello(&["a.example\0.evil.example"], 9999), "sni_mismatch").await;
    is_refused(&hello(&["a.example."], 9999), "sni_mismatch").await;
}

#[tokio::test]
async fn other_protocols_are_refused() {
    for bytes in [
        &b"SSH-2.0-x\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"EHLO x\r\n",
        &[0x80, 0x2e, 1, 3, 1],
        &[22, 3, 1, 0, 0],
        &[23, 3, 3, 0, 1, 0],
    ] {
        is_refused(bytes, "not_tls").await;
    }
}

#[tokio::test]
async fn an_allowed_host_is_no_relay() {
    // A tunnel inside of the tunnel, to a host that is not allowed.
    is_refused(b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n", "not_tls").await;
}

#[tokio::test]
async fn a_pipelined_connect_is_no_second_request() {
    let stage = Stage::new(&RULES).await;
    let one = "CONNECT a.example:PORT HTTP/1.1\r\n\r\n";
    let answer = stage.talk(format!("{one}CONNECT evil.example:443 HTTP/1.1\r\n\r\n")).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    stage.verdict("not_tls").await;
    assert_eq!(stage.names.asked(), ["a.example"]);
    assert!(stage.origin.received().concat().is_empty());
}

#[tokio::test]
async fn a_hello_of_more_than_16_kib_is_refused() {
    let mut bytes = vec![22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc];
    bytes.extend(vec![0; 20_000]);
    is_refused(&bytes, "not_tls").await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_without_a_hello_is_closed_after_10_s() {
    let stage = Stage::new(&RULES).await;
    let program = stage.open("a.example:PORT").await;
    let began = tokio::time::Instant::now();
    crate::stage::finish(program).await;
    assert_eq!(began.elapsed().as_secs(), 10);
    assert_eq!(stage.verdicts(), ["not_tls"]);
}

#[tokio::test]
async fn a_raw_rule_takes_any_bytes() {
    let stage = Stage::new(&RULES).await;
    let heard = stage.tunnel("raw.example:PORT", b"EHLO x\r\n").await;
    assert!(heard.ends_with(b"ok"));
    stage.verdict("allowed").await;
    assert_eq!(stage.origin.received(), ["EHLO x\r\n"]);
}

#[tokio::test]
async fn a_refused_tls_client_gets_an_alert() {
    let stage = Stage::new(&RULES).await;
    let heard = stage.tunnel("a.example:PORT", &hello(&["evil.example"], 9999)).await;
    assert_eq!(heard, [21, 3, 3, 0, 2, 2, 49]);
}

#[tokio::test]
async fn records_of_other_kinds_before_or_inside_of_a_hello_are_refused() {
    let whole = hello(&["a.example"], 9999);
    let halves = hello(&["a.example"], 60);
    let (one, rest) = halves.split_at(65);
    let (alert, change) = ([21, 3, 1, 0, 2, 1, 0], [20, 3, 1, 0, 1, 1]);
    let (data, empty) = ([23, 3, 1, 0, 1, 0], [22, 3, 1, 0, 0]);
    for other in [&alert[..], &change, &data, &empty] {
        is_refused(&[other, &whole].concat(), "not_tls").await;
        is_refused(&[one, other, rest].concat(), "not_tls").await;
    }
}

#[tokio::test]
async fn a_server_name_of_another_type_is_refused() {
    let mut bytes = hello(&["a.example"], 9999);
    let at = bytes.windows(9).position(|part| part == b"a.example").unwrap();
    bytes[at - 3] = 1;
    is_refused(&bytes, "not_tls").await;
}

#[tokio::test]
async fn a_hello_in_the_form_of_ssl_2_is_refused() {
    let old = [&[0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10][..], &[7; 37]].concat();
    is_refused(&old, "not_tls").await;
}

#[tokio::test]
async fn a_server_name_that_is_an_address_or_unicode_is_refused() {
    for name in ["127.0.0.1", "[::1]", "a.example:443", "\u{ff41}.example", "a\u{3002}example", ""] {
        let stage = Stage::new(&RULES).await;
        stage.tunnel("a.example:PORT", &hello(&[name], 9999)).await;
        let verdicts = stage.verdicts();
        assert!(
            verdicts.iter().all(|verdict| ["sni_mismatch", "not_tls"].contains(&verdict.as_str())),
            "{name}"
        );
        assert!(!verdicts.is_empty() && stage.origin.received().concat().is_empty(), "{name}");
    }
}
