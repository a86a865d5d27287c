//! Which authorization server speaks for an upstream server: RFC 9728, then RFC 8414 or OpenID Connect discovery.
//!
//! Every document is a stranger's. The resource must be the upstream server itself, the issuer must be the one that was
//! asked, and the authorization server must support PKCE with S256.

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, Uri};
use serde_json::{Map, Value};

use super::failed;
use super::fetch::{Document, Sent, address, ask};
use crate::host::ToolError;
use crate::spec::is_loopback;
use crate::tls::Dialer;

/// What a login needs to know.
#[derive(Debug)]
pub(super) struct Discovered {
    /// The resource that tokens are for (RFC 8707).
    pub(super) resource: String,
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Uri,
    pub(super) token_endpoint: Uri,
    pub(super) registration_endpoint: Option<Uri>,
    /// Whether clients may be named by the address of their metadata.
    pub(super) takes_metadata_documents: bool,
    /// Whether the answer names the issuer (RFC 9207).
    pub(super) names_issuer: bool,
    /// What the resource suggests to ask for.
    pub(super) scopes: Vec<String>,
}

/// Looks for the authorization server of a URL.
pub(super) async fn discover(dialer: &Dialer, url: &Uri) -> Result<Discovered, ToolError> {
    let challenged = ask(dialer, url, Sent::Nothing).await?;
    let challenge = Challenge::of(&challenged.headers);
    let metadata = resource_metadata(dialer, url, challenge.metadata.as_deref()).await?;
    let resource = text(&metadata, "resource").unwrap_or_else(|| plain(url));
    check_resource(&resource, url)?;
    let issuer = metadata.get("authorization_servers").and_then(|all| all.get(0)).and_then(Value::as_str);
    // Servers of earlier revisions are their own authorization server.
    let issuer = issuer.map_or_else(|| origin(url), str::to_owned);
    named(&issuer, url)?;
    let server = server_metadata(dialer, &issuer).await?;
    let endpoint = |name: &str| text(&server, name).map(|text| named(&text, url)).transpose();
    let missing = |name: &str| failed(format!("the authorization server names no {name}"));
    let methods = server.get("code_challenge_methods_supported").and_then(Value::as_array);
    if !methods.is_some_and(|all| all.iter().any(|one| one == "S256")) {
        return Err(failed("the authorization server does not support PKCE with S256"));
    }
    let flag = |name: &str| server.get(name).and_then(Value::as_bool).unwrap_or(false);
    let scopes = challenge.scopes.unwrap_or_else(|| texts(&metadata, "scopes_supported"));
    Ok(Discovered {
        resource,
        issuer,
        authorization_endpoint: endpoint("authorization_endpoint")?
            .ok_or_else(|| missing("authorization_endpoint"))?,
        token_endpoint: endpoint("token_endpoint")?.ok_or_else(|| missing("token_endpoint"))?,
        registration_endpoint: endpoint("registration_endpoint")?,
        takes_metadata_documents: flag("client_id_metadata_document_supported"),
        names_issuer: flag("authorization_response_iss_parameter_supported"),
        scopes,
    })
}

/// An address that a document of a server names. A server elsewhere must not lead a login to this machine.
fn named(text: &str, url: &Uri) -> Result<Uri, ToolError> {
    let address = address(text)?;
    match is_loopback(&address) && !is_loopback(url) {
        true => Err(failed("the server names an address on this machine for the login")),
        false => Ok(address),
    }
}

/// What a refusal says about a login.
#[derive(Debug, Default, PartialEq, Eq)]
struct Challenge {
    metadata: Option<String>,
    scopes: Option<Vec<String>>,
}

impl Challenge {
    fn of(headers: &HeaderMap) -> Self {
        let texts = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let text = texts.collect::<Vec<_>>().join(", ");
        let parameter = |name: &str| {
            let start = text.find(&format!("{name}=\""))? + name.len() + 2;
            let end = text[start..].find('"')? + start;
            Some(text[start..end].to_owned())
        };
        let scopes = parameter("scope").map(|all| all.split_whitespace().map(str::to_owned).collect());
        Self { metadata: parameter("resource_metadata"), scopes }
    }
}

