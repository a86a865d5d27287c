//! What must hold for everything that a client can send, however hostile.
//!
//! The seeded tests below and the fuzz targets (`fuzz/`) call these functions, so both assert the same. The product
//! does not contain them.

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::arguments::Arguments;
use crate::message::{Read, read};
use crate::percent;
use crate::recover_request_id::request_id;
use crate::tools::TOOLS;

/// The longest message about an argument; a name is repeated up to 64 characters, each escaped in up to ten.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Arguments of a tool: an unknown or ill-typed property is refused by name, in a bounded message.
pub fn tool_arguments(text: &str) {
    let Ok(Value::Object(given)) = serde_json::from_str::<Value>(text) else { return };
    for entry in TOOLS {
        let is_known = given.keys().all(|name| entry.properties().contains(&name.as_str()));
        match Arguments::new("", entry.properties(), given.clone()) {
            Ok(_) => assert!(is_known, "{}: {text}", entry.name),
            Err(error) => {
                assert!(!is_known && error.code == "bad_arguments", "{}: {text}", entry.name);
                assert!(error.message.len() <= MESSAGE_BYTES_MAX, "{}", error.message);
            }
        }
    }
    take_all(&given);
}

fn take_all(given: &JsonObject) {
    let names: Vec<&str> = given.keys().map(String::as_str).collect();
    for name in &names {
        let fresh = || Arguments::new("", &names, given.clone());
        let Ok(mut arguments) = fresh() else { return };
        let refused = [
            arguments.text(name).err(),
            fresh().and_then(|mut arguments| arguments.whole(name)).err(),
            fresh().and_then(|mut arguments| arguments.texts(name)).err(),
            fresh().and_then(|mut arguments| arguments.object(name, &["a"])).err(),
        ];
        for error in refused.into_iter().flatten() {
            assert_eq!(error.code, "bad_arguments");
        }
    }
}

/// A text that was encoded is read back; a text that is read holds no NUL.
pub fn percent_encoding(text: &str) {
    let is_readable = !text.contains('\0');
    assert_eq!(percent::decode(&percent::encode(text)).as_deref(), is_readable.then_some(text));
    if let Some(decoded) = percent::decode(text) {
        assert!(!decoded.contains('\0') && decoded.len() <= text.len());
    }
}

/// The id found in a line that is a request is that request's id.
pub fn recovered_id(line: &[u8]) {
    let Some(found) = request_id(line, Some(line)) else { return };
    // Duplicate keys are not a message of any client; the last one counts there.
    let Ok(Value::Object(message)) = serde_json::from_slice::<Value>(line) else { return };
    let is_once = line.windows(4).filter(|part| part == b"\"id\"").count() == 1;
    if let Some(id) = message.get("id").filter(|_| is_once) {
        assert_eq!(serde_json::to_value(found).ok().as_ref(), Some(id));
    }
}

/// Any bytes are read as a message that the library understands, or answered with an error of the protocol.
pub fn message(bytes: &[u8]) {
    match read(bytes) {
        Read::Repaired(call) => assert!(matches!(read(&call.text), Read::Message(_))),
        Read::Refused(refused) => {
            let answer = refused.answer();
            assert!([-32700, -32600, -32602].contains(&refused.error.code.0), "{answer}");
            assert!(answer.get("id").is_some() && answer["error"]["message"].is_string(), "{answer}");
        }
        Read::Message(_) | Read::Nothing | Read::Ignored => {}
    }
}

#[cfg(test)]
mod tests {
    use harness::Chance;

    use super::*;

    const PIECES: [&str; 26] = [
        "\"name\"",
        "\"arguments\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"id\"",
        "\"jsonrpc\"",
        "\"2.0\"",
        "7",
        "-1",
        "1.5",
        "null",
        "true",
        "\"language\"",
        "\"code\"",
        "\"limits\"",
        "\"inputs\"",
        "\"sandbox_id\"",
        "\"a\\u0000b\"",
        "%",
        "2F",
        "%00",
        "ä/ ",
    ];

    fn text(chance: &mut Chance) -> String {
        let count = chance.below(14);
        (0..count).map(|_| PIECES[chance.below(PIECES.len())]).collect()
    }

    #[test]
    fn random_texts_of_clients_do_no_harm() {
        let mut chance = Chance::new(0x6d63_7001);
        for _ in 0..20_000 {
            let text = text(&mut chance);
            tool_arguments(&text);
            tool_arguments(&format!("{{{text}}}"));
            percent_encoding(&text);
            recovered_id(text.as_bytes());
            message(text.as_bytes());
            message(
                format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{{text}}}}}")
                    .as_bytes(),
            );
            recovered_id(format!("{{\"jsonrpc\":\"2.0\",\"id\":{text}}}").as_bytes());
        }
    }
}
