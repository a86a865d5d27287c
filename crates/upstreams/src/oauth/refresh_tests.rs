//! Refreshes of tokens with a token endpoint that the test plays.

use std::sync::Arc;
use std::time::Duration;

use policy::Principal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::tokens::Granted;
use super::{Credential, TokenStore};
use crate::tls::Dialer;

const URL: &str = "http://127.0.0.1:1/mcp";

fn granted(token_endpoint: String) -> Granted {
    Granted {
        url: URL.to_owned(),
        resource: URL.to_owned(),
        token_endpoint,
        client_id: "c".to_owned(),
        access_token: "access-1".to_owned(),
        refresh_token: Some("refresh-1".to_owned()),
        expires_s: None,
        scope: String::new(),
    }
}

async fn reply(stream: &mut tokio::net::TcpStream) {
    let body = r#"{"access_token":"access-2","refresh_token":"refresh-2","token_type":"Bearer"}"#;
    let length = body.len();
    let reply = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(reply.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_refresh_that_its_caller_gave_up_is_kept() {
    let folder = harness::TestFolder::new();
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = TokenStore::new(folder.path());
    let before = granted(format!("http://{}/token", endpoint.local_addr().unwrap()));
    store.save("s", &Principal::local(), &before).unwrap();
    let parts = (store.clone(), Dialer::plain());
    let credential = Credential::new("s", &Principal::local(), &URL.parse().unwrap(), parts);
    let caller = tokio::spawn({
        let credential = Arc::clone(&credential);
        async move { credential.refreshed("access-1").await }
    });
    let (mut stream, _) = endpoint.accept().await.unwrap();
    assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
    // The refresh token has arrived: it is used up.
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    reply(&mut stream).await;
    let kept = async {
        loop {
            match store.load("s", &Principal::local(), URL) {
                Some(now) if now.access_token == "access-2" => return now,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let kept = tokio::time::timeout(Duration::from_secs(20), kept).await.expect("the new tokens are lost");
    assert_eq!(kept.refresh_token.as_deref(), Some("refresh-2"));
    assert_eq!(credential.bearer().await.as_deref(), Some("access-2"));
    let shown = credential.secrets();
    assert!(shown.contains(&"access-2".to_owned()) && shown.contains(&"refresh-2".to_owned()), "{shown:?}");
}

#[tokio::test]
async fn tokens_that_were_replaced_stay_secret() {
    let folder = harness::TestFolder::new();
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = TokenStore::new(folder.path());
    let before = granted(format!("http://{}/token", endpoint.local_addr().unwrap()));
    store.save("s", &Principal::local(), &before).unwrap();
    let credential =
        Credential::new("s", &Principal::local(), &URL.parse().unwrap(), (store, Dialer::plain()));
    assert_eq!(credential.bearer().await.as_deref(), Some("access-1"));
    let answered = async {
        let (mut stream, _) = endpoint.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        reply(&mut stream).await;
        stream
    };
    let (token, _stream) = tokio::join!(credential.refreshed("access-1"), answered);
    assert_eq!(token.as_deref(), Some("access-2"));
    let all = ["access-2", "refresh-2", "access-1", "refresh-1"];
    assert_eq!(credential.secrets(), all);
    credential.look_again();
    assert_eq!(credential.secrets(), all[..2]);
}

/// A credential whose token ends, and the endpoint that refreshes it.
async fn ending(folder: &harness::TestFolder) -> (Arc<Credential>, TcpListener) {
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = TokenStore::new(folder.path());
    let token_endpoint = format!("http://{}/token", endpoint.local_addr().unwrap());
    let before = Granted { expires_s: Some(1), ..granted(token_endpoint) };
    store.save("s", &Principal::local(), &before).unwrap();
    let parts = (store, Dialer::plain());
    (Credential::new("s", &Principal::local(), &URL.parse().unwrap(), parts), endpoint)
}

#[tokio::test]
async fn many_calls_wait_for_one_refresh_and_hold_no_thread() {
    let folder = harness::TestFolder::new();
    let (credential, endpoint) = ending(&folder).await;
    let url = URL.parse().unwrap();
    // Another connection to the same server, and a process that refreshes.
    let other = Credential::new("s", &Principal::local(), &url, (credential.store.clone(), Dialer::plain()));
    for one in std::iter::repeat_n([&credential, &other], 300).flatten() {
        let asked = tokio::time::timeout(Duration::from_millis(1), one.bearer()).await;
        assert!(asked.is_err(), "the endpoint never answers");
    }
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(tasks < 10, "each of the calls has a task: {tasks}");
    let thread = tokio::task::spawn_blocking(|| ());
    tokio::time::timeout(Duration::from_secs(1), thread).await.expect("all threads wait").unwrap();
    let first = tokio::time::timeout(Duration::from_secs(5), endpoint.accept()).await.unwrap().unwrap();
    let second = tokio::time::timeout(Duration::from_millis(300), endpoint.accept()).await;
    assert!(second.is_err(), "there is another connection");
    drop(first);
}

#[tokio::test]
async fn a_refresh_that_failed_is_not_repeated_at_once() {
    let folder = harness::TestFolder::new();
    let (credential, endpoint) = ending(&folder).await;
    let cut = async {
        let (stream, _) = endpoint.accept().await.unwrap();
        drop(stream);
    };
    let (token, ()) = tokio::join!(credential.bearer(), cut);
    assert_eq!(token.as_deref(), Some("access-1"), "it is sent as long as there is no other");
    for _ in 0..10 {
        assert_eq!(credential.bearer().await.as_deref(), Some("access-1"));
    }
    assert!(tokio::time::timeout(Duration::from_millis(300), endpoint.accept()).await.is_err());
}

#[tokio::test]
async fn a_turn_that_another_process_has_is_waited_for_without_a_thread() {
    let folder = harness::TestFolder::new();
    let (credential, endpoint) = ending(&folder).await;
    let turn = credential.store.refresh_turn("s", &Principal::local()).await.unwrap();
    let asked = tokio::spawn({
        let credential = Arc::clone(&credential);
        async move { credential.bearer().await }
    });
    assert!(tokio::time::timeout(Duration::from_millis(300), endpoint.accept()).await.is_err());
    // The turn of another principal is another one.
    let other = Principal::new("key:bob").unwrap();
    let second = credential.store.refresh_turn("s", &other);
    drop(
        tokio::time::timeout(Duration::from_secs(5), second)
            .await
            .expect("it has no turn of its own")
            .unwrap(),
    );
    drop(turn);
    let (mut stream, _) = endpoint.accept().await.unwrap();
    assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
    reply(&mut stream).await;
    assert_eq!(asked.await.unwrap().as_deref(), Some("access-2"));
}

#[tokio::test]
async fn a_refresh_undoes_no_login_and_no_forget() {
    for is_forgotten in [true, false] {
        let folder = harness::TestFolder::new();
        let (credential, endpoint) = ending(&folder).await;
        let asked = tokio::spawn({
            let credential = Arc::clone(&credential);
            async move { credential.refreshed("access-1").await }
        });
        let (mut stream, _) = endpoint.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        // Neither waits for the endpoint.
        match is_forgotten {
            true => assert!(credential.store.forget("s").unwrap()),
            false => {
                let login = Granted { access_token: "login-1".to_owned(), ..granted(String::new()) };
                credential.store.save("s", &Principal::local(), &login).unwrap();
            }
        }
        reply(&mut stream).await;
        let expected = (!is_forgotten).then_some("login-1");
        assert_eq!(asked.await.unwrap().as_deref(), expected);
        let kept = credential.store.load("s", &Principal::local(), URL);
        assert_eq!(kept.map(|kept| kept.access_token).as_deref(), expected);
        assert_eq!(credential.bearer().await.as_deref(), expected);
    }
}