async fn resource_metadata(
    dialer: &Dialer,
    url: &Uri,
    named: Option<&str>,
) -> Result<Map<String, Value>, ToolError> {
    const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
    let places = match named {
        Some(named) => {
            let named = address(named)?;
            if origin(&named) != origin(url) {
                return Err(failed("the server names metadata of another host"));
            }
            vec![named]
        }
        None => {
            let path = url.path().trim_end_matches('/');
            let at = |path: &str| address(&format!("{}{WELL_KNOWN}{path}", origin(url)));
            vec![at(path)?, at("")?]
        }
    };
    for place in places {
        let document = ask(dialer, &place, Sent::Nothing).await?;
        if document.status.is_success() {
            return Ok(document.object());
        }
    }
    Ok(Map::new())
}

async fn server_metadata(dialer: &Dialer, issuer: &str) -> Result<Map<String, Value>, ToolError> {
    let url = address(issuer)?;
    let (base, path) = (origin(&url), url.path().trim_end_matches('/'));
    let places = [
        format!("{base}/.well-known/oauth-authorization-server{path}"),
        format!("{base}/.well-known/openid-configuration{path}"),
        format!("{base}{path}/.well-known/openid-configuration"),
    ];
    for place in places {
        let document: Document = ask(dialer, &address(&place)?, Sent::Nothing).await?;
        if !document.status.is_success() {
            continue;
        }
        let metadata = document.object();
        // Otherwise one authorization server could speak for another (RFC 8414, section 3.3).
        return match text(&metadata, "issuer")
            .filter(|told| told.trim_end_matches('/') == issuer.trim_end_matches('/'))
        {
            Some(_) => Ok(metadata),
            None => Err(failed("the authorization server has another issuer than its address")),
        };
    }
    Err(failed("the authorization server has no metadata"))
}

/// The resource is the URL, or the part of the server above it.
fn check_resource(resource: &str, url: &Uri) -> Result<(), ToolError> {
    let told = address(resource)?;
    let (above, path) = (told.path().trim_end_matches('/'), url.path());
    let is_above = path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match origin(&told) == origin(url) && is_above {
        true => Ok(()),
        false => Err(failed("the metadata is about another resource")),
    }
}

fn origin(url: &Uri) -> String {
    let authority = url.authority().map(|one| one.as_str()).unwrap_or_default();
    format!("{}://{}", url.scheme_str().unwrap_or("https"), authority.to_ascii_lowercase())
}

fn plain(url: &Uri) -> String {
    format!("{}{}", origin(url), url.path().trim_end_matches('/'))
}

pub(super) fn text(fields: &Map<String, Value>, name: &str) -> Option<String> {
    fields.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn texts(fields: &Map<String, Value>, name: &str) -> Vec<String> {
    let all = fields.get(name).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_names_the_metadata_and_the_scopes() {
        let mut headers = HeaderMap::new();
        let text = "Bearer resource_metadata=\"https://a.example/m\", scope=\"read write\"";
        headers.insert(WWW_AUTHENTICATE, text.parse().unwrap());
        let told = Challenge::of(&headers);
        assert_eq!(told.metadata.as_deref(), Some("https://a.example/m"));
        assert_eq!(told.scopes.unwrap(), ["read", "write"]);
        assert_eq!(Challenge::of(&HeaderMap::new()), Challenge::default());
    }

    #[test]
    fn a_server_elsewhere_does_not_lead_a_login_to_this_machine() {
        let (elsewhere, here): (Uri, Uri) =
            ("https://a.example/mcp".parse().unwrap(), "http://127.0.0.1:8000/mcp".parse().unwrap());
        for place in ["http://127.0.0.1:6379/token", "https://localhost/token", "http://[::1]/token"] {
            assert!(named(place, &elsewhere).is_err(), "{place}");
            named(place, &here).unwrap();
        }
        named("https://login.example/token", &elsewhere).unwrap();
        assert!(named("http://login.example/token", &elsewhere).is_err());
    }

    #[test]
    fn metadata_of_another_resource_is_refused() {
        let url: Uri = "https://a.example/team/mcp".parse().unwrap();
        for fine in [
            "https://a.example/team/mcp",
            "https://A.example/team",
            "https://a.example",
            "https://a.example/",
        ] {
            check_resource(fine, &url).unwrap();
        }
        for other in [
            "https://b.example/team/mcp",
            "https://a.example/te",
            "http://a.example/team/mcp",
            "https://a.example/other",
        ] {
            assert!(check_resource(other, &url).is_err(), "{other}");
        }
    }
}
