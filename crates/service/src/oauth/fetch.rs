//! Reads a JSON document of an issuer: one GET over TLS, bounded in size and time, without redirects.
//!
//! The certificate is checked against the roots of this machine, or against those of `oauth.ca_file` alone. Plain
//! http works on loopback only, also after the name was resolved. No proxy is used.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Map, Value};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::address::is_loopback;
use super::object;

/// The largest document.
const DOCUMENT_BYTES_MAX: usize = 256 << 10;
/// Maximum time from the name of the host to the last byte.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client for documents of issuers.
pub(super) struct Fetcher(TlsConnector);

impl Fetcher {
    /// A client that trusts the roots of this machine, or only those of a file.
    pub(super) fn new(ca_file: Option<&Path>) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        match ca_file {
            Some(path) => {
                let unfit = |error: &dyn std::fmt::Display| {
                    let reason = format!("oauth.ca_file: {} cannot be used: {error}", path.display());
                    io::Error::new(io::ErrorKind::InvalidInput, reason)
                };
                let own = CertificateDer::pem_file_iter(path).map_err(|error| unfit(&error))?;
                for certificate in own {
                    let certificate = certificate.map_err(|error| unfit(&error))?;
                    roots.add(certificate).map_err(|error| unfit(&error))?;
                }
                if roots.is_empty() {
                    return Err(unfit(&"there is no certificate in it"));
                }
            }
            None => {
                let (added, _) =
                    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if added == 0 {
                    tracing::warn!("no_root_certificates");
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// The JSON object at this address.
    pub(super) async fn object(&self, uri: &Uri) -> io::Result<Map<String, Value>> {
        let bytes = tokio::time::timeout(PATIENCE, self.get(uri))
            .await
            .map_err(|_| io::Error::other(format!("no answer within {} s", PATIENCE.as_secs())))??;
        object::read(&bytes).ok_or_else(|| io::Error::other("the document is no JSON object"))
    }

    async fn get(&self, uri: &Uri) -> io::Result<Bytes> {
        let host = uri.host().ok_or(io::ErrorKind::InvalidInput)?;
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let is_tls = uri.scheme_str() == Some("https");
        if !is_tls && !is_loopback(uri) {
            return Err(io::Error::other("plain http works on loopback only"));
        }
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = connect(name, port, is_tls).await?;
        if !is_tls {
            return exchange(TokioIo::new(stream), uri).await;
        }
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let stream = self.0.connect(name, stream).await?;
        exchange(TokioIo::new(stream), uri).await
    }
}

async fn connect(name: &str, port: u16, is_tls: bool) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in tokio::net::lookup_host((name, port)).await? {
        if !is_tls && !address.ip().is_loopback() {
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn exchange<S>(stream: S, uri: &Uri) -> io::Result<Bytes>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
    // Dropping the set ends the connection, also when the time is over.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, concat!("palisade/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    if response.status() != StatusCode::OK {
        // A redirect is no document either: the issuer would hand its word over to another host.
        return Err(io::Error::other(format!("status {}", response.status().as_u16())));
    }
    let body = Limited::new(response.into_body(), DOCUMENT_BYTES_MAX);
    Ok(body.collect().await.map_err(io::Error::other)?.to_bytes())
}
