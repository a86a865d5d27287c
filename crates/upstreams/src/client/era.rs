//! The two eras of the protocol, and how a connection finds out which one a server speaks.
//!
//! 2026-07-28 has no handshake: every request says its version. Before, a connection begins with `initialize`. A server of
//! unknown era is asked `server/discover` first. Any refusal leads to `initialize`; silence does too, after a moment,
//! while the first question stays open. Whichever is answered first decides, and an answer that comes late is for a
//! request that is no longer open.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Answer, Bounds, Connection};
use crate::host::{ToolError, ToolErrorCode};
use crate::{clean, redact};

/// The version without a handshake.
pub(crate) const STATELESS_VERSION: &str = "2026-07-28";
/// The version that is offered in a handshake, and those that are accepted.
pub(crate) const HANDSHAKE_VERSION: &str = "2025-11-25";
const HANDSHAKE_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", HANDSHAKE_VERSION];
/// How long a server of unknown era may be silent before it is offered a handshake as well.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);
/// The largest answer.
const HELLO_BYTES_MAX: usize = 256 << 10;
const INSTRUCTIONS_CHARACTERS_MAX: usize = 600;
const NAME_CHARACTERS_MAX: usize = 100;

/// How a server is talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Era {
    /// Up to 2025-11-25: `initialize` first.
    Handshake,
    /// From 2026-07-28: every request stands alone.
    Stateless,
}

/// What a server said about itself, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) era: Era,
    pub(crate) version: String,
    pub(crate) name: String,
    pub(crate) instructions: String,
    pub(crate) has_tools: bool,
}

impl Hello {
    /// Without these credentials, and then as lines of a bounded length.
    pub(crate) fn cleaned(self, secrets: &[String]) -> Self {
        let text = |text: String, most: usize| clean::line(&redact::text(text, secrets), most);
        Self {
            name: text(self.name, NAME_CHARACTERS_MAX),
            instructions: text(self.instructions, INSTRUCTIONS_CHARACTERS_MAX),
            ..self
        }
    }
}

/// Adds what a request of this era carries.
pub(crate) fn stamp(era: Option<Era>, params: &mut Map<String, Value>) {
    if era != Some(Era::Stateless) {
        return;
    }
    let meta = params.entry("_meta").or_insert_with(|| json!({}));
    if let Value::Object(meta) = meta {
        meta.insert("io.modelcontextprotocol/protocolVersion".to_owned(), json!(STATELESS_VERSION));
        meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), json!({}));
        meta.insert("io.modelcontextprotocol/clientInfo".to_owned(), client_info());
    }
}

fn client_info() -> Value {
    json!({"name": "palisade", "version": env!("CARGO_PKG_VERSION")})
}

/// Finds out how to talk to a server, and tells the connection.
pub(crate) async fn negotiate(
    connection: &Connection,
    remembered: Option<Era>,
    deadline: Instant,
) -> Result<Hello, ToolError> {
    let hello = match remembered {
        Some(Era::Handshake) => match initialize(connection, deadline).await {
            Err(error) if is_refusal(&error) => discover(connection, deadline).await?,
            other => other?,
        },
        Some(Era::Stateless) | None => probe(connection, deadline).await?,
    };
    connection.agree(hello.era);
    if hello.era == Era::Handshake {
        connection.notify("notifications/initialized", Map::new()).await;
    }
    Ok(hello)
}

async fn probe(connection: &Connection, deadline: Instant) -> Result<Hello, ToolError> {
    let first = discover(connection, deadline);
    tokio::pin!(first);
    tokio::select! {
        outcome = &mut first => return match outcome {
            Err(error) if is_refusal(&error) => initialize(connection, deadline).await,
            other => other,
        },
        () = tokio::time::sleep(PROBE_PATIENCE) => {}
    }
    let second = initialize(connection, deadline);
    tokio::pin!(second);
    tokio::select! {
        outcome = &mut first => match outcome {
            Err(error) if is_refusal(&error) => second.await,
            other => other,
        },
        outcome = &mut second => match outcome {
            Err(error) if is_refusal(&error) => first.await,
            other => other,
        },
    }
}

/// Whether the server answered, with an error: it speaks, but not this way.
fn is_refusal(error: &ToolError) -> bool {
    matches!(error.code, ToolErrorCode::ServerError | ToolErrorCode::BadArguments)
}

async fn discover(connection: &Connection, deadline: Instant) -> Result<Hello, ToolError> {
    let mut params = Map::new();
    stamp(Some(Era::Stateless), &mut params);
    let bounds = Bounds::until(deadline, HELLO_BYTES_MAX);
    let Answer { result, .. } = connection.request("server/discover", params, &bounds).await?;
    let versions = result.get("supportedVersions").and_then(Value::as_array);
    let speaks = |one: &Value| one.as_str() == Some(STATELESS_VERSION);
    if !versions.is_some_and(|all| all.iter().any(speaks)) {
        let message = format!("the server does not speak version {STATELESS_VERSION}");
        return Err(ToolError::new(ToolErrorCode::ServerError, message));
    }
    let info = result.get("_meta").and_then(|meta| meta.get("io.modelcontextprotocol/serverInfo"));
    Ok(hello(&result, info, Era::Stateless, STATELESS_VERSION))
}

async fn initialize(connection: &Connection, deadline: Instant) -> Result<Hello, ToolError> {
    let params =
        json!({"protocolVersion": HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": client_info()});
    let Value::Object(params) = params else { return Err(ToolError::new(ToolErrorCode::ServerError, "")) };
    let bounds = Bounds::until(deadline, HELLO_BYTES_MAX);
    let Answer { result, .. } = connection.request("initialize", params, &bounds).await?;
    let version = result.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
    let Some(version) = HANDSHAKE_VERSIONS.into_iter().find(|known| *known == version) else {
        let message = format!("the server answered with version `{version}`");
        return Err(ToolError::new(ToolErrorCode::ServerError, message));
    };
    Ok(hello(&result, result.get("serverInfo"), Era::Handshake, version))
}

fn hello(result: &Map<String, Value>, info: Option<&Value>, era: Era, version: &str) -> Hello {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = info.and_then(|info| info.get("name"));
    Hello {
        era,
        version: version.to_owned(),
        name: text(name),
        instructions: text(result.get("instructions")),
        has_tools: result.get("capabilities").is_some_and(|all| all.get("tools").is_some()),
    }
}
