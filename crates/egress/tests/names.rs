//! Names and addresses: what is looked up, what is dialled, and what never is.

use std::net::IpAddr;

use egress::{Maxima, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::servers::{Names, Origin};
use crate::stage::{ANSWER, Stage, hello, loopback};

async fn is_refused_by_address(answer: fn(&str, usize) -> Vec<IpAddr>, word: &str) {
    let stage = Stage::with(&[&format!("a.example:PORT{word}")], answer, Maxima::default()).await;
    stage.is_refused("CONNECT a.example:PORT HTTP/1.1\r\n\r\n", "address_denied").await;
    assert_eq!(stage.names.asked(), ["a.example"]);
}

#[tokio::test]
async fn a_host_that_is_not_allowed_is_not_looked_up() {
    let stage =
        Stage::new(&["a.example:PORT loopback", "p.example:PORT http loopback", "*.w.example:PORT loopback"])
            .await;
    for place in [
        "b.example:PORT",
        "a.example:1",
        "a.example.evil.net:PORT",
        "xa.example:PORT",
        "w.example:PORT",
        "xw.example:PORT",
    ] {
        stage.is_refused(&format!("CONNECT {place} HTTP/1.1\r\n\r\n"), "host_denied").await;
        stage.is_refused(&format!("GET http://{place}/ HTTP/1.1\r\n\r\n"), "host_denied").await;
    }
    stage.is_refused("GET http://secret-data.evil.example/ HTTP/1.1\r\n\r\n", "host_denied").await;
    stage.is_refused("GET http://a.example:PORT/ HTTP/1.1\r\n\r\n", "protocol_denied").await;
    stage.is_refused("CONNECT p.example:PORT HTTP/1.1\r\n\r\n", "protocol_denied").await;
    assert!(stage.names.asked().is_empty(), "{:?}", stage.names.asked());
}

#[tokio::test]
async fn a_name_that_changes_its_address_keeps_the_first_one() {
    fn rebinds(_: &str, times: usize) -> Vec<IpAddr> {
        vec![if times == 0 { "127.0.0.1" } else { "169.254.169.254" }.parse().unwrap()]
    }
    let stage = Stage::with(&["a.example:PORT loopback"], rebinds, Maxima::default()).await;
    for _ in 0..3 {
        assert!(!stage.tunnel("a.example:PORT", &hello(&["a.example"], 999)).await.is_empty());
    }
    assert_eq!(stage.names.asked(), ["a.example"]);
    assert_eq!(stage.origin.received().len(), 3);
}

#[tokio::test]
async fn a_name_with_a_loopback_address_is_refused() {
    is_refused_by_address(loopback, "").await;
}

#[tokio::test]
async fn a_name_with_a_loopback_address_is_refused_where_private_ones_are_allowed() {
    is_refused_by_address(loopback, " private").await;
}

#[tokio::test]
async fn a_name_with_a_private_address_is_refused() {
    is_refused_by_address(|_, _| vec!["10.0.0.1".parse().unwrap()], "").await;
}

#[tokio::test]
async fn a_name_with_the_metadata_address_is_refused() {
    is_refused_by_address(|_, _| vec!["169.254.169.254".parse().unwrap()], " private").await;
}

#[tokio::test]
async fn a_name_with_a_metadata_address_of_ipv6_is_refused_where_private_ones_are_allowed() {
    is_refused_by_address(|_, _| vec!["fd00:ec2::254".parse().unwrap()], " private").await;
    is_refused_by_address(|_, _| vec!["fd20:ce::254".parse().unwrap()], " private").await;
    is_refused_by_address(|_, _| vec!["fd00:c1::a9fe:a9fe".parse().unwrap()], " private").await;
}

#[tokio::test]
async fn a_name_with_a_carriers_address_is_refused() {
    is_refused_by_address(|_, _| vec!["100.64.0.1".parse().unwrap()], " private").await;
}

#[tokio::test]
async fn a_name_with_the_unspecified_address_is_refused() {
    is_refused_by_address(|_, _| vec!["0.0.0.0".parse().unwrap(), "::".parse().unwrap()], " loopback").await;
}

#[tokio::test]
async fn a_name_with_a_mapped_ipv6_address_is_refused() {
    is_refused_by_address(|_, _| vec!["::ffff:127.0.0.1".parse().unwrap()], " loopback").await;
}

#[tokio::test]
async fn a_name_with_a_translated_ipv6_address_is_refused() {
    is_refused_by_address(
        |_, _| vec!["64:ff9b::7f00:1".parse().unwrap(), "2002:7f00:1::".parse().unwrap()],
        " loopback",
    )
    .await;
}

#[tokio::test]
async fn of_several_addresses_only_checked_ones_are_dialled() {
    fn mixed(_: &str, _: usize) -> Vec<IpAddr> {
        ["169.254.169.254", "10.0.0.1", "127.0.0.1"].map(|text| text.parse().unwrap()).to_vec()
    }
    let stage = Stage::with(&["a.example:PORT loopback"], mixed, Maxima::default()).await;
    stage.tunnel("a.example:PORT", &hello(&["a.example"], 999)).await;
    stage.verdict("allowed").await;
    assert_eq!(stage.session.reached()[0].address.as_deref(), Some("127.0.0.1"));
}

#[tokio::test]
async fn a_name_without_an_address_is_refused() {
    let stage = Stage::with(&["a.example:PORT loopback"], |_, _| Vec::new(), Maxima::default()).await;
    stage.is_refused("CONNECT a.example:PORT HTTP/1.1\r\n\r\n", "name_unresolved").await;
}

#[tokio::test]
async fn every_ipv6_form_of_an_ipv4_address_is_refused() {
    for form in [
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b:1::127.0.0.1",
        "2002:7f00:1::1",
        "2001:0:7f00:1::",
        "2001:db8::5efe:7f00:1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "fd00:ec2::254",
    ] {
        let stage = Stage::new(&["a.example:PORT private"]).await;
        let place = format!("CONNECT [{form}]:PORT HTTP/1.1\r\n\r\n");
        stage.is_refused(&place, "host_denied").await;
        assert!(format!("[{form}]:443 private").parse::<egress::Rule>().is_err(), "{form}");
    }
}

#[tokio::test]
async fn numbers_that_resolvers_read_as_addresses_are_refused() {
    let stage = Stage::new(&["127.0.0.1:PORT loopback"]).await;
    for host in
        ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.01", "127.0.0.1.", "①27.0.0.1", "0x7f.1"]
    {
        stage.is_refused(&format!("CONNECT {host}:PORT HTTP/1.1\r\n\r\n"), "bad_host").await;
    }
    assert!(stage.names.asked().is_empty());
}

#[tokio::test]
async fn addresses_that_are_not_listed_are_refused() {
    let stage = Stage::new(&["a.example:PORT loopback"]).await;
    for host in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"] {
        stage.is_refused(&format!("CONNECT {host}:PORT HTTP/1.1\r\n\r\n"), "host_denied").await;
    }
}

