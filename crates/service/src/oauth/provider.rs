//! Checks signatures with ring, the library that also does TLS in this program (decision 26).
//!
//! `jsonwebtoken` has two providers of its own: one adds a C library, the other an RSA implementation with an open
//! advisory. This one adds nothing. It makes no signatures.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    // The functions behind it read private keys, which this server never has.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes this the provider of the process. Only the first call has an effect.
pub(super) fn install() {
    // An error means that it is installed already: nothing else in the program installs one.
    PROVIDER.install_default().ok();
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

/// A check by one key. A key of another type than the algorithm's is refused here.
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let algorithm = *algorithm;
    if key.family() != algorithm.family() || algorithm.family() == AlgorithmFamily::Hmac {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    let check = match key.kind() {
        DecodingKeyKind::RsaModulusExponent { n, e } => {
            let parameters = rsa(algorithm).ok_or(ErrorKind::UnsupportedAlgorithm)?;
            Check::Rsa(RsaPublicKeyComponents { n: n.clone(), e: e.clone() }, parameters)
        }
        DecodingKeyKind::SecretOrDer(bytes) => {
            let curve = curve(algorithm).ok_or(ErrorKind::UnsupportedAlgorithm)?;
            Check::Curve(UnparsedPublicKey::new(curve, bytes.clone()))
        }
    };
    Ok(Box::new(RingVerifier { algorithm, check }))
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn curve(algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
    match algorithm {
        Algorithm::ES256 => Some(&signature::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&signature::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&signature::ED25519),
        _ => None,
    }
}

struct RingVerifier {
    algorithm: Algorithm,
    check: Check,
}

enum Check {
    Rsa(RsaPublicKeyComponents<Vec<u8>>, &'static RsaParameters),
    Curve(UnparsedPublicKey<Vec<u8>>),
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        match &self.check {
            Check::Rsa(key, parameters) => key.verify(parameters, message, signature),
            Check::Curve(key) => key.verify(message, signature),
        }
        .map_err(|_| Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
