//! A run's result in the shape of the contract (docs/TOOLS.md): the one place that knows its field names.

use engine::RunResult;
use sandbox::{Enforced, Enforcement, Guarantee};
use serde_json::{Map, Value, json};
use wire::Exit;

/// The structured result; each stream is cut to its head and tail beyond `inline_bytes_max`.
pub(crate) fn structured(result: &RunResult, inline_bytes_max: usize) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("outcome", json!(result.outcome.name()));
    match result.exit {
        Some(Exit::Code(code)) => drop(put("exit_code", json!(code))),
        Some(Exit::Signal(signal)) => drop(put("signal", json!(signal))),
        None => {}
    }
    put("stdout", json!(text(&result.stdout, inline_bytes_max)));
    put("stderr", json!(text(&result.stderr, inline_bytes_max)));
    if let Some(value) = &result.value {
        put("value", json!(value));
    }
    if let Some(error) = &result.error {
        put("error", json!(error));
    }
    put("usage", json!(result.usage));
    put("isolation", isolation(result.backend, &result.enforced));
    put("clamped", json!(result.clamped));
    put("warnings", json!(result.warnings));
    Value::Object(fields)
}

/// The wall that was used, with what keeps each promise.
pub(crate) fn isolation(backend: &str, enforced: &Enforced) -> Value {
    let guarantees: Map<String, Value> = Guarantee::ALL
        .iter()
        .map(|guarantee| (guarantee.name().to_owned(), kept(&enforced.get(*guarantee))))
        .collect();
    json!({ "backend": backend, "guarantees": guarantees })
}

fn kept(enforcement: &Enforcement) -> Value {
    match enforcement {
        Enforcement::By { mechanisms, note } => {
            let by: Vec<&str> = mechanisms.iter().map(|mechanism| mechanism.name()).collect();
            match note {
                Some(note) => json!({ "by": by, "note": note }),
                None => json!({ "by": by }),
            }
        }
        Enforcement::Absent { reason } => json!({ "absent": reason }),
    }
}

/// Output as text: bytes that are not UTF-8 are shown as `\xNN`, the middle of a long text is left out.
fn text(bytes: &[u8], bytes_max: usize) -> String {
    if bytes.len() <= bytes_max {
        return visible(bytes);
    }
    let half = bytes_max / 2;
    let (head, tail) = (&bytes[..half], &bytes[bytes.len() - half..]);
    let left_out = bytes.len() - 2 * half;
    format!("{}\n[... {left_out} bytes left out ...]\n{}", visible(head), visible(tail))
}

fn visible(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_visible() {
        assert_eq!(visible("grüße\n".as_bytes()), "grüße\n");
        assert_eq!(visible(b"a\xff\xc3b"), "a\\xff\\xc3b");
    }

    #[test]
    fn a_long_text_keeps_head_and_tail() {
        let cut = text(&[b'a'; 100], 10);
        assert!(cut.starts_with("aaaaa\n[... 90 bytes") && cut.ends_with("\naaaaa"));
        assert_eq!(text(b"short", 10), "short");
    }
}
