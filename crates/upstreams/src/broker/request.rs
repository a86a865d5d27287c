//! One line of a program, checked. [`super::serve`] calls it; nothing here has an effect.

use serde_json::{Map, Value};

use super::REQUEST_ITEMS_MAX;
use super::call::CallError;
use crate::Dialect;
use crate::client::message::items;

/// The longest id of a request, if it is text.
const ID_BYTES_MAX: usize = 64;
/// The longest name of a server and a tool together, and the longest address of a resource.
const NAME_BYTES_MAX: usize = 2048;
/// The most tools that a search shows.
const FIND_LIMIT_MAX: u64 = 100;
const FIND_LIMIT_DEFAULT: u64 = 20;
/// The most names in a report of calls that nothing waited for.
const LEFT_MAX: usize = 64;

/// A request with its id.
#[derive(Debug)]
pub(super) struct RequestLine {
    /// A number or a short text; null if the line has none.
    pub(super) id: Value,
    pub(super) request: Result<Request, CallError>,
}

/// What a program asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Request {
    Call {
        server: String,
        tool: String,
        arguments: Map<String, Value>,
        timeout_ms: Option<u64>,
    },
    Find {
        words: String,
        servers: Option<Vec<String>>,
        dialect: Dialect,
        limit: usize,
    },
    Describe {
        server: String,
        tool: String,
    },
    Servers,
    Read {
        server: String,
        uri: String,
    },
    Save {
        name: String,
        about: String,
        language: String,
        source: String,
    },
    /// One function, or the list of all.
    Saved(Option<String>),
    Memory(Memory),
    /// The id of the call to cancel.
    Cancel(Value),
    /// Calls that nothing waited for.
    Left(Vec<String>),
    /// The library of a language.
    Client(String),
}

/// What a program does with its memory.
#[derive(Debug, PartialEq)]
pub(super) enum Memory {
    Get(String),
    Set(String, Value),
    Delete(String),
    List,
}

/// Parses one line.
pub(super) fn parse(line: &[u8]) -> RequestLine {
    let bad = |message: &str| RequestLine { id: Value::Null, request: Err(CallError::bad(message)) };
    if items(line) > REQUEST_ITEMS_MAX {
        return bad("the request has too many values");
    }
    // The parser refuses more than 128 levels.
    let Ok(Value::Object(mut object)) = serde_json::from_slice::<Value>(line) else {
        return bad("a request is one JSON object on one line");
    };
    let id = match object.remove("id") {
        Some(id @ Value::Number(_)) if id.to_string().len() <= ID_BYTES_MAX => id,
        Some(Value::String(id)) if id.len() <= ID_BYTES_MAX => Value::String(id),
        _ => return bad("a request needs an `id`: a number or a text of at most 64 bytes"),
    };
    RequestLine { id, request: read(object) }
}

fn read(mut object: Map<String, Value>) -> Result<Request, CallError> {
    const KINDS: [&str; 10] =
        ["call", "find", "describe", "servers", "read", "saved", "save", "memory", "cancel", "left"];
    // `servers` is also a property of `find`.
    let kind = KINDS.iter().chain(&["client"]).find(|kind| object.contains_key(**kind)).copied();
    let Some(kind) = kind else {
        return Err(CallError::bad(&format!("a request has one of {}", KINDS.join(", "))));
    };
    let value = object.remove(kind).unwrap_or_default();
    match kind {
        "call" => {
            let (server, tool) = tool_of(&value)?;
            let arguments = match object.remove("args") {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(arguments)) => arguments,
                Some(_) => return Err(CallError::bad("`args` must be an object")),
            };
            let timeout_ms = object.remove("timeout_ms").and_then(|value| value.as_u64());
            Ok(Request::Call { server, tool, arguments, timeout_ms })
        }
        "find" => {
            let words = text("find", value)?;
            let servers = object.remove("servers").map(|value| texts("servers", value)).transpose()?;
            let limit = object.remove("limit").and_then(|value| value.as_u64());
            let limit = limit.unwrap_or(FIND_LIMIT_DEFAULT).clamp(1, FIND_LIMIT_MAX);
            let dialect = match object.get("language").and_then(Value::as_str) {
                Some("typescript" | "javascript") => Dialect::TypeScript,
                _ => Dialect::Python,
            };
            Ok(Request::Find { words, servers, dialect, limit: usize::try_from(limit).unwrap_or(1) })
        }
        "describe" => tool_of(&value).map(|(server, tool)| Request::Describe { server, tool }),
        "servers" => Ok(Request::Servers),
        "read" => pair("read", &value).map(|(server, uri)| Request::Read { server, uri }),
        "save" => save(value),
        "saved" => match value {
            Value::String(name) => Ok(Request::Saved(Some(bounded("saved", name)?))),
            _ => Ok(Request::Saved(None)),
        },
        "memory" => memory(value).map(Request::Memory),
        "cancel" => Ok(Request::Cancel(value)),
        "left" => {
            let mut names = texts("left", value)?;
            names.truncate(LEFT_MAX);
            Ok(Request::Left(names))
        }
        _ => text("client", value).map(Request::Client),
    }
}

fn save(value: Value) -> Result<Request, CallError> {
    let Value::Object(mut given) = value else { return Err(CallError::bad("`save` must be an object")) };
    let mut take = |name: &str| match given.remove(name) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(CallError::bad(&format!("`save.{name}` must be text"))),
    };
    Ok(Request::Save {
        name: take("name")?,
        about: take("about")?,
        language: take("language")?,
        source: take("source")?,
    })
}

