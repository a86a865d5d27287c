//! The loopback address to which a browser brings the answer of the authorization server (RFC 8252, section 7.3).

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::failed;
use super::fetch::query;
use crate::host::ToolError;

const PATH: &str = "/callback";
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long one connection may take.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(5);

/// Waits for one answer.
pub(super) struct Callback {
    listener: TcpListener,
    redirect: String,
}

/// What the answer must have.
pub(super) struct Expected<'a> {
    pub(super) state: &'a str,
    /// The issuer, if the answer must name it.
    pub(super) issuer: Option<&'a str>,
}

impl Callback {
    /// Listens on a free port of loopback.
    pub(super) async fn open() -> Result<Self, ToolError> {
        let unheard = |error: std::io::Error| failed(format!("no answer can be received: {error}"));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(unheard)?;
        let port = listener.local_addr().map_err(unheard)?.port();
        Ok(Self { listener, redirect: format!("http://127.0.0.1:{port}{PATH}") })
    }

    /// The address for the authorization server.
    pub(super) fn redirect(&self) -> &str {
        &self.redirect
    }

    /// The code of the first answer that belongs to this login. Others are told so, and ignored.
    pub(super) async fn code(
        &self,
        expected: &Expected<'_>,
        patience: Duration,
    ) -> Result<String, ToolError> {
        let wait = async {
            loop {
                let Ok((stream, _)) = self.listener.accept().await else { continue };
                let answered = tokio::time::timeout(CONNECTION_PATIENCE, answer(stream, expected)).await;
                if let Ok(Some(outcome)) = answered {
                    return outcome;
                }
            }
        };
        let late = |_| failed(format!("nobody logged in within {} s", patience.as_secs()));
        tokio::time::timeout(patience, wait).await.map_err(late)?
    }
}

/// Reads one request and answers it. `None` if it does not belong to this login.
async fn answer(mut stream: TcpStream, expected: &Expected<'_>) -> Option<Result<String, ToolError>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        head.extend_from_slice(&piece[..count]);
        if head.len() > HEAD_BYTES_MAX {
            return None;
        }
    }
    let outcome = outcome(&String::from_utf8_lossy(&head), expected);
    let (status, words) = match &outcome {
        Some(Ok(_)) => ("200 OK", "The login is complete. This page can be closed."),
        Some(Err(_)) => ("200 OK", "The login was refused. The terminal says why."),
        None => ("404 Not Found", "This address belongs to a login of Palisade."),
    };
    let length = words.len();
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{words}"
    );
    // A browser that has gone has brought the code all the same.
    stream.write_all(response.as_bytes()).await.ok();
    outcome
}

fn outcome(head: &str, expected: &Expected<'_>) -> Option<Result<String, ToolError>> {
    let target = head.lines().next()?.strip_prefix("GET ")?.split(' ').next()?;
    let (path, text) = target.split_once('?')?;
    let fields = query(text);
    let field = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    // Without the state, anybody who can reach loopback could end a login, or bring another user's code.
    if path != PATH || field("state") != Some(expected.state) {
        return None;
    }
    if expected.issuer.is_some() && field("iss") != expected.issuer {
        return Some(Err(failed("the answer comes from another authorization server")));
    }
    match (field("code"), field("error")) {
        (_, Some(error)) => {
            let shown = crate::clean::line(error, 100);
            Some(Err(failed(format!("the authorization server refused: {shown}"))))
        }
        (Some(code), None) => Some(Ok(code.to_owned())),
        (None, None) => Some(Err(failed("the answer has no code"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_of_this_login_counts() {
        let expected = Expected { state: "s", issuer: Some("https://a.example") };
        let read = |target: &str| outcome(&format!("GET {target} HTTP/1.1\r\n\r\n"), &expected);
        let code = read("/callback?code=c&state=s&iss=https%3A%2F%2Fa.example").unwrap();
        assert_eq!(code.unwrap(), "c");
        for other in
            ["/callback?code=c&state=other", "/callback?code=c", "/other?code=c&state=s", "/favicon.ico"]
        {
            assert!(read(other).is_none(), "{other}");
        }
        for refused in [
            "/callback?code=c&state=s",
            "/callback?code=c&state=s&iss=https%3A%2F%2Fb.example",
            "/callback?error=access_denied&state=s&iss=https%3A%2F%2Fa.example",
            "/callback?state=s&iss=https%3A%2F%2Fa.example",
        ] {
            assert!(read(refused).unwrap().is_err(), "{refused}");
        }
        assert!(outcome("POST /callback?code=c&state=s HTTP/1.1", &expected).is_none());
    }
}
