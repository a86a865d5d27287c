//! Connections to URLs: name, address, TLS. Plain http is dialled on loopback only.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::host::{ToolError, ToolErrorCode};

/// How long a connection may take to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Connects to URLs.
#[derive(Clone)]
pub(crate) struct Dialer(Option<TlsConnector>);

impl Dialer {
    /// A dialer that trusts the roots of this machine.
    pub(crate) fn new() -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let built = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let connector = built.ok().map(|builder| {
            let mut config = builder.with_root_certificates(roots).with_no_client_auth();
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            TlsConnector::from(Arc::new(config))
        });
        Self(connector)
    }

    /// A dialer without TLS, for a configuration without URLs: the roots are not read.
    pub(crate) fn plain() -> Self {
        Self(None)
    }

    /// A connection to the host of this URL. A task of its own drives it until the sender is dropped.
    pub(crate) async fn connect(&self, url: &Uri) -> Result<SendRequest<Full<Bytes>>, ToolError> {
        let failed = |reason: String| {
            ToolError::new(
                ToolErrorCode::ServerUnavailable,
                format!("the server cannot be reached: {reason}"),
            )
        };
        match tokio::time::timeout(CONNECT_PATIENCE, self.open(url)).await {
            Ok(opened) => opened.map_err(failed),
            Err(_) => Err(failed(format!("no connection within {} s", CONNECT_PATIENCE.as_secs()))),
        }
    }

    async fn open(&self, url: &Uri) -> Result<SendRequest<Full<Bytes>>, String> {
        let is_tls = url.scheme_str() == Some("https");
        let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = dial(host, port, is_tls).await.map_err(|error| error.to_string())?;
        if !is_tls {
            return drive(TokioIo::new(stream)).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let connector = self.0.as_ref().ok_or("TLS cannot be used")?;
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        drive(TokioIo::new(stream)).await
    }
}

async fn dial(host: &str, port: u16, is_tls: bool) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "no usable address");
    for address in tokio::net::lookup_host((host, port)).await? {
        if !is_tls && !address.ip().is_loopback() {
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn drive<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, String>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(stream).await.map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "upstream_connection_ended");
        }
    });
    Ok(sender)
}
