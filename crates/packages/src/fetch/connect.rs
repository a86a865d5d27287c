//! Opens connections to mirrors, directly or through the operator's proxy.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use egress::Upstream;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::pool::{Origin, Sender};
use crate::settings::PackagesConfig;

/// The most addresses of a host that are tried.
const ADDRESSES_MAX: usize = 4;

pub(super) struct Connector {
    /// Made at the first use, because reading the certificates of the machine takes milliseconds.
    tls: OnceLock<Result<TlsConnector, String>>,
    ca_files: Vec<PathBuf>,
    proxy: Option<Upstream>,
    no_proxy: Vec<String>,
}

impl Connector {
    pub(super) fn new(config: &PackagesConfig) -> Self {
        let (ca_files, proxy, no_proxy) = (&config.ca_files, &config.proxy, &config.no_proxy);
        let (ca_files, proxy, no_proxy) = (ca_files.clone(), proxy.clone(), no_proxy.clone());
        Self { tls: OnceLock::new(), ca_files, proxy, no_proxy }
    }

    fn tls(&self) -> io::Result<&TlsConnector> {
        let made = self.tls.get_or_init(|| client(&self.ca_files).map_err(|error| error.to_string()));
        made.as_ref().map_err(|reason| io::Error::other(reason.clone()))
    }

    pub(super) async fn connect(&self, origin: &Origin) -> io::Result<Sender> {
        let stream = match self.proxy.as_ref().filter(|_| !self.is_direct(&origin.host)) {
            Some(proxy) => proxy.open(&origin.host, origin.port).await?,
            None => dial(origin).await?,
        };
        stream.set_nodelay(true)?;
        if !origin.is_tls {
            return handshake(TokioIo::new(stream)).await;
        }
        let name = ServerName::try_from(origin.host.clone()).map_err(io::Error::other)?;
        handshake(TokioIo::new(self.tls()?.connect(name, stream).await?)).await
    }

    /// Whether a host is reached without the proxy. This machine always is.
    fn is_direct(&self, host: &str) -> bool {
        let is_own = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback());
        is_own
            || self.no_proxy.iter().any(|named| {
                let named = named.trim_start_matches('.');
                let beneath = host.strip_suffix(named).is_some_and(|rest| rest.ends_with('.'));
                named == "*" || host.eq_ignore_ascii_case(named) || !named.is_empty() && beneath
            })
    }
}

fn client(ca_files: &[PathBuf]) -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for path in ca_files {
        let unfit = |error: &dyn std::fmt::Display| {
            io::Error::other(format!("the certificates in {} cannot be used: {error}", path.display()))
        };
        let own = CertificateDer::pem_file_iter(path).map_err(|error| unfit(&error))?;
        roots.add_parsable_certificates(own.filter_map(Result::ok));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(tls)))
}

async fn dial(origin: &Origin) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    let addresses = tokio::net::lookup_host((origin.host.as_str(), origin.port)).await?;
    for address in addresses.take(ADDRESSES_MAX) {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn handshake<S>(stream: S) -> io::Result<Sender>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        // Its end shows at the sender.
        connection.await.ok();
    });
    Ok(sender)
}
