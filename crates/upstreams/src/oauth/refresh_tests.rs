//! Refreshes of tokens with a token endpoint that the test plays.

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
