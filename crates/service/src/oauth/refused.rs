//! Why a token is refused. The log gets the name of the reason, the caller one of three sentences: details would help
//! an attacker more than a client.

/// A reason to refuse a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenRefused {
    /// It is longer than [`super::TOKEN_BYTES_MAX`].
    TooLong,
    /// It is no signed JWT, or its header or claims are no JSON object, or a member occurs twice.
    Malformed,
    /// The algorithm is not on the list.
    Algorithm,
    /// The header has `crit`: extensions that must be understood.
    Critical,
    /// The header's `typ` is neither that of an access token nor that of a JWT.
    Type,
    /// The token is bound to a key of the client (`cnf`), and this server cannot check the proof.
    Confirmation,
    /// `iss` is no issuer of this server.
    Issuer,
    /// `aud` does not contain this server's resource.
    Audience,
    /// `exp` is missing or no number.
    NoExpiry,
    /// `exp` has passed.
    Expired,
    /// `nbf` has not come yet, or is no number.
    NotYet,
    /// `sub` is missing, empty, too long, or no string.
    Subject,
    /// A scope claim has a form that this server does not know.
    Scope,
    /// There are more claims than a caller can carry.
    Claims,
    /// The issuer has no key of that id.
    UnknownKey,
    /// The key is of another type, or for another algorithm.
    KeyMismatch,
    /// The signature is wrong.
    Signature,
    /// The issuer's keys are not known, and it cannot be reached.
    IssuerUnavailable,
}

impl TokenRefused {
    /// The name in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::Algorithm => "algorithm",
            Self::Critical => "critical_header",
            Self::Type => "type",
            Self::Confirmation => "confirmation",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::NoExpiry => "no_expiry",
            Self::Expired => "expired",
            Self::NotYet => "not_yet_valid",
            Self::Subject => "subject",
            Self::Scope => "scope",
            Self::Claims => "too_many_claims",
            Self::UnknownKey => "unknown_key",
            Self::KeyMismatch => "key_mismatch",
            Self::Signature => "signature",
            Self::IssuerUnavailable => "issuer_unavailable",
        }
    }

    /// The sentence for the caller (`error_description`, RFC 6750, section 3).
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Expired => "the access token has expired",
            Self::IssuerUnavailable => "the keys of the issuer cannot be read at present",
            _ => "the access token is not valid for this server",
        }
    }
}
