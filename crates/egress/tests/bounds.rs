//! Bounds: connections, bytes, names, and that every connection is counted.

use egress::Maxima;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{Stage, hello, loopback};

const RULES: [&str; 3] =
    ["a.example:PORT loopback", "raw.example:PORT raw loopback", "*.w.example:PORT loopback"];

async fn stage(maxima: Maxima) -> Stage {
    Stage::with(&RULES, loopback, maxima).await
}

#[tokio::test]
async fn no_more_connections_are_open_than_the_maximum() {
    let stage = stage(Maxima { connections: 2, ..Maxima::default() }).await;
    let one = stage.open("raw.example:PORT").await;
    let _other = stage.open("raw.example:PORT").await;
    assert!(stage.talk("CONNECT raw.example:PORT HTTP/1.1\r\n\r\n").await.contains("connections_limit"));
    drop(one);
    stage.verdict("allowed").await;
    stage.open("raw.example:PORT").await;
}

#[tokio::test]
async fn bytes_beyond_the_maximum_do_not_leave() {
    let stage = stage(Maxima { mb_out: 1, ..Maxima::default() }).await;
    let mut program = stage.open("raw.example:PORT").await;
    let piece = vec![7; 1 << 16];
    let mut sent = 0;
    while program.write_all(&piece).await.is_ok() && sent < 1 << 24 {
        sent += piece.len();
    }
    stage.verdict("bytes_limit").await;
    assert!(stage.origin.received().concat().len() <= 1 << 20);
    assert!(stage.talk("CONNECT raw.example:PORT HTTP/1.1\r\n\r\n").await.contains("bytes_limit"));
}

#[tokio::test]
async fn the_frames_of_chunks_count_as_bytes_that_leave() {
    let rules = ["plain.example:PORT http loopback"];
    let stage = Stage::with(&rules, loopback, Maxima { mb_out: 1, ..Maxima::default() }).await;
    let head = "POST http://plain.example:PORT/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    // One byte of content in six.
    let chunks = "1\r\nx\r\n".repeat(300_000);
    stage.talk(format!("{head}{chunks}0\r\n\r\n")).await;
    stage.verdict("bytes_limit").await;
    assert!(stage.origin.received().concat().len() <= 1 << 20);
}

#[tokio::test]
async fn bytes_beyond_the_maximum_do_not_enter() {
    static LARGE: [u8; 3 << 20] = [9; 3 << 20];
    let (origin, names) =
        (crate::servers::Origin::start(&LARGE).await, crate::servers::Names::start(loopback).await);
    let stage = Stage::over(&RULES, origin, names, Maxima { mb_in: 1, ..Maxima::default() }, None);
    let mut program = stage.open("raw.example:PORT").await;
    program.write_all(b"x").await.unwrap();
    let mut all = Vec::new();
    program.read_to_end(&mut all).await.unwrap();
    assert!(all.len() <= 1 << 20, "{}", all.len());
    stage.verdict("bytes_limit").await;
}

#[tokio::test]
async fn a_wildcard_does_not_give_endless_names() {
    let stage = stage(Maxima::default()).await;
    let mut answers = Vec::new();
    for number in 0..257 {
        let mut program = stage.connect();
        let place = format!("n{number}.w.example:{}", stage.origin.port);
        program.write_all(format!("CONNECT {place} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
        program.write_all(&hello(&["other.example"], 999)).await.ok();
        answers.push(crate::stage::finish(program).await);
    }
    assert!(answers[..256].iter().all(|answer| answer.contains("200")));
    assert!(answers[256].contains("names_limit"), "{}", answers[256]);
    assert_eq!(stage.names.asked().len(), 256);
}

#[tokio::test]
async fn a_connection_whose_run_ends_is_counted() {
    let stage = stage(Maxima::default()).await;
    let session = std::sync::Arc::clone(&stage.session);
    let (mut program, link) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(async move { session.serve_stream(link).await });
    let ask = format!("CONNECT raw.example:{} HTTP/1.1\r\n\r\nhello", stage.origin.port);
    program.write_all(ask.as_bytes()).await.unwrap();
    let mut heard = [0; 39];
    program.read_exact(&mut heard).await.unwrap();
    let mut answer = [0; 2];
    program.read_exact(&mut answer).await.unwrap();
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    let reached = stage.session.reached();
    assert_eq!((reached.len(), reached[0].bytes_out, reached[0].verdict.as_str()), (1, 5, "allowed"));
    assert!(reached[0].bytes_in > 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let stage = stage(Maxima::default()).await;
    let program = stage.open("raw.example:PORT").await;
    let began = tokio::time::Instant::now();
    let (mut reading, _writing) = tokio::io::split(program);
    reading.read_to_end(&mut Vec::new()).await.unwrap();
    assert!((120..=240).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_never_idle_is_closed_when_it_is_too_old() {
    let stage = stage(Maxima::default()).await;
    let mut program = stage.open("raw.example:PORT").await;
    let began = tokio::time::Instant::now();
    while program.write_all(b"x").await.is_ok() && began.elapsed().as_secs() < 3 * 3600 {
        tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    }
    assert!((3600..=3800).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn ten_thousand_connections_leak_nothing() {
    let stage = Stage::with(
        &["p.example:PORT http loopback"],
        loopback,
        Maxima { mb_in: 1 << 20, mb_out: 1 << 20, ..Maxima::default() },
    )
    .await;
    let open = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    stage.talk("GET http://p.example:PORT/ HTTP/1.1\r\n\r\n").await;
    let before = open();
    for _ in 0..10_000 {
        assert!(stage.talk("GET http://p.example:PORT/ HTTP/1.1\r\n\r\n").await.ends_with("ok"));
    }
    for _ in 0..600 {
        if open() <= before {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(open() <= before, "{before} descriptors became {}", open());
    assert_eq!(stage.names.asked(), ["p.example"]);
    assert_eq!(stage.session.reached()[0].connections, 10_001);
}
