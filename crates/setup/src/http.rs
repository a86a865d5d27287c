//! Entries for a server that the client reaches by its address instead of starting it.
//!
//! The text of the token is never written. If a client can read it from a variable of its environment, the
//! entry names the variable. Otherwise the entry has no token, and the user is told. Over plain HTTP a token
//! is only sent to this machine.

use http::Uri;
use serde_json::{Map, Value, json};

use super::SetupError;

/// Default name of the variable with the token.
pub(crate) const TOKEN_VARIABLE: &str = "PALISADE_TOKEN";
const URL_CHARACTERS_MAX: usize = 2048;
const NAME_CHARACTERS_MAX: usize = 128;
/// Default address of `palisade serve`; a test of `palisade` compares it with the service.
pub const LOCAL_URL: &str = "http://127.0.0.1:8808/mcp";

/// The format of a server with an address in a client's file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Whether `"type": "http"` comes first.
    pub(crate) has_type: bool,
    /// The key of the address.
    pub(crate) url: &'static str,
    pub(crate) token: TokenFrom,
}

/// The source from which a client can read a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenFrom {
    /// A header that names a variable: the text before and after its name.
    Header(&'static str, &'static str),
    /// A separate field that names the variable.
    Field(&'static str),
    /// Only from its own file.
    Nowhere,
}

/// A server with an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote {
    url: String,
    /// The variable with its token; `None` if the server requires no token.
    variable: Option<String>,
}

impl Remote {
    /// The given address, or the default address of `palisade serve`. Refused if the network could see the
    /// token.
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

    /// The entry in the format of a client.
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

    /// The user's next step for the token.
    pub(crate) fn about_token(&self, shape: &Shape, title: &str) -> Option<String> {
        let name = self.variable.as_deref()?;
        Some(match shape.token {
            TokenFrom::Nowhere => format!(
                "{title} reads no variables: add \"headers\": {{ \"Authorization\": \"Bearer ...\" }} to the entry, in a \
                 file that only you can read"
            ),
            TokenFrom::Header(..) | TokenFrom::Field(_) => format!(
                "start {title} with {name} set to a key of `palisade keys create`, or on your own machine to the \
                 server's token (the file `token` of its state directory)"
            ),
        })
    }
}

struct Url {
    text: String,
    /// Encrypted, or only on this machine.
    is_private: bool,
}

fn checked(text: &str) -> Result<Url, SetupError> {
    let bad = |reason: &'static str| SetupError::BadUrl { reason };
    // Clients substitute variables where they find these characters.
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
    // No server has MCP at the root path, so the path was omitted.
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
