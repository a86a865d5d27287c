//! Resources: `palisade://capabilities`, the displays, log and receipt of a run, and the files of a sandbox.
//! Logs and files are read in byte ranges.
//!
//! ```text
//! palisade://runs/{id}/displays/{number}                      counted from 1
//! palisade://runs/{id}/displays/{number}/json                 the data behind it
//! palisade://runs/{id}/log{?stream,offset,limit}              stream: stdout or stderr; both as they came otherwise
//! palisade://runs/{id}/receipt                               a signed note, if the audit is on
//! palisade://sandboxes/{id}/files/{+path}{?offset,limit}      text, or a blob where it is none
//! ```
//! Text is never cut within a character, unless the reader asked to begin there. The `_meta` of the content
//! says where to continue reading.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::access::Notation;
use engine::workspace::{FileError, FilePart, FilePath, Workspaces};
use engine::{Caller, Display, FoundRun, LogPart, LogRange, RunId};
use rmcp::model::{ErrorData, MetaObject, Resource, ResourceContents, ResourceTemplate};
use sandbox::Outcome;
use serde_json::{Value, json};
use wire::Stream;

use super::doors::Door;
use super::tools::capabilities;
use super::{Server, declarations, displays};
use crate::{percent, render};

/// URI template of a run's log.
pub(crate) const LOG_TEMPLATE: &str = "palisade://runs/{id}/log{?stream,offset,limit}";
/// URI template of a run's displays.
pub(crate) const DISPLAY_TEMPLATE: &str = "palisade://runs/{id}/displays/{number}";
/// URI template of a run's receipt.
pub(crate) const RECEIPT_TEMPLATE: &str = "palisade://runs/{id}/receipt";
/// Name of the run's variable in the templates.
pub(crate) const RUN_VARIABLE: &str = "id";

/// URI template of a file.
pub(crate) const FILE_TEMPLATE: &str = "palisade://sandboxes/{id}/files/{+path}{?offset,limit}";

const FILE_PREFIX: &str = "palisade://sandboxes/";
const FILE_MIDDLE: &str = "/files/";
const SANDBOX_ID_BYTES_MAX: usize = 64;
const LOG_PREFIX: &str = "palisade://runs/";
const LOG_SUFFIX: &str = "/log";
const RECEIPT_SUFFIX: &str = "/receipt";
const DISPLAY_PART: &str = "/displays/";
const DISPLAY_JSON_SUFFIX: &str = "/json";
const META_KEY: &str = "palisade/range";
/// Bytes returned when the request has no limit, and the maximum per request.
const RANGE_BYTES_DEFAULT: usize = 64 << 10;
const RANGE_BYTES_MAX: usize = 1 << 20;

/// The address of a run's log.
pub(crate) fn log_uri(id: &RunId) -> String {
    format!("{LOG_PREFIX}{}{LOG_SUFFIX}", id.as_str())
}

/// The address of a run's display, counted from 1.
pub(crate) fn display_uri(id: &RunId, number: usize) -> String {
    format!("{LOG_PREFIX}{}{DISPLAY_PART}{number}", id.as_str())
}

/// The address of the data behind a run's display.
pub(crate) fn display_json_uri(id: &RunId, number: usize) -> String {
    display_uri(id, number) + DISPLAY_JSON_SUFFIX
}

/// The address of a file in a sandbox.
pub(crate) fn file_uri(sandbox_id: &str, path: &FilePath) -> String {
    format!("{FILE_PREFIX}{sandbox_id}{FILE_MIDDLE}{}", percent::encode(path.as_str()))
}

/// Whether the text has the form of a sandbox id and can be part of an address.
pub(crate) fn is_sandbox_id(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    is_plain && (1..=SANDBOX_ID_BYTES_MAX).contains(&text.len())
}