#[tokio::test]
async fn users_zones_escapes_and_final_dots_are_refused() {
    let stage = Stage::new(&["a.example:PORT loopback"]).await;
    for host in [
        "user@a.example",
        "a.example.",
        "a%2eexample",
        "[fe80::1%25lo]",
        "a.example%00",
        "a.example\\@evil.example",
    ] {
        let answer = stage.talk(format!("CONNECT {host}:PORT HTTP/1.1\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403 Palisade: bad_"), "{host}: {answer}");
    }
    assert!(stage.names.asked().is_empty() && stage.origin.received().is_empty());
}

#[tokio::test]
async fn a_name_in_other_letters_is_the_same_name() {
    let stage = Stage::new(&["bücher.example:PORT loopback"]).await;
    for host in ["xn--bcher-kva.example", "BÜCHER.example", "XN--BCHER-KVA.EXAMPLE"] {
        stage.tunnel(&format!("{host}:PORT"), &hello(&["xn--bcher-kva.example"], 999)).await;
    }
    assert_eq!((stage.names.asked().len(), stage.origin.received().len()), (1, 3));
    // A Cyrillic letter looks the same and is another name.
    stage.talk("CONNECT b\u{fc}\u{441}her.example:PORT HTTP/1.1\r\n\r\n").await;
    assert_eq!(stage.names.asked().len(), 1);
}

#[tokio::test]
async fn an_upstream_proxy_gets_the_name_and_only_allowed_ones() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy: Upstream =
        format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port()).parse().unwrap();
    let (origin, names) = (Origin::start(ANSWER).await, Names::start(loopback).await);
    let stage = Stage::over(&["a.example:443"], origin, names, Maxima::default(), Some(proxy));
    stage.is_refused("CONNECT b.example:443 HTTP/1.1\r\n\r\n", "host_denied").await;
    let serve = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let count = stream.read(&mut head).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nfrom the tunnel").await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0, "nothing came through the tunnel");
        String::from_utf8_lossy(&head[..count]).into_owned()
    });
    let heard = stage.tunnel("a.example:443", &hello(&["a.example"], 999)).await;
    assert_eq!(String::from_utf8_lossy(&heard), "from the tunnel");
    assert!(serve.await.unwrap().starts_with("CONNECT a.example:443 HTTP/1.1\r\n"));
    assert!(stage.names.asked().is_empty());
}
