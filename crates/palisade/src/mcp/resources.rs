//! Resources: what can be read by address. `palisade://capabilities`, and the log of a run in ranges of bytes.
//!
//! ```text
//! palisade://runs/{id}/log{?stream,offset,limit}     stream: stdout or stderr; both as they came otherwise
//! ```
//! Text is never cut within a character unless the reader asked to begin there; where to read on is said in
//! the `_meta` of the content.

use engine::{LogPart, LogRange, Principal, RunId};
use rmcp::model::{ErrorData, MetaObject, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;
use wire::Stream;

use super::Server;
use super::tools::capabilities;
use crate::render;

/// As clients fill it in.
pub(crate) const LOG_TEMPLATE: &str = "palisade://runs/{id}/log{?stream,offset,limit}";
/// The variable of a run.
pub(crate) const RUN_VARIABLE: &str = "id";

const LOG_PREFIX: &str = "palisade://runs/";
const LOG_SUFFIX: &str = "/log";
const META_KEY: &str = "palisade/range";
/// Bytes of a log given when no limit is asked for, and the most that are given at once.
const LOG_BYTES_DEFAULT: usize = 64 << 10;
const LOG_BYTES_MAX: usize = 1 << 20;

/// Where the log of a run is.
pub(crate) fn log_uri(id: &RunId) -> String {
    format!("{LOG_PREFIX}{}{LOG_SUFFIX}", id.as_str())
}

/// What is there without asking further.
pub(crate) fn list() -> Vec<Resource> {
    let capabilities = Resource::new(capabilities::URI, "capabilities")
        .with_title("What this sandbox can do")
        .with_description("Languages, packages, limits, isolation and policy, as get_capabilities gives them")
        .with_mime_type("application/json");
    vec![capabilities]
}

/// What is there for whoever knows a run.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let log = ResourceTemplate::new(LOG_TEMPLATE, "run_log")
        .with_title("What a run wrote")
        .with_description(
            "The whole output of a run by its run_id, while it runs and afterwards, in ranges of bytes",
        )
        .with_mime_type("text/plain");
    vec![log]
}

/// An address that exists in principle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Capabilities,
    Log(RunId, LogRange),
}

impl Address {
    /// Nothing for what can never be an address.
    pub(crate) fn parse(uri: &str) -> Option<Self> {
        if uri == capabilities::URI {
            return Some(Self::Capabilities);
        }
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let id = path.strip_prefix(LOG_PREFIX)?.strip_suffix(LOG_SUFFIX)?;
        let mut range = LogRange { stream: None, offset: 0, limit: LOG_BYTES_DEFAULT };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=')?;
            match name {
                "stream" => range.stream = Some(stream(value)?),
                "offset" => range.offset = value.parse().ok()?,
                "limit" => {
                    range.limit = value.parse::<usize>().ok().filter(|limit| *limit > 0)?.min(LOG_BYTES_MAX)
                }
                _ => return None,
            }
        }
        RunId::parse(id).map(|id| Self::Log(id, range))
    }
}

fn stream(name: &str) -> Option<Stream> {
    match name {
        "stdout" => Some(Stream::Stdout),
        "stderr" => Some(Stream::Stderr),
        _ => None,
    }
}

/// Content and for how long it may be kept, or why there is none.
pub(crate) async fn read(
    server: &Server,
    principal: &Principal,
    uri: &str,
) -> Result<(ResourceContents, Freshness), ErrorData> {
    match Address::parse(uri) {
        Some(Address::Capabilities) => {
            let content = ResourceContents::text(capabilities::read(server).await, uri);
            Ok((content.with_mime_type("application/json"), Freshness::Settling))
        }
        Some(Address::Log(id, range)) => {
            let offset = range.offset;
            let part = server.runs.log(principal, &id, range).await.map_err(|error| {
                ErrorData::internal_error(format!("the log could not be read: {error}"), None)
            })?;
            let part = part.ok_or_else(|| not_found(uri))?;
            Ok((
                log_content(uri, offset, &part),
                if part.is_running { Freshness::Changing } else { Freshness::Settled },
            ))
        }
        None => Err(not_found(uri)),
    }
}

/// How long a content stays true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    Changing,
    Settling,
    Settled,
}

fn log_content(uri: &str, offset: u64, part: &LogPart) -> ResourceContents {
    // The rest of a character may still be on its way.
    let is_all = part.at_end && !part.is_running;
    let whole = if is_all { part.bytes.len() } else { render::whole_characters(&part.bytes) };
    let next = offset + whole as u64;
    let mut meta = MetaObject::default();
    let range = json!({
        "offset": offset,
        "next_offset": next,
        "total_bytes": part.total,
        "at_end": part.at_end,
        "running": part.is_running,
    });
    meta.insert(META_KEY.to_owned(), range);
    ResourceContents::text(render::visible(&part.bytes[..whole]), uri).with_meta(meta)
}

fn not_found(uri: &str) -> ErrorData {
    let uri: String = uri.chars().take(1024).collect();
    ErrorData::resource_not_found("there is no such resource", Some(json!({ "uri": uri })))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "run_0123456789abcdef0123456789abcdef";

    #[test]
    fn addresses_of_logs_are_read() {
        let range = |uri: &str| match Address::parse(uri) {
            Some(Address::Log(_, range)) => range,
            other => panic!("{uri}: {other:?}"),
        };
        let plain = range(&format!("palisade://runs/{ID}/log"));
        assert_eq!(plain, LogRange { stream: None, offset: 0, limit: LOG_BYTES_DEFAULT });
        let asked = range(&format!("palisade://runs/{ID}/log?stream=stderr&offset=7&limit=9999999"));
        assert_eq!(asked, LogRange { stream: Some(Stream::Stderr), offset: 7, limit: LOG_BYTES_MAX });
    }

    #[test]
    fn everything_else_is_no_address() {
        for uri in [
            "",
            "palisade://",
            "palisade://runs//log",
            "palisade://runs/../capabilities",
            "palisade://runs/run_1/log",
            &format!("palisade://runs/{ID}"),
            &format!("palisade://runs/{ID}/log/"),
            &format!("palisade://runs/{ID}/log?offset=-1"),
            &format!("palisade://runs/{ID}/log?limit=0"),
            &format!("palisade://runs/{ID}/log?other=1"),
            &format!("PALISADE://runs/{ID}/log"),
        ] {
            assert_eq!(Address::parse(uri), None, "{uri}");
        }
    }

    #[test]
    fn a_part_ends_with_a_whole_character_and_says_where_to_read_on() {
        let part =
            LogPart { bytes: "ab€".as_bytes()[..4].to_vec(), total: 9, at_end: false, is_running: true };
        let content = serde_json::to_value(log_content("u", 10, &part)).unwrap();
        assert_eq!(content["text"], "ab");
        assert_eq!(content["_meta"][META_KEY]["next_offset"], 12);
    }
}