fn memory(value: Value) -> Result<Memory, CallError> {
    let Value::Object(mut given) = value else { return Ok(Memory::List) };
    if let Some(key) = given.remove("get") {
        return text("memory.get", key).map(Memory::Get);
    }
    if let Some(key) = given.remove("delete") {
        return text("memory.delete", key).map(Memory::Delete);
    }
    match given.remove("set") {
        Some(key) => Ok(Memory::Set(text("memory.set", key)?, given.remove("value").unwrap_or_default())),
        None => Ok(Memory::List),
    }
}

/// `"server.tool"`, or `["server", "tool"]` for names that contain dots.
fn tool_of(value: &Value) -> Result<(String, String), CallError> {
    match value {
        Value::String(name) if name.len() <= NAME_BYTES_MAX => match name.split_once('.') {
            Some((server, tool)) if !server.is_empty() && !tool.is_empty() => {
                Ok((server.to_owned(), tool.to_owned()))
            }
            _ => Err(CallError::bad("a tool is named `server.tool`")),
        },
        other => pair("call", other),
    }
}

fn pair(what: &str, value: &Value) -> Result<(String, String), CallError> {
    if let Value::Array(parts) = value
        && let [Value::String(first), Value::String(second)] = parts.as_slice()
        && first.len() + second.len() <= NAME_BYTES_MAX
    {
        return Ok((first.clone(), second.clone()));
    }
    Err(CallError::bad(&format!("`{what}` must be two texts, the server and the name")))
}

fn text(what: &str, value: Value) -> Result<String, CallError> {
    match value {
        Value::String(text) => bounded(what, text),
        _ => Err(CallError::bad(&format!("`{what}` must be text"))),
    }
}

fn bounded(what: &str, text: String) -> Result<String, CallError> {
    match text.len() <= NAME_BYTES_MAX {
        true => Ok(text),
        false => Err(CallError::bad(&format!("`{what}` is longer than {NAME_BYTES_MAX} bytes"))),
    }
}

fn texts(what: &str, value: Value) -> Result<Vec<String>, CallError> {
    match value {
        Value::Array(values) if values.len() <= 256 => {
            values.into_iter().map(|value| text(what, value)).collect()
        }
        _ => Err(CallError::bad(&format!("`{what}` must be a list of texts"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(line: &str) -> Request {
        parse(line.as_bytes()).request.unwrap()
    }

    #[test]
    fn a_call_keeps_the_digits_of_its_numbers() {
        let asked = parse(
            br#"{"id":1,"call":"x.f","args":{"n":12345678901234567890123456789,"f":0.10},"timeout_ms":5}"#,
        );
        assert_eq!(asked.id, json!(1));
        let Request::Call { server, tool, arguments, timeout_ms } = asked.request.unwrap() else { panic!() };
        assert_eq!((server.as_str(), tool.as_str(), timeout_ms), ("x", "f", Some(5)));
        assert_eq!(Value::from(arguments).to_string(), r#"{"n":12345678901234567890123456789,"f":0.10}"#);
    }

    #[test]
    fn names_with_dots_are_given_as_two_texts() {
        let call = request(r#"{"id":"a","call":["odd-server","a.b"]}"#);
        assert!(
            matches!(call, Request::Call { server, tool, .. } if server == "odd-server" && tool == "a.b")
        );
        let call = request(r#"{"id":"a","call":"s.a.b"}"#);
        assert!(matches!(call, Request::Call { server, tool, .. } if server == "s" && tool == "a.b"));
    }

    #[test]
    fn every_kind_is_read() {
        assert_eq!(request(r#"{"id":1,"servers":true}"#), Request::Servers);
        assert_eq!(request(r#"{"id":1,"cancel":7}"#), Request::Cancel(json!(7)));
        assert_eq!(request(r#"{"id":1,"saved":null}"#), Request::Saved(None));
        assert_eq!(request(r#"{"id":1,"memory":{"get":"k"}}"#), Request::Memory(Memory::Get("k".into())));
        let find = request(r#"{"id":1,"find":"a b","servers":["x"],"limit":5000}"#);
        assert!(matches!(find, Request::Find { limit: 100, servers: Some(_), .. }));
        let read = request(r#"{"id":1,"read":["docs","docs://index"]}"#);
        assert_eq!(read, Request::Read { server: "docs".into(), uri: "docs://index".into() });
    }

    #[test]
    fn forged_lines_are_refused_in_words() {
        let deep = format!(r#"{{"id":1,"call":"x.f","args":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
        let many = format!(r#"{{"id":1,"call":"x.f","args":[{}]}}"#, "1,".repeat(REQUEST_ITEMS_MAX + 1));
        let long_id = format!(r#"{{"id":"{}","servers":1}}"#, "x".repeat(65));
        for line in [
            "",
            "null",
            "[]",
            "{}",
            "{\"id\":1}",
            "{\"id\":[],\"servers\":1}",
            "{\"id\":1,\"call\":\"x\"}",
            "{\"id\":1,\"call\":\".f\"}",
            "{\"id\":1,\"call\":\"x.f\",\"args\":[]}",
            "{\"servers\":1}",
            "\u{0}",
            "{\"id\":1,\"read\":[\"a\"]}",
            "{\"id\":1,\"save\":{}}",
            &deep,
            &many,
            &long_id,
        ] {
            let error = parse(line.as_bytes()).request.unwrap_err();
            assert_eq!(error.code, "bad_request", "{line}");
        }
        assert!(parse(b"\xff\xfe").request.is_err());
    }
}
