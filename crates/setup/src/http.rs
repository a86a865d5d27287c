//! A server that is reached by its address instead of being started: what a client's file says then.
//!
//! The token's text is never written. Where a client can take it from a variable of its own environment, the
//! entry names the variable; where it cannot, the entry has no token and the person is told. Over plain HTTP a
//! token goes to this machine only.

use http::Uri;
use serde_json::{Map, Value, json};

use super::SetupError;

/// The variable that holds the token, unless another one is named.
pub(crate) const TOKEN_VARIABLE: &str = "PALISADE_TOKEN";
const URL_CHARACTERS_MAX: usize = 2048;
const NAME_CHARACTERS_MAX: usize = 128;
/// Where `palisade serve` listens by default; a test of `palisade` compares it with the service.
pub const LOCAL_URL: &str = "http://127.0.0.1:8808/mcp";

/// How a client writes a server with an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Whether `"type": "http"` comes first.
    pub(crate) has_type: bool,
    /// The key of the address.
    pub(crate) url: &'static str,
    pub(crate) token: TokenFrom,
}

/// Where a client can take a token from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenFrom {
    /// A header that names a variable: what stands before and after its name.
    Header(&'static str, &'static str),
    /// A field of its own that names the variable.
    Field(&'static str),
    /// Only from its own file.
    Nowhere,
}

/// A server with an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote {
    url: String,
    /// The variable with its token; nothing if it asks for none.
    variable: Option<String>,
}

impl Remote {
    /// Where `palisade serve` listens by default, or the address given; refused when the token would be seen.
    pub(crate) fn new(url: Option<&str>, variable: Option<&str>) -> Result<Self, SetupError> {
        let url = match url {
            Some(text) => checked(text)?,
            None => Url { text: LOCAL_URL.to_owned(), is_private: true },
        };
        let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if let Some(name) = variable
            && (name.is_empty()
                || name.len() > NAME_CHARACTERS_MAX
                || name.starts_with(|c: char| c.is_ascii_digit())
                || !name.chars().all(is_good))
        {
            return Err(SetupError::BadVariable);
        }
        if variable.is_some() && !url.is_private {
            return Err(SetupError::TokenInTheOpen { url: url.text });
        }
        Ok(Self { url: url.text, variable: variable.map(str::to_owned) })
    }

    /// The entry as a client of that shape reads it.
    pub(crate) fn entry(&self, shape: &Shape) -> Value {
        let mut entry = Map::new();
        if shape.has_type {
            entry.insert("type".to_owned(), json!("http"));
        }
        entry.insert(shape.url.to_owned(), json!(self.url));
        match (&self.variable, shape.token) {
            (Some(name), TokenFrom::Header(before, after)) => {
                let value = format!("Bearer {before}{name}{after}");
                entry.insert("headers".to_owned(), json!({ "Authorization": value }));
            }
            (Some(name), TokenFrom::Field(field)) => drop(entry.insert(field.to_owned(), json!(name))),
            (Some(_), TokenFrom::Nowhere) | (None, _) => {}
        }
        Value::Object(entry)
    }

    /// What a person has to do about the token.
    pub(crate) fn about_token(&self, shape: &Shape, title: &str) -> Option<String> {
        let name = self.variable.as_deref()?;
        Some(match shape.token {
            TokenFrom::Nowhere => format!(
                "{title} reads no variables: add \"headers\": {{ \"Authorization\": \"Bearer ...\" }} to the entry, in a \
                 file that only you can read"
            ),
            TokenFrom::Header(..) | TokenFrom::Field(_) => format!(
                "start {title} with {name} set to the server's token (the file `token` of its state directory)"
            ),
        })
    }
}

struct Url {
    text: String,
    /// Encrypted, or not leaving this machine.
    is_private: bool,
}

fn checked(text: &str) -> Result<Url, SetupError> {
    let bad = |reason: &'static str| SetupError::BadUrl { reason };
    // Clients put variables in where they see these.
    let is_plain =
        |c: char| c.is_ascii_graphic() && !matches!(c, '$' | '{' | '}' | '"' | '\\' | '`' | '<' | '>');
    if text.len() > URL_CHARACTERS_MAX || !text.chars().all(is_plain) {
        return Err(bad("it is too long or has characters that an address does not have"));
    }
    let uri: Uri = text.parse().map_err(|_| bad("it cannot be read"))?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(bad("it must begin with https:// or http://"));
    };
    if authority.as_str().contains('@') {
        return Err(bad("it has a name or password in it, which everybody who reads the file would see"));
    }
    if uri.query().is_some() || text.contains('#') {
        return Err(bad("it must end with its path"));
    }
    let host = uri.host().unwrap_or_default();
    if host.is_empty() {
        return Err(bad("it names no host"));
    }
    // Nobody serves MCP at the top; it was left out.
    let path = if uri.path() == "/" { "/mcp" } else { uri.path() };
    Ok(Url {
        text: format!("{scheme}://{authority}{path}"),
        is_private: scheme == "https" || is_this_machine(host),
    })
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
