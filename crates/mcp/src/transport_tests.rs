//! The transport against peers that misbehave.

use super::*;
use rmcp::model::{EmptyResult, ServerResult};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

type Server = Lines<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

fn pair() -> (Server, DuplexStream, watch::Receiver<Option<Stop>>) {
    let (ours, theirs) = duplex(1 << 20);
    let (read, write) = split(ours);
    let (ending, ended) = watch::channel(None);
    (Lines::new(read, write, ending, || false), theirs, ended)
}

async fn say(peer: &mut DuplexStream, line: &str) {
    peer.write_all(line.as_bytes()).await.unwrap();
    peer.write_all(b"\n").await.unwrap();
}

async fn answer(peer: &mut DuplexStream) -> Value {
    let mut line = Vec::new();
    loop {
        match peer.read_u8().await.unwrap() {
            b'\n' => return serde_json::from_slice(&line).unwrap(),
            byte => line.push(byte),
        }
    }
}

fn id_of(message: &Incoming) -> Option<RequestId> {
    match message {
        JsonRpcMessage::Request(asked) => Some(asked.id.clone()),
        _ => None,
    }
}

fn empty(id: RequestId) -> Outgoing {
    JsonRpcMessage::response(ServerResult::EmptyResult(EmptyResult {}), id)
}

#[tokio::test]
async fn garbage_is_answered_and_the_next_line_read() {
    let (mut server, mut peer, _ended) = pair();
    say(&mut peer, "not json").await;
    say(&mut peer, "\u{feff}").await;
    peer.write_all(b"\xff\xfe\n").await.unwrap();
    say(&mut peer, "[1,2]").await;
    say(&mut peer, r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[[[[["#).await;
    say(&mut peer, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    say(&mut peer, INITIALIZE).await;
    let message = server.receive().await.unwrap();
    assert_eq!(
        id_of(&message),
        Some(RequestId::Number(0)),
        "a notification before the first request was passed on"
    );
    for (id, code) in
        [(json!(null), -32700), (json!(null), -32700), (json!(null), -32600), (json!(5), -32700)]
    {
        let error = answer(&mut peer).await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&id, &json!(code)), "{error}");
        assert!(error.as_object().unwrap().contains_key("id"), "{error}");
    }
}

#[tokio::test]
async fn an_id_in_use_is_refused_until_it_is_answered() {
    let (mut server, mut peer, _ended) = pair();
    say(&mut peer, INITIALIZE).await;
    say(&mut peer, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    say(&mut peer, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    say(&mut peer, r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await;
    server.receive().await.unwrap();
    server.receive().await.unwrap();
    assert_eq!(id_of(&server.receive().await.unwrap()), Some(RequestId::Number(2)));
    assert_eq!(answer(&mut peer).await["error"]["code"], -32600);
    server.send(empty(RequestId::Number(1))).await.unwrap();
    say(&mut peer, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    assert_eq!(id_of(&server.receive().await.unwrap()), Some(RequestId::Number(1)));
}

#[tokio::test]
async fn a_line_without_end_is_thrown_away_and_its_sender_told() {
    let (mut server, mut peer, _ended) = pair();
    let sender = tokio::spawn(async move {
        peer.write_all(br#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":""#).await.unwrap();
        for _ in 0..(LINE_BYTES_MAX >> 20) + 1 {
            peer.write_all(&vec![b'x'; 1 << 20]).await.unwrap();
        }
        say(&mut peer, "").await;
        say(&mut peer, INITIALIZE).await;
        answer(&mut peer).await
    });
    assert_eq!(id_of(&server.receive().await.unwrap()), Some(RequestId::Number(0)));
    assert!(server.line.capacity() <= LINE_BYTES_KEPT);
    let told = sender.await.unwrap();
    assert_eq!((&told["id"], &told["error"]["code"]), (&json!(9), &json!(-32600)));
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_not_read_either() {
    let (mut server, mut peer, _ended) = pair();
    say(&mut peer, INITIALIZE).await;
    server.receive().await.unwrap();
    let large = ErrorData::internal_error("x".repeat(UNSENT_BYTES_MAX), None);
    let sending = tokio::spawn(server.send(JsonRpcMessage::error(large, Some(RequestId::Number(0)))));
    say(&mut peer, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    let waits = tokio::time::timeout(Duration::from_millis(50), server.receive()).await;
    assert!(waits.is_err(), "a message was taken while its peer did not read");
    let reader = tokio::spawn(async move {
        answer(&mut peer).await;
        peer
    });
    assert_eq!(id_of(&server.receive().await.unwrap()), Some(RequestId::Number(1)));
    sending.await.unwrap().unwrap();
    reader.await.unwrap();
}

#[tokio::test]
async fn a_peer_that_does_not_read_and_hangs_up_is_noticed() {
    let (mut server, mut peer, ended) = pair();
    server.has_hung_up = || true;
    say(&mut peer, INITIALIZE).await;
    server.receive().await.unwrap();
    let large = ErrorData::internal_error("x".repeat(UNSENT_BYTES_MAX), None);
    let sending = tokio::spawn(server.send(JsonRpcMessage::error(large, None)));
    assert!(server.receive().await.is_none());
    assert_eq!(*ended.borrow(), Some(Stop::Cancelled));
    sending.abort();
}

#[tokio::test]
async fn the_end_of_the_stream_is_told_at_once() {
    let (mut server, peer, ended) = pair();
    drop(peer);
    assert!(server.receive().await.is_none());
    assert_eq!(*ended.borrow(), Some(Stop::Cancelled));
}

#[tokio::test]
async fn a_peer_that_cannot_be_written_to_ends_everything() {
    let (mut server, peer, ended) = pair();
    drop(peer);
    server.send(empty(RequestId::Number(1))).await.unwrap_err();
    assert_eq!(*ended.borrow(), Some(Stop::Cancelled));
}

#[tokio::test]
async fn a_call_with_arguments_of_another_type_reaches_the_tool_with_the_complaint() {
    let (mut server, mut peer, _ended) = pair();
    say(&mut peer, INITIALIZE).await;
    server.receive().await.unwrap();
    say(
        &mut peer,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run","arguments":[1]}}"#,
    )
    .await;
    let JsonRpcMessage::Request(asked) = server.receive().await.unwrap() else { panic!("a request") };
    let ClientRequest::CallToolRequest(call) = asked.request else { panic!("a call") };
    assert_eq!(call.params.arguments, Some(serde_json::Map::new()));
    assert!(call.extensions.get::<crate::message::IllTypedArguments>().is_some());
}
