//! Certificates for servers under test.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Files of a certificate.
pub struct Certificate {
    /// The chain, PEM.
    pub certificate: String,
    /// Its private key, PEM.
    pub key: String,
}

/// A certificate for that name, signed by itself; none where there is no openssl.
pub fn certificate(folder: &Path, name: &str) -> Option<Certificate> {
    certificate_with(folder, name, &[])
}

/// The same, with further options of `openssl req`.
pub fn certificate_with(folder: &Path, name: &str, options: &[&str]) -> Option<Certificate> {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let made = Certificate { certificate: path("certificate.pem"), key: path("key.pem") };
    let status = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", &format!("/CN={name}"), "-keyout", &made.key, "-out", &made.certificate])
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no openssl to make a certificate with");
        return None;
    }
    for file in [&made.certificate, &made.key] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    Some(made)
}
