//! The client against a scripted server that sends valid and invalid answers.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use super::*;
use harness::TestFolder;

/// Answers one request with these pieces, each after a pause, and closes.
fn server(folder: &TestFolder, pieces: Vec<Vec<u8>>) -> Client {
    let path = folder.path().join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        read_request(&mut stream);
        for piece in pieces {
            // The client may have disconnected.
            stream.write_all(&piece).ok();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    Client::new(path)
}

/// Reads the whole request. Closing with unread data resets the connection, and the client loses the answer.
fn read_request(stream: &mut impl std::io::Read) {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the request broke off");
        request.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        if body.len() >= length.map_or(0, |length| length.trim().parse().unwrap()) {
            return;
        }
    }
}

fn bytes_one_by_one(text: &str) -> Vec<Vec<u8>> {
    text.bytes().map(|byte| vec![byte]).collect()
}

async fn news(client: &Client) -> Result<Vec<News>, ClientError> {
    let mut call = client.call("run", json!({})).await?;
    let mut all = Vec::new();
    loop {
        let news = call.next().await?;
        let is_last = matches!(news, News::Answer(_));
        all.push(news);
        if is_last {
            return Ok(all);
        }
    }
}

#[tokio::test]
async fn events_in_chunks_are_read_however_they_are_cut() {
    let progress = r#"{"method":"notifications/progress","params":{"_meta":{"palisade/run_id":"run_1"}}}"#;
    let events = format!(
        ": hello\n\nid: 0\ndata:\n\ndata: {progress}\r\n\r\ndata: {{\"result\":\ndata: {{\"a\":1}}}}\n\n"
    );
    let (one, two) = events.split_at(40);
    let chunks = format!("{:x}\r\n{one}\r\n{:X};ext=1\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let folder = TestFolder::new();
    let client = server(&folder, bytes_one_by_one(&format!("{head}{chunks}")));
    let all = news(&client).await.unwrap();
    assert!(matches!(&all[0], News::Progress { run_id: Some(id) } if id == "run_1"), "{all:?}");
    assert!(matches!(&all[1], News::Answer(answer) if answer["a"] == 1), "{all:?}");
    assert_eq!(all.len(), 2);
}

#[tokio::test]
async fn an_answer_of_json_is_one_message() {
    let body = r#"{"jsonrpc":"2.0","id":1,"result":{"ok":true}}"#;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    let folder = TestFolder::new();
    let client = server(&folder, vec![head.into_bytes(), body.as_bytes().to_vec()]);
    assert!(matches!(&news(&client).await.unwrap()[..], [News::Answer(answer)] if answer["ok"] == true));
}

#[tokio::test]
async fn answers_that_make_no_sense_are_errors_and_not_waited_for() {
    for (answer, wanted) in [
        ("", "without an answer"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "broke off"),
        ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "not HTTP"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "not HTTP"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabcd", "not HTTP"),
        ("SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        ("HTTP/1.1 200 OK\r\n\r\nhello", "not JSON"),
        ("HTTP/1.1 403 Forbidden\r\n\r\nonly \u{1b}[31mowners\n", "status 403: only \\u{1b}[31mowners"),
        ("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: bye\n\n", "without a result"),
        ("HTTP/1.1 200 OK\r\n\r\n{\"error\":{\"message\":\"no such tool\"}}", "no such tool"),
    ] {
        let folder = TestFolder::new();
        let client = server(&folder, vec![answer.as_bytes().to_vec()]);
        let error = news(&client).await.unwrap_err().to_string();
        assert!(error.contains(wanted), "{answer:?}: {error}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_given_up() {
    let folder = TestFolder::new();
    let mut head = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
    head.resize(1 << 20, b'x');
    let client = server(&folder, vec![head]);
    assert!(news(&client).await.unwrap_err().to_string().contains("too long"));
}

#[tokio::test]
async fn a_refusal_is_heard_though_the_server_takes_no_more() {
    let body = "no room for that";
    let answer = format!("HTTP/1.1 413 Too Large\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    for _ in 0..20 {
        let folder = TestFolder::new();
        let path = folder.path().join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let answer = answer.clone();
        let server = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 4096]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(folder.path().join("f"))
            .unwrap();
        file.set_len(8 << 20).unwrap();
        let payload = Payload::File { file, size_bytes: 8 << 20 };
        let request = Request { method: "PUT", path: "/files/x", headers: &[], payload };
        let response = Client::new(path).send(request).await.unwrap();
        assert_eq!(
            refusal(response).await.to_string(),
            format!("the server answered with status 413: {body}")
        );
        server.join().unwrap();
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_closes_its_connection() {
    let folder = TestFolder::new();
    let path = folder.path().join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_request(&mut stream);
        std::io::Read::read(&mut stream, &mut [0; 1]).unwrap_or_default()
    });
    let mut call = Client::new(path).call("run", json!({})).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), call.next()).await.is_err());
    drop(call);
    let read = tokio::task::spawn_blocking(move || server.join().unwrap()).await.unwrap();
    assert_eq!(read, 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up_after_a_minute() {
    let folder = TestFolder::new();
    let path = folder.path().join("s.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let error = news(&Client::new(path)).await.unwrap_err().to_string();
    assert!(error.contains("said nothing for a minute"), "{error}");
}

#[tokio::test]
async fn an_answer_is_not_lost_to_somebody_who_looks_away() {
    let body = r#"{"result":{"ok":true}}"#;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    let folder = TestFolder::new();
    let client = server(&folder, bytes_one_by_one(&format!("{head}{body}")));
    let mut call = client.call("run", json!({})).await.unwrap();
    let answer = loop {
        if let Ok(news) = tokio::time::timeout(Duration::from_micros(300), call.next()).await {
            break news.unwrap();
        }
    };
    assert!(matches!(answer, News::Answer(answer) if answer["ok"] == true));
}

#[tokio::test]
async fn without_a_server_the_remedy_is_said() {
    let folder = TestFolder::new();
    let client = Client::new(folder.path().join("none.sock"));
    let error = client.tool("sandbox_list", json!({})).await.unwrap_err();
    assert!(matches!(error, ClientError::NoServer { .. }));
    assert!(error.remedy().unwrap().contains("palisade serve"));
}

#[test]
fn a_tool_that_came_to_nothing_says_why() {
    let answer = json!({
        "isError": true,
        "structuredContent": { "error": { "message": "no such sandbox", "remedy": "open one", "retryable": false } },
    });
    let error = structured(answer).unwrap_err();
    assert_eq!((error.to_string().as_str(), error.remedy()), ("no such sandbox", Some("open one")));
    assert!(structured(json!({ "isError": false, "structuredContent": { "a": 1 } })).is_ok());
}
