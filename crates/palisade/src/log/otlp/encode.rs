//! Encodes spans as OTLP/JSON: ids in hexadecimal, 64-bit numbers as text (the protocol's mapping of protobuf
//! to JSON).

use serde_json::{Value, json};

use super::{EndedSpan, nanos};

/// A span inside one process; `SPAN_KIND_INTERNAL`.
const KIND_INTERNAL: u8 = 1;
/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u8 = 2;
/// The field with the code of an error.
const ERROR: &str = "error";

/// The body of one request.
pub(super) fn batch(spans: &[EndedSpan]) -> String {
    let resource = [
        json!({ "key": "service.name", "value": { "stringValue": "palisade" } }),
        json!({ "key": "service.version", "value": { "stringValue": env!("CARGO_PKG_VERSION") } }),
    ];
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({
        "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{ "scope": { "name": "palisade" }, "spans": spans }],
        }],
    })
    .to_string()
}

fn span(span: &EndedSpan) -> Value {
    let traced = &span.traced;
    let mut attributes = Vec::with_capacity(span.attributes.len());
    for (key, value) in &span.attributes {
        attributes.push(json!({ "key": key, "value": attribute(value) }));
    }
    let failed = span.attributes.iter().find(|(key, _)| *key == ERROR);
    let status = match failed {
        Some((_, code)) => json!({ "code": STATUS_ERROR, "message": code }),
        None => json!({}),
    };
    let mut encoded = json!({
        "traceId": hex(&traced.trace),
        "spanId": hex(&traced.span),
        "name": span.name,
        "kind": KIND_INTERNAL,
        "startTimeUnixNano": nanos(traced.start).to_string(),
        "endTimeUnixNano": nanos(span.end).to_string(),
        "attributes": attributes,
        "status": status,
    });
    if let Some(parent) = traced.parent {
        encoded["parentSpanId"] = json!(hex(&parent));
    }
    encoded
}

fn attribute(value: &Value) -> Value {
    match value {
        Value::Bool(value) => json!({ "boolValue": value }),
        Value::Number(number) if number.is_i64() || number.is_u64() => {
            json!({ "intValue": number.to_string() })
        }
        Value::Number(number) => json!({ "doubleValue": number }),
        Value::String(text) => json!({ "stringValue": text }),
        other => json!({ "stringValue": other.to_string() }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
