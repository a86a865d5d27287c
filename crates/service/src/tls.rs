//! TLS with rustls, from certificate files. This build does not contain old protocol versions and ciphers.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::options::TlsFiles;
use super::reload::Replaceable;

/// The certificate in force and the files that it came from.
pub(crate) struct Tls {
    files: TlsFiles,
    config: Replaceable<ServerConfig>,
}

impl Tls {
    /// Reads the files. An error in them fails the start, not the first connection.
    pub(crate) fn read(files: &TlsFiles) -> io::Result<Self> {
        Ok(Self { files: files.clone(), config: Replaceable::new(config(files)?) })
    }

    /// Reads the files again. If they cannot be used, the certificate in force stays.
    pub(crate) fn reload(&self) -> io::Result<()> {
        self.config.replace(config(&self.files)?);
        Ok(())
    }

    /// Accepts connections with the certificate in force.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.get())
    }
}

fn config(files: &TlsFiles) -> io::Result<ServerConfig> {
    let unfit = |path: &std::path::Path, error: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{} cannot be used: {error}", path.display()))
    };
    let certificate = &files.certificate;
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unfit(certificate, &error))?;
    if chain.is_empty() {
        return Err(unfit(certificate, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unfit(&files.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unfit(certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unfit(certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
