//! A command connected to a run as to a process, over the control socket (`service::attach`).

use std::io;

use ::http::header::{CONNECTION, HOST, UPGRADE};
use ::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use service::attach::frame::{Frame, FrameReader, FromRun, ToRun};
use service::attach::{PATH, PROTOCOL};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::task::JoinSet;

use super::{Client, ClientError, connect, of_status};

type Stream = TokioIo<Upgraded>;

/// The connection to a run. Dropping it cancels the run.
pub(crate) struct Attachment {
    reader: FrameReader<ReadHalf<Stream>>,
    writer: WriteHalf<Stream>,
    /// The task that drives the connection until this is dropped.
    _connection: JoinSet<()>,
}

impl Client {
    /// Begins a run as the first frame describes it.
    pub(crate) async fn attach(&self, begin: &Value) -> Result<Attachment, ClientError> {
        let stream = connect(self.socket()).await?;
        let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let mut connection = JoinSet::new();
        connection.spawn(async move {
            // The upgraded stream reports the error.
            driver.with_upgrades().await.ok();
        });
        let request = Request::post(PATH)
            .header(HOST, "localhost")
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, PROTOCOL)
            .body(Empty::<Bytes>::new())
            .map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let said = response.collect().await.map_err(io::Error::other)?.to_bytes();
            return Err(of_status(status.as_u16(), &said));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(io::Error::other)?;
        let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
        let mut attachment = Attachment { reader: FrameReader::new(reader), writer, _connection: connection };
        attachment.send(&ToRun::Begin(begin.to_string().into_bytes())).await?;
        Ok(attachment)
    }
}

impl Attachment {
    /// Sends a frame.
    pub(crate) async fn send(&mut self, message: &ToRun) -> io::Result<()> {
        self.writer.write_all(&message.encode()).await?;
        self.writer.flush().await
    }

    /// The next message of the run. The future can be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<FromRun, ClientError> {
        let message = self.reader.next().await?;
        message.ok_or(ClientError::Nonsense("it ended without a result"))
    }
}
