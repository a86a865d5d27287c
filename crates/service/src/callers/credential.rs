//! The credential that a request showed, and its end. It never holds the secret.
//!
//! A credential ends when it is revoked, replaced or expires. Everything that a request began with it ends too: its
//! answer ([`bounded`]), its WebSocket, its attached command.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::CancellationToken;

/// The clock may be set while a credential is in use, so its expiry is looked at again after this time.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// A credential in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credential {
    /// Cancelled when the credential is revoked or replaced; `None` if that cannot happen.
    ended: Option<CancellationToken>,
    expires: Option<SystemTime>,
}

impl Credential {
    /// A credential that does not end while the server lives.
    pub(crate) fn lasting() -> Self {
        Self::default()
    }

    /// A credential that ends when the token is cancelled.
    pub(crate) fn until_cancelled(ended: CancellationToken) -> Self {
        Self { ended: Some(ended), expires: None }
    }

    /// The same, and it ends at that time at the latest.
    pub(crate) fn until(self, expires: Option<SystemTime>) -> Self {
        Self { expires, ..self }
    }

    /// Completes when the credential has ended.
    pub(crate) async fn ended(&self) {
        let revoked = async {
            match &self.ended {
                Some(ended) => ended.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = revoked => {}
            () = self.expired() => {}
        }
    }

    async fn expired(&self) {
        let Some(expires) = self.expires else { return std::future::pending().await };
        while let Ok(left) = expires.duration_since(SystemTime::now()) {
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK_PAUSE)).await;
        }
    }

    /// The signal of its end, for what outlives the request.
    pub(crate) fn signal(&self) -> Option<CancellationToken> {
        self.ended.clone()
    }

    fn can_end(&self) -> bool {
        self.ended.is_some() || self.expires.is_some()
    }
}

/// The response, whose body breaks off when the credential ends. A body that is complete already is left alone.
pub(crate) fn bounded(response: Response, credential: Credential) -> Response {
    if !credential.can_end()
        || HttpBody::size_hint(response.body()).exact().is_some_and(|_| is_whole(&response))
    {
        return response;
    }
    let ended = Box::pin(async move { credential.ended().await });
    response.map(|body| Body::new(Bounded { body, ended }))
}

/// Whether the answer is sent from memory: an error, or the answer to a short call.
fn is_whole(response: &Response) -> bool {
    const SHORT_BYTES_MAX: u64 = 64 << 10;
    HttpBody::size_hint(response.body()).upper().is_some_and(|bytes| bytes <= SHORT_BYTES_MAX)
}

struct Bounded {
    body: Body,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.as_mut().poll(context).is_ready() {
            // An error closes the connection, so that the peer does not take the part for the whole.
            return Poll::Ready(Some(Err(axum::Error::new("the credential of this request has ended"))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_stream_breaks_off_when_its_credential_ends() {
        let ended = CancellationToken::new();
        let pieces = stream::once(async { Ok::<_, axum::Error>(Bytes::from_static(b"one")) });
        let pieces = futures_util::StreamExt::chain(pieces, stream::pending());
        let response = Body::from_stream(pieces).into_response();
        let mut body = bounded(response, Credential::until_cancelled(ended.clone())).into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.as_ref(), b"one");
        ended.cancel();
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_credential_ends_at_its_expiry() {
        let soon = SystemTime::now() + Duration::from_millis(20);
        Credential::lasting().until(Some(soon)).ended().await;
        assert!(SystemTime::now() >= soon);
        let past = SystemTime::now() - Duration::from_secs(1);
        Credential::until_cancelled(CancellationToken::new()).until(Some(past)).ended().await;
    }
}