/// The resources with fixed addresses, behind doors that the caller sees.
pub(crate) fn list(is_seen: impl Fn(Door) -> bool) -> Vec<Resource> {
    let capabilities = Resource::new(capabilities::URI, "capabilities")
        .with_title("What this sandbox can do")
        .with_description("Languages, packages, limits, isolation and policy, as get_capabilities gives them")
        .with_mime_type("application/json");
    Some(capabilities).filter(|_| is_seen(Door::Capabilities)).into_iter().collect()
}

/// The templates for runs and for files of sandboxes, behind doors that the caller sees.
pub(crate) fn templates(is_seen: impl Fn(Door) -> bool) -> Vec<ResourceTemplate> {
    let log = ResourceTemplate::new(LOG_TEMPLATE, "run_log")
        .with_title("What a run wrote")
        .with_description(
            "The whole output of a run by its run_id, while it runs and afterwards, in ranges of bytes",
        )
        .with_mime_type("text/plain");
    let display = ResourceTemplate::new(DISPLAY_TEMPLATE, "run_display")
        .with_title("What a run showed")
        .with_description(
            "A figure, table or drawing that a run showed, by its run_id and its number from 1; \
             with /json behind it, the data of a table or chart",
        );
    let receipt = ResourceTemplate::new(RECEIPT_TEMPLATE, "run_receipt")
        .with_title("The receipt of a run")
        .with_description(
            "A signed record of an ended run: digests of code, inputs and output, policy, isolation, place in the audit",
        )
        .with_mime_type("text/plain");
    let file = ResourceTemplate::new(FILE_TEMPLATE, "sandbox_file")
        .with_title("A file of a sandbox")
        .with_description("A file of a sandbox's workspace, in ranges of bytes");
    let all = [
        (Door::Log, log),
        (Door::Display, display),
        (Door::Receipt, receipt),
        (Door::File, file),
        (Door::Tools, declarations::template()),
    ];
    all.into_iter().filter(|(door, _)| is_seen(*door)).map(|(_, template)| template).collect()
}

/// A well-formed address; the resource itself may not exist.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Capabilities,
    Log(RunId, LogRange),
    Receipt(RunId),
    Display(RunId, usize),
    DisplayJson(RunId, usize),
    File { sandbox_id: String, path: FilePath, offset: u64, limit: usize },
    Tools(String, Notation),
}

impl Address {
    /// Returns `None` for text that is never a valid address.
    pub(crate) fn parse(uri: &str) -> Option<Self> {
        if uri == capabilities::URI {
            return Some(Self::Capabilities);
        }
        if let Some((server, notation)) = declarations::parse(uri) {
            return Some(Self::Tools(server, notation));
        }
        if let Some((id, number)) =
            uri.strip_prefix(LOG_PREFIX).and_then(|rest| rest.split_once(DISPLAY_PART))
        {
            let id = RunId::parse(id)?;
            return match number.strip_suffix(DISPLAY_JSON_SUFFIX) {
                Some(number) => Some(Self::DisplayJson(id, number.parse().ok()?)),
                None => Some(Self::Display(id, number.parse().ok()?)),
            };
        }
        let receipt = uri.strip_prefix(LOG_PREFIX).and_then(|rest| rest.strip_suffix(RECEIPT_SUFFIX));
        if let Some(id) = receipt {
            return RunId::parse(id).map(Self::Receipt);
        }
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        if let Some(rest) = path.strip_prefix(FILE_PREFIX) {
            return Self::file(rest, query);
        }
        let id = path.strip_prefix(LOG_PREFIX)?.strip_suffix(LOG_SUFFIX)?;
        let mut range = LogRange { stream: None, offset: 0, limit: RANGE_BYTES_DEFAULT };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=')?;
            match name {
                "stream" => range.stream = Some(stream(value)?),
                "offset" => range.offset = value.parse().ok()?,
                "limit" => range.limit = asked_limit(value)?,
                _ => return None,
            }
        }
        RunId::parse(id).map(|id| Self::Log(id, range))
    }

    /// The call of a tool that gives the same.
    fn as_call(&self) -> (Door, Value) {
        let of_run = |id: &RunId| json!({ "run_id": id.as_str() });
        match self {
            Self::Capabilities => (Door::Capabilities, json!({})),
            Self::Log(id, _) => (Door::Log, of_run(id)),
            Self::Receipt(id) => (Door::Receipt, of_run(id)),
            Self::Tools(server, _) => (Door::Tools, json!({ "servers": [server] })),
            Self::Display(id, _) | Self::DisplayJson(id, _) => (Door::Display, of_run(id)),
            Self::File { sandbox_id, path, offset, limit } => {
                let path = path.as_str();
                let asked =
                    json!({ "sandbox_id": sandbox_id, "path": path, "offset": offset, "limit": limit });
                (Door::File, asked)
            }
        }
    }

    fn file(rest: &str, query: &str) -> Option<Self> {
        let (sandbox_id, path) = rest.split_once(FILE_MIDDLE)?;
        let path = FilePath::parse(&percent::decode(path)?).ok()?;
        let (mut offset, mut limit) = (0, RANGE_BYTES_DEFAULT);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=')? {
                ("offset", value) => offset = value.parse().ok()?,
                ("limit", value) => limit = asked_limit(value)?,
                _ => return None,
            }
        }
        let sandbox_id = Some(sandbox_id).filter(|id| is_sandbox_id(id))?.to_owned();
        Some(Self::File { sandbox_id, path, offset, limit })
    }
}

