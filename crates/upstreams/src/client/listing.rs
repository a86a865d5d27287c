//! Lists the tools of a server, page by page, within bounds that the server cannot move.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::lines::LINE_BYTES_MAX;
use super::{Bounds, Connection};
use crate::host::{ToolError, ToolErrorCode};

/// The bounds of one listing.
pub(crate) const PAGES_MAX: usize = 100;
pub(crate) const TOOLS_MAX: usize = 10_000;
pub(crate) const LISTING_BYTES_MAX: usize = 32 << 20;
pub(crate) const LISTING_PATIENCE: Duration = Duration::from_secs(30);
const CURSOR_BYTES_MAX: usize = 4096;
/// The longest name of a tool.
pub(crate) const NAME_BYTES_MAX: usize = 128;

/// The definitions of all tools, as the server gave them. Entries without a usable name are left out; of two with the same
/// name the first counts.
pub(crate) async fn tools(
    connection: &Connection,
    deadline: Instant,
) -> Result<Vec<Map<String, Value>>, ToolError> {
    let deadline = deadline.min(Instant::now() + LISTING_PATIENCE);
    let (mut tools, mut names, mut cursors) = (Vec::new(), HashSet::new(), HashSet::new());
    let (mut bytes, mut cursor) = (0, None);
    for _ in 0..PAGES_MAX {
        let mut params = Map::new();
        if let Some(cursor) = &cursor {
            params.insert("cursor".to_owned(), json!(cursor));
        }
        let bounds = Bounds::until(deadline, LINE_BYTES_MAX);
        let mut answer = connection.request("tools/list", params, &bounds).await.map_err(unlisted)?;
        bytes += answer.bytes;
        if bytes > LISTING_BYTES_MAX {
            return Err(beyond(format!("its definitions are larger than {LISTING_BYTES_MAX} bytes")));
        }
        let Some(Value::Array(page)) = answer.result.remove("tools") else {
            return Err(beyond("its list of tools is no list".to_owned()));
        };
        for tool in page {
            let Value::Object(tool) = tool else { continue };
            if name_of(&tool).is_some_and(|name| names.insert(name.to_owned())) {
                tools.push(tool);
            }
        }
        if tools.len() > TOOLS_MAX {
            return Err(beyond(format!("it has more than {TOOLS_MAX} tools")));
        }
        cursor = match answer.result.remove("nextCursor") {
            Some(Value::String(next)) if next.len() > CURSOR_BYTES_MAX => {
                return Err(beyond("a cursor of its list is too long".to_owned()));
            }
            Some(Value::String(next)) if !cursors.insert(next.clone()) => {
                return Err(beyond("its list of tools repeats itself".to_owned()));
            }
            Some(Value::String(next)) => Some(next),
            _ => return Ok(tools),
        };
    }
    Err(beyond(format!("its list of tools has more than {PAGES_MAX} pages")))
}

/// The name of a tool, if programs can use it.
pub(crate) fn name_of(tool: &Map<String, Value>) -> Option<&str> {
    let name = tool.get("name")?.as_str()?;
    let is_plain = !name.chars().any(|one| one.is_control() || one.is_whitespace());
    ((1..=NAME_BYTES_MAX).contains(&name.len()) && is_plain).then_some(name)
}

fn beyond(reason: String) -> ToolError {
    let message = format!("the server cannot be used: {reason}");
    ToolError::new(ToolErrorCode::ServerError, message)
}

fn unlisted(mut error: ToolError) -> ToolError {
    error.message = format!("its tools could not be listed: {}", error.message);
    // Listing has no effect.
    error.may_have_run = false;
    error
}
