//! JSON-RPC messages: made and read. What a server sends is parsed with a bounded depth (128 levels, by the parser).

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::host::{ToolError, ToolErrorCode};

/// The most values in an answer.
pub(crate) const ANSWER_ITEMS_MAX: usize = 1_000_000;
/// The most values in another message, which needs few.
const OTHER_ITEMS_MAX: usize = 100_000;
/// Up to this length a message is parsed before it is known what it is: its values take a bounded space.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// JSON-RPC's codes.
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;

/// A message from a server.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    /// The answer to a request of ours.
    Response { id: u64, outcome: Result<Map<String, Value>, RpcError> },
    /// The answer to a request of ours, which is beyond a bound. It was not parsed.
    Refused { id: u64, error: ToolError },
    /// A request of the server.
    Request { id: Value, method: String },
    /// A notification.
    Notification { method: String },
    /// Not a message.
    Noise,
}

/// An error that a server answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
}

impl RpcError {
    /// The error for a program, with the words of the server as they are. The request arrived.
    pub(crate) fn told(self) -> ToolError {
        let code = match self.code {
            INVALID_PARAMS => ToolErrorCode::BadArguments,
            _ => ToolErrorCode::ServerError,
        };
        let message = format!("the server answered with error {}: {}", self.code, self.message);
        ToolError::new(code, message).after_sending()
    }
}

/// A request as one line.
pub(crate) fn request(id: u64, method: &str, params: Map<String, Value>) -> Vec<u8> {
    // Moved, not copied: arguments may be large.
    let mut message = Map::with_capacity(4);
    message.insert("jsonrpc".to_owned(), Value::from("2.0"));
    message.insert("id".to_owned(), Value::from(id));
    message.insert("method".to_owned(), Value::from(method));
    message.insert("params".to_owned(), Value::Object(params));
    line(&Value::Object(message))
}