fn asked_limit(value: &str) -> Option<usize> {
    value.parse::<usize>().ok().filter(|limit| *limit > 0).map(|limit| limit.min(RANGE_BYTES_MAX))
}

fn stream(name: &str) -> Option<Stream> {
    match name {
        "stdout" => Some(Stream::Stdout),
        "stderr" => Some(Stream::Stderr),
        _ => None,
    }
}

/// The content and its cache lifetime, or the error. It is judged as the tool that gives the same.
pub(crate) async fn read(
    server: &Server,
    caller: &Caller,
    uri: &str,
) -> Result<(ResourceContents, Freshness), ErrorData> {
    let address = Address::parse(uri).ok_or_else(|| not_found(uri))?;
    let (door, asked) = address.as_call();
    let opened = door.open(server.engine.gatekeeper(), caller, asked).await;
    let admitted = opened.map_err(|closed| closed.into_error(not_found(uri)))?;
    let content = read_admitted(server, caller, (address, uri)).await;
    // What is not there is refused by the tool, and not counted.
    admitted.settle(content.is_err().then_some(Outcome::Refused)).await;
    content
}

async fn read_admitted(
    server: &Server,
    caller: &Caller,
    (address, uri): (Address, &str),
) -> Result<(ResourceContents, Freshness), ErrorData> {
    match address {
        Address::Capabilities => {
            let content = ResourceContents::text(capabilities::read(server).await, uri);
            Ok((content.with_mime_type("application/json"), Freshness::Settling))
        }
        Address::Log(id, range) => {
            let offset = range.offset;
            let part = server.runs.log(caller, &id, range).await.map_err(|error| {
                ErrorData::internal_error(format!("the log could not be read: {}", error.message), None)
            })?;
            let part = part.ok_or_else(|| not_found(uri))?;
            Ok((
                log_content(uri, offset, &part),
                if part.is_running { Freshness::Changing } else { Freshness::Settled },
            ))
        }
        Address::Receipt(id) => {
            let receipt = server.runs.receipt(caller, &id).await;
            let receipt = receipt.map_err(|error| {
                ErrorData::invalid_request(error.message.clone(), Some(json!({ "error": error })))
            })?;
            let text = receipt.ok_or_else(|| not_found(uri))?;
            Ok((ResourceContents::text(text, uri).with_mime_type("text/plain"), Freshness::Settled))
        }
        Address::Display(id, number) => {
            let display = read_display(server, caller, (&id, number)).await?.ok_or_else(|| not_found(uri))?;
            Ok((displays::content(&display, uri), Freshness::Settled))
        }
        Address::DisplayJson(id, number) => {
            let display = read_display(server, caller, (&id, number)).await?;
            let json = display.and_then(|display| display.json).ok_or_else(|| not_found(uri))?;
            let content = ResourceContents::text(json, uri).with_mime_type("application/json");
            Ok((content, Freshness::Settled))
        }
        Address::Tools(name, notation) => {
            let content = declarations::read((&server.engine, caller), (&name, notation), uri).await;
            content.map(|content| (content, Freshness::Settling))
        }
        Address::File { sandbox_id, path, offset, limit } => {
            let part = read_file(server.workspaces(), caller, (&sandbox_id, &path), (offset, limit)).await?;
            let part = part.ok_or_else(|| not_found(uri))?;
            Ok((file_content(uri, &part), Freshness::Changing))
        }
    }
}

