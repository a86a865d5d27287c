//! Replies of a resolver that do not fit a packet, and what it may send over TCP then.

use egress::Maxima;
use tokio::time::Instant;

use crate::servers::{Lying, Names, Origin};
use crate::stage::{ANSWER, Stage, hello, loopback};

async fn stage(lie: Lying) -> Stage {
    let (origin, names) = (Origin::start(ANSWER).await, Names::truncating(loopback, lie).await);
    Stage::over(&["a.example:PORT loopback"], origin, names, Maxima::default(), None)
}

/// A resolver that says this has given no address. The program hears so, within the time of one look-up.
async fn is_no_answer(lie: Lying) {
    let stage = stage(lie).await;
    let began = Instant::now();
    stage.is_refused("CONNECT a.example:PORT HTTP/1.1\r\n\r\n", "name_unresolved").await;
    assert!(began.elapsed().as_secs() <= 11, "{:?}", began.elapsed());
    // A question is asked three times, and nothing else is asked for.
    assert!((1..=3).contains(&stage.names.asked().len()), "{:?}", stage.names.asked());
}

#[tokio::test]
async fn a_reply_that_does_not_fit_a_packet_is_asked_for_over_tcp() {
    let stage = stage(|honest| honest).await;
    assert!(!stage.tunnel("a.example:PORT", &hello(&["a.example"], 999)).await.is_empty());
    stage.verdict("allowed").await;
    assert_eq!(stage.names.asked(), ["a.example"]);
}

#[tokio::test]
async fn bytes_behind_a_reply_over_tcp_are_not_read() {
    let stage = stage(|honest| [honest.clone(), honest].concat()).await;
    assert!(!stage.tunnel("a.example:PORT", &hello(&["a.example"], 999)).await.is_empty());
}

#[tokio::test]
async fn a_reply_over_tcp_with_another_number_is_no_answer() {
    is_no_answer(|mut honest| {
        honest[2] ^= 0xff;
        honest
    })
    .await;
}

#[tokio::test]
async fn a_reply_over_tcp_to_another_question_is_no_answer() {
    is_no_answer(|mut honest| {
        // The first letter of the name.
        honest[15] = b'b';
        honest
    })
    .await;
}

#[tokio::test]
async fn a_reply_over_tcp_that_is_truncated_again_is_no_answer() {
    is_no_answer(|mut honest| {
        honest[4] |= 2;
        honest
    })
    .await;
}

#[tokio::test]
async fn a_reply_over_tcp_of_no_length_is_no_answer() {
    is_no_answer(|_| vec![0, 0]).await;
}

#[tokio::test]
async fn a_reply_over_tcp_shorter_than_its_records_is_no_answer() {
    is_no_answer(|mut honest| {
        // The stream has the whole record, and the length says that it has not.
        honest[1] -= 3;
        honest
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_over_tcp_that_is_longer_than_what_comes_is_no_answer() {
    is_no_answer(|mut honest| {
        honest[0] = 0xff;
        honest
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_says_nothing_over_tcp_delays_a_program_by_ten_seconds_at_most() {
    is_no_answer(|_| Vec::new()).await;
}

#[tokio::test]
async fn a_look_up_over_tcp_does_not_outlive_its_program() {
    let stage = stage(|_| Vec::new()).await;
    let session = std::sync::Arc::clone(&stage.session);
    let (mut program, link) = tokio::io::duplex(1 << 12);
    let serving = tokio::spawn(async move { session.serve_stream(link).await });
    let ask = format!("CONNECT a.example:{} HTTP/1.1\r\n\r\n", stage.origin.port);
    tokio::io::AsyncWriteExt::write_all(&mut program, ask.as_bytes()).await.unwrap();
    while stage.names.asked().is_empty() {
        tokio::task::yield_now().await;
    }
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    assert!(stage.origin.received().is_empty());
}