/// A notification as one line.
pub(crate) fn notification(method: &str, params: Map<String, Value>) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// The answer to a request of a server: pings are answered, everything else is refused.
pub(crate) fn reply(id: &Value, method: &str) -> Vec<u8> {
    match method {
        "ping" => line(&json!({"jsonrpc": "2.0", "id": id, "result": {}})),
        _ => {
            let error = json!({"code": METHOD_NOT_FOUND, "message": "this client does not support it"});
            line(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
        }
    }
}

fn line(message: &Value) -> Vec<u8> {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

/// The most bytes of the answer to the request of that number; `None` if no such request is open.
pub(crate) type BytesMax<'a> = dyn Fn(u64) -> Option<usize> + 'a;

/// Reads a message. Of a long one, the values are parsed only if it answers an open request and is within its bounds.
pub(crate) fn read(bytes: &[u8], bytes_max: &BytesMax<'_>) -> Incoming {
    if bytes.len() <= SMALL_BYTES_MAX {
        return parse(bytes);
    }
    let Some(id) = answered(bytes) else {
        return if items(bytes) > OTHER_ITEMS_MAX { Incoming::Noise } else { parse(bytes) };
    };
    match bytes_max(id) {
        // A late answer to a request that was given up, or an invention.
        None => Incoming::Noise,
        Some(most) if bytes.len() > most => Incoming::Refused { id, error: too_large(most) },
        Some(_) if items(bytes) > ANSWER_ITEMS_MAX => Incoming::Refused { id, error: too_many() },
        Some(_) => parse(bytes),
    }
}

/// The number of the request that a message answers. Its values are passed over, and take no space.
fn answered(bytes: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Head {
        id: u64,
        method: Option<IgnoredAny>,
    }
    let head: Head = serde_json::from_slice(bytes).ok()?;
    head.method.is_none().then_some(head.id)
}

/// Counts values without parsing: separators and openings outside of texts.
pub(crate) fn items(line: &[u8]) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (0, false, false);
    for byte in line {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

pub(crate) fn too_large(bytes_max: usize) -> ToolError {
    let message = format!("the answer is larger than {bytes_max} bytes");
    ToolError::new(ToolErrorCode::AnswerTooLarge, message)
        .with_remedy("ask the tool for less, for example by its paging or filter arguments")
        .after_sending()
}

fn too_many() -> ToolError {
    let message = format!("the answer has more than {ANSWER_ITEMS_MAX} values");
    ToolError { message, ..too_large(0) }
}

fn parse(bytes: &[u8]) -> Incoming {
    let Ok(Value::Object(mut message)) = serde_json::from_slice(bytes) else { return Incoming::Noise };
    let method = match message.remove("method") {
        Some(Value::String(method)) => Some(method),
        Some(_) => return Incoming::Noise,
        None => None,
    };
    match (method, message.remove("id")) {
        (Some(method), None | Some(Value::Null)) => Incoming::Notification { method },
        (Some(method), Some(id @ (Value::String(_) | Value::Number(_)))) => Incoming::Request { id, method },
        (None, Some(id)) => {
            let Some(id) = id.as_u64() else { return Incoming::Noise };
            match (message.remove("result"), message.remove("error")) {
                (Some(Value::Object(result)), None) => Incoming::Response { id, outcome: Ok(result) },
                (None, Some(Value::Object(error))) => {
                    Incoming::Response { id, outcome: Err(rpc_error(error)) }
                }
                _ => Incoming::Response { id, outcome: Err(malformed()) },
            }
        }
        _ => Incoming::Noise,
    }
}

fn rpc_error(mut error: Map<String, Value>) -> RpcError {
    let code = error.get("code").and_then(Value::as_i64).unwrap_or(0);
    let message = match error.remove("message") {
        Some(Value::String(message)) => message,
        _ => String::new(),
    };
    RpcError { code, message }
}

fn malformed() -> RpcError {
    RpcError { code: 0, message: "the answer is neither a result nor an error".to_owned() }
}

/// The number of a response whose line was too long to be kept, from its first and last bytes.
pub(crate) fn id_of_fragments(head: &[u8], tail: &[u8]) -> Option<u64> {
    [head, tail].into_iter().find_map(|part| {
        let text = String::from_utf8_lossy(part);
        let at = text.rfind("\"id\"").filter(|_| part == tail).or_else(|| text.find("\"id\""))?;
        let rest = text[at + 4..].trim_start().strip_prefix(':')?.trim_start();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Incoming {
        super::read(bytes, &|_| Some(16 << 20))
    }

    #[test]
    fn long_answers_are_parsed_only_within_the_bounds_of_their_request() {
        let answer = |items: usize, padding: usize| {
            let items = vec!["[]"; items].join(",");
            let padding = " ".repeat(padding);
            format!("{{\"result\":{{\"a\":[{items}]}},{padding}\"id\":7}}").into_bytes()
        };
        let long = answer(100_000, 0);
        assert!(matches!(read(&long), Incoming::Response { id: 7, outcome: Ok(_) }));
        assert_eq!(super::read(&long, &|_| None), Incoming::Noise, "nothing waits for it");
        let beyond = super::read(&long, &|id| (id == 7).then_some(long.len() - 1));
        assert!(
            matches!(&beyond, Incoming::Refused { id: 7, error } if error.code == ToolErrorCode::AnswerTooLarge)
        );
        let many = answer(ANSWER_ITEMS_MAX, 0);
        let Incoming::Refused { id: 7, error } = read(&many) else { panic!("it was parsed") };
        assert!(error.message.contains("1000000 values") && error.may_have_run, "{error}");
        let request = format!("{{\"id\":1,\"method\":\"x\",\"params\":[{}1]}}", "1,".repeat(OTHER_ITEMS_MAX));
        assert_eq!(read(request.as_bytes()), Incoming::Noise);
        assert!(matches!(read(br#"{"id":1,"method":"x"}"#), Incoming::Request { .. }));
    }

    #[test]
    fn separators_in_texts_are_no_values() {
        assert_eq!(items(br#"{"a":"[,{\",","b":[1,2]}"#), 4);
    }

    #[test]
    fn messages_are_told_apart() {
        assert!(matches!(
            read(br#"{"id":3,"result":{"a":1}}"#),
            Incoming::Response { id: 3, outcome: Ok(_) }
        ));
        assert!(matches!(
            read(br#"{"id":3,"error":{"code":-1,"message":"x"}}"#),
            Incoming::Response { id: 3, outcome: Err(RpcError { code: -1, .. }) }
        ));
        assert!(matches!(read(br#"{"id":"a","method":"ping"}"#), Incoming::Request { .. }));
        assert!(matches!(read(br#"{"method":"x"}"#), Incoming::Notification { .. }));
        assert!(matches!(read(br#"{"id":1,"result":7}"#), Incoming::Response { outcome: Err(_), .. }));
        for noise in [&b"[]"[..], b"x", b"{}", br#"{"id":-1,"result":{}}"#, br#"{"id":"1","result":{}}"#] {
            assert_eq!(read(noise), Incoming::Noise);
        }
        let deep = format!("{{\"id\":1,\"result\":{}1{}}}", "[".repeat(500), "]".repeat(500));
        assert_eq!(read(deep.as_bytes()), Incoming::Noise);
    }

    #[test]
    fn integers_keep_their_digits() {
        let text = br#"{"id":1,"result":{"n":12345678901234567890123}}"#;
        let Incoming::Response { outcome: Ok(result), .. } = read(text) else { panic!() };
        assert_eq!(result["n"].to_string(), "12345678901234567890123");
    }

    #[test]
    fn the_number_of_a_line_that_is_too_long_is_found_at_either_end() {
        assert_eq!(id_of_fragments(br#"{"jsonrpc":"2.0","id": 12,"result":{"#, b"xx}}"), Some(12));
        assert_eq!(id_of_fragments(br#"{"result":{"#, br#"xx"},"jsonrpc":"2.0","id":7}"#), Some(7));
        assert_eq!(id_of_fragments(b"xxx", b"yyy"), None);
    }
}