/// The display of that number, counted from 1.
async fn read_display(
    server: &Server,
    caller: &Caller,
    (id, number): (&RunId, usize),
) -> Result<Option<Display>, ErrorData> {
    let found = server.runs.find(caller, id).await.map_err(|error| {
        ErrorData::internal_error(format!("the run could not be read: {}", error.message), None)
    })?;
    let Some(FoundRun::Finished(run)) = found else { return Ok(None) };
    let display = number.checked_sub(1).and_then(|index| run.result.execution().displays.get(index));
    Ok(display.cloned())
}

/// How long a content remains valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    Changing,
    Settling,
    Settled,
}

fn log_content(uri: &str, offset: u64, part: &LogPart) -> ResourceContents {
    // The rest of a character may still arrive.
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

/// Returns `None` if this caller has no such file.
async fn read_file(
    workspaces: &dyn Workspaces,
    caller: &Caller,
    (sandbox_id, path): (&str, &FilePath),
    (offset, limit): (u64, usize),
) -> Result<Option<FilePart>, ErrorData> {
    let failed =
        |reason: String| ErrorData::internal_error(format!("the file could not be read: {reason}"), None);
    let found = workspaces.workspace(caller, sandbox_id).await.map_err(|error| failed(error.message))?;
    let Some(workspace) = found else { return Ok(None) };
    match workspace.read(path, offset, limit).await {
        Ok(part) => Ok(Some(part)),
        Err(error @ (FileError::Failed(_) | FileError::Disturbed | FileError::Unavailable { .. })) => {
            Err(failed(error.to_string()))
        }
        // A path that is no readable file is not a resource.
        Err(_) => Ok(None),
    }
}

fn file_content(uri: &str, part: &FilePart) -> ResourceContents {
    let whole = if part.at_end { part.bytes.len() } else { render::whole_characters(&part.bytes) };
    let text =
        std::str::from_utf8(&part.bytes[..whole]).ok().filter(|text| !text.contains('\0') && whole > 0);
    let (content, count) = match text {
        Some(text) => (ResourceContents::text(text, uri), whole),
        None => (ResourceContents::blob(STANDARD.encode(&part.bytes), uri), part.bytes.len()),
    };
    let range = json!({
        "offset": part.offset,
        "next_offset": part.offset + count as u64,
        "total_bytes": part.size_bytes,
        "at_end": part.at_end,
    });
    let mut meta = MetaObject::default();
    meta.insert(META_KEY.to_owned(), range);
    content.with_mime_type(part.media_type.as_ref()).with_meta(meta)
}

pub(crate) fn not_found(uri: &str) -> ErrorData {
    let uri: String = uri.chars().take(1024).collect();
    ErrorData::resource_not_found("there is no such resource", Some(json!({ "uri": uri })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_workspaces::{SANDBOX, TestWorkspaces};
    use engine::Principal;

    const ID: &str = "run_0123456789abcdef0123456789abcdef";

    #[test]
    fn addresses_of_logs_are_read() {
        let range = |uri: &str| match Address::parse(uri) {
            Some(Address::Log(_, range)) => range,
            other => panic!("{uri}: {other:?}"),
        };
        let plain = range(&format!("palisade://runs/{ID}/log"));
        assert_eq!(plain, LogRange { stream: None, offset: 0, limit: RANGE_BYTES_DEFAULT });
        let asked = range(&format!("palisade://runs/{ID}/log?stream=stderr&offset=7&limit=9999999"));
        assert_eq!(asked, LogRange { stream: Some(Stream::Stderr), offset: 7, limit: RANGE_BYTES_MAX });
    }

    #[test]
    fn addresses_of_displays_are_read() {
        let id = RunId::parse(ID).unwrap();
        assert_eq!(Address::parse(&display_uri(&id, 3)), Some(Address::Display(id.clone(), 3)));
        assert_eq!(Address::parse(&display_json_uri(&id, 3)), Some(Address::DisplayJson(id, 3)));
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
            &format!("palisade://runs/{ID}/displays/"),
            &format!("palisade://runs/{ID}/displays/x"),
            "palisade://runs/run_1/displays/1",
        ] {
            assert_eq!(Address::parse(uri), None, "{uri}");
        }
    }

    #[test]
    fn addresses_of_files_are_read_strictly() {
        let path = FilePath::parse("out/ä b.csv").unwrap();
        let uri = file_uri("sbx_1", &path);
        assert_eq!(uri, "palisade://sandboxes/sbx_1/files/out/%C3%A4%20b.csv");
        let wanted = |offset, limit| {
            Some(Address::File { sandbox_id: "sbx_1".to_owned(), path: path.clone(), offset, limit })
        };
        assert_eq!(Address::parse(&uri), wanted(0, RANGE_BYTES_DEFAULT));
        assert_eq!(Address::parse(&format!("{uri}?limit=9999999&offset=5")), wanted(5, RANGE_BYTES_MAX));
        for bad in [
            "palisade://sandboxes/sbx_1/files/",
            "palisade://sandboxes/sbx_1/files",
            "palisade://sandboxes//files/a",
            "palisade://sandboxes/a b/files/a",
            "palisade://sandboxes/sbx_1/files/..",
            "palisade://sandboxes/sbx_1/files/a/%2e%2e/b",
            "palisade://sandboxes/sbx_1/files/%2Fetc/passwd",
            "palisade://sandboxes/sbx_1/files//etc/passwd",
            "palisade://sandboxes/sbx_1/files/a%zz",
            "palisade://sandboxes/sbx_1/files/a b",
            "palisade://sandboxes/sbx_1/files/a#b",
            "palisade://sandboxes/sbx_1/files/a?offset=-1",
            "palisade://sandboxes/sbx_1/files/a?limit=0",
            "palisade://sandboxes/sbx_1/files/a?stream=stdout",
            &format!("palisade://sandboxes/{}/files/a", "x".repeat(65)),
        ] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn files_are_text_or_blobs_and_say_where_to_read_on() {
        let workspaces = TestWorkspaces::new();
        workspaces.put("text.txt", "ab€");
        workspaces.put("blob.bin", b"\xff\0");
        let read = async |name: &str, limit| {
            let path = FilePath::parse(name).unwrap();
            let part = read_file(&workspaces, &Caller::local(), (SANDBOX, &path), (0, limit)).await;
            part.unwrap().map(|part| serde_json::to_value(file_content("u", &part)).unwrap())
        };
        let text = read("text.txt", 4).await.unwrap();
        assert_eq!((&text["text"], &text["_meta"][META_KEY]["next_offset"]), (&json!("ab"), &json!(2)));
        let blob = read("blob.bin", 100).await.unwrap();
        assert_eq!((&blob["blob"], &blob["_meta"][META_KEY]["at_end"]), (&json!("/wA="), &json!(true)));
        assert_eq!(read("gone", 1).await, None);
        let path = FilePath::parse("text.txt").unwrap();
        let stranger =
            read_file(&workspaces, &Caller::owner(Principal::anonymous()), (SANDBOX, &path), (0, 1)).await;
        assert_eq!(stranger.unwrap(), None);
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
