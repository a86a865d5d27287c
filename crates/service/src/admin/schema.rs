//! The schemas of the admin API, by name. Tests hold every answer of a running server against them.

use engine::ApprovalState;
use policy::{Amount, Scope};
use serde_json::{Map, Value, json};

use super::ask::{CURSOR_BYTES_MAX, PAGE_DEFAULT, PAGE_MAX};
use super::keys::SPAN_S_MAX;

/// All schemas.
pub(super) fn all() -> Map<String, Value> {
    let mut all = Map::new();
    for (name, schema) in requests()
        .into_iter()
        .chain(keys())
        .chain(policies())
        .chain(runs())
        .chain(sandboxes())
        .chain(approvals())
        .chain(audit())
        .chain(general())
    {
        all.insert(name.to_owned(), schema);
    }
    all
}

type Named = (&'static str, Value);

/// An object with exactly these properties, all of which are there.
pub(super) fn object(properties: Value) -> Value {
    let names: Vec<&String> = properties.as_object().map(|all| all.keys().collect()).unwrap_or_default();
    json!({ "type": "object", "required": names, "additionalProperties": false, "properties": properties })
}

/// A part of a list of items of that schema.
pub(super) fn page(item: &str) -> Value {
    object(
        json!({ "items": { "type": "array", "items": reference(item) }, "next_cursor": nullable("string") }),
    )
}

/// A reference to a schema of this document.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

pub(super) fn nullable(kind: &str) -> Value {
    json!({ "type": [kind, "null"] })
}

pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

/// Milliseconds since the epoch.
pub(super) fn time() -> Value {
    json!({ "type": "integer", "minimum": 0, "description": "Milliseconds since the epoch" })
}

fn maybe_time() -> Value {
    json!({ "type": ["integer", "null"], "minimum": 0, "description": "Milliseconds since the epoch" })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

/// The schema of errors and of parameters.
fn general() -> Vec<Named> {
    let error = object(json!({ "code": text(), "message": text(), "remedy": text() }));
    let amounts: Vec<_> = Amount::ALL.into_iter().map(Amount::name).collect();
    let quota = json!({ "amount": { "type": "string", "enum": amounts }, "limit": count(), "used": count() });
    vec![
        ("Error", object(json!({ "error": error }))),
        ("Document", json!({ "type": "object", "required": ["openapi", "paths"] })),
        ("Limit", json!({ "type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE_DEFAULT })),
        ("Cursor", json!({ "type": "string", "minLength": 1, "maxLength": CURSOR_BYTES_MAX })),
        ("Principal", json!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$" })),
        ("KeyFilter", json!({ "type": "string", "enum": ["in_force", "all"] })),
        ("Quota", object(quota)),
        (
            "PrincipalQuotas",
            object(json!({
                "principal": text(),
                "label": text(),
                "quotas": { "type": "array", "items": reference("Quota") },
            })),
        ),
        ("QuotaPage", page("PrincipalQuotas")),
    ]
}

/// Bodies of requests. A property that is not required may be left out.
fn requests() -> Vec<Named> {
    let scopes: Vec<_> = Scope::ALL.into_iter().map(Scope::name).collect();
    let seconds = json!({ "type": ["integer", "null"], "minimum": 1, "maximum": SPAN_S_MAX });
    let closed = |required: &[&str], properties: Value| json!({ "type": "object", "required": required, "additionalProperties": false, "properties": properties });
    let claim = object(json!({ "name": text(), "value": text() }));
    vec![
        ("Empty", closed(&[], json!({}))),
        (
            "NewKey",
            closed(
                &["name", "scopes"],
                json!({
                    "name": { "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$" },
                    "scopes": {
                        "type": "array", "minItems": 1, "maxItems": scopes.len(), "items": { "type": "string", "enum": scopes },
                    },
                    "policy": nullable("string"),
                    "expires_in_s": seconds,
                }),
            ),
        ),
        (
            "Rotation",
            closed(
                &[],
                json!({ "overlap_s": { "type": "integer", "minimum": 0, "maximum": SPAN_S_MAX,
                    "description": "How long the old secret counts beside the new one" } }),
            ),
        ),
        (
            "ExplainedCall",
            closed(
                &["principal", "tool"],
                json!({
                    "principal": { "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$",
                        "description": "The caller, as bindings name it: local, owner, key:NAME" },
                    "tool": text(),
                    "arguments": { "type": "object" },
                    "claims": { "type": "array", "maxItems": 64, "items": claim },
                }),
            ),
        ),
    ]
}

fn keys() -> Vec<Named> {
    let scopes: Vec<_> = Scope::ALL.into_iter().map(Scope::name).collect();
    vec![
        (
            "Key",
            object(json!({
                "name": text(),
                "id": text(),
                "principal": text(),
                "scopes": { "type": "array", "items": { "type": "string", "enum": scopes } },
                "policy": nullable("string"),
                "state": { "type": "string", "enum": ["in force", "expired", "revoked"] },
                "created_ms": time(),
                "expires_ms": maybe_time(),
                "rotated_ms": maybe_time(),
                "last_used_ms": maybe_time(),
                "revoked_ms": maybe_time(),
            })),
        ),
        ("KeyPage", page("Key")),
        (
            "KeyWithSecret",
            object(json!({
                "key": reference("Key"),
                "secret": { "type": "string", "description": "The whole key; it cannot be had again" },
                "warning": nullable("string"),
            })),
        ),
    ]
}

fn policies() -> Vec<Named> {
    let texts = || json!({ "type": "array", "items": text() });
    let rule = json!({
        "type": "object",
        "required": ["rule", "effect"],
        "additionalProperties": false,
        "properties": {
            "rule": text(),
            "effect": { "type": "string", "enum": ["passes", "denies", "counts", "asks"] },
            "reason": text(),
            "approve_by": { "type": ["string", "null"], "enum": ["operator", "caller", null] },
            "amount": text(),
            "line": count(),
            "counted": text(),
            "most": nullable("string"),
            "window": text(),
            "reached": { "type": "boolean" },
        },
    });
    let policies = json!({
        "items": { "type": "array", "items": reference("Policy") },
        "next_cursor": nullable("string"),
        "flaw": { "type": ["string", "null"], "description": "Why the newest files are not in force" },
    });
    vec![
        ("Policy", object(json!({ "name": text(), "description": nullable("string"), "notes": texts() }))),
        ("PolicyPage", object(policies)),
        ("Binding", object(json!({ "number": count(), "match": text(), "policy": text() }))),
        ("BindingPage", page("Binding")),
        ("Rule", rule),
        (
            "Explanation",
            object(json!({
                "policy": text(),
                "verdict": { "type": "string", "enum": ["allowed", "denied", "needs approval"] },
                "binding": nullable("string"),
                "file": nullable("string"),
                "rules": { "type": "array", "items": reference("Rule") },
                "access": texts(),
                "walls": texts(),
            })),
        ),
        ("Reloaded", object(json!({ "in_force": { "type": "boolean" }, "flaw": nullable("string") }))),
    ]
}

fn runs() -> Vec<Named> {
    let run = json!({
        "run_id": text(),
        "principal": text(),
        "language": text(),
        "outcome": text(),
        "created_ms": time(),
        "ended_ms": maybe_time(),
    });
    let mut detail = run.clone();
    let number = || json!({ "type": "number", "minimum": 0 });
    let usage = object(json!({
        "wall_ms": number(),
        "cpu_ms": number(),
        "memory_peak_bytes": count(),
        "processes_peak": count(),
        "queued_ms": number(),
        "start_ms": number(),
    }));
    let more = json!({
        "is_elsewhere": { "type": "boolean", "description": "Another server of the state directory runs it" },
        "exit_code": nullable("integer"),
        "signal": nullable("integer"),
        "error_code": nullable("string"),
        "wall": nullable("string"),
        "usage": { "anyOf": [usage, { "type": "null" }] },
    });
    if let (Some(detail), Value::Object(more)) = (detail.as_object_mut(), more) {
        detail.extend(more);
    }
    vec![("Run", object(run)), ("RunPage", page("Run")), ("RunDetail", object(detail))]
}

fn sandboxes() -> Vec<Named> {
    let sandbox = json!({
        "sandbox_id": text(),
        "principal": text(),
        "name": text(),
        "wall": text(),
        "created_ms": time(),
        "used_ms": time(),
        "expires_ms": time(),
        "runs": count(),
        "awake": { "type": "array", "items": text() },
        "disk_bytes": count(),
    });
    vec![
        ("Sandbox", object(sandbox)),
        ("SandboxPage", page("Sandbox")),
        ("Closed", object(json!({ "sandbox_id": text(), "closed": { "type": "boolean" } }))),
    ]
}

fn approvals() -> Vec<Named> {
    let states: Vec<_> = ApprovalState::ALL.into_iter().map(ApprovalState::name).collect();
    let approval = json!({
        "id": text(),
        "state": { "type": "string", "enum": states },
        "principal": text(),
        "label": text(),
        "tool": text(),
        "policy": text(),
        "rule": text(),
        "reason": nullable("string"),
        "approve_by": { "type": "string", "enum": ["operator", "caller"] },
        "preview": { "type": "string", "description": "The call in one line, with invisible characters made visible" },
        "created_ms": time(),
        "expires_ms": time(),
        "decided_ms": maybe_time(),
        "decided_by": nullable("string"),
        "decision_reason": nullable("string"),
        "consumed_ms": maybe_time(),
    });
    let mut detail = approval.clone();
    detail["arguments"] = json!({ "type": "object", "description": "The arguments of the call, exactly" });
    detail["shown"] =
        json!({ "type": "string", "description": "The arguments for people; nothing in it is invisible" });
    vec![
        ("ApprovalFilter", json!({ "type": "string", "enum": ["open", "all"] })),
        (
            "Reason",
            json!({
                "type": "object", "additionalProperties": false,
                "properties": { "reason": { "type": ["string", "null"], "maxLength": 500 } },
            }),
        ),
        ("Approval", object(approval)),
        ("ApprovalPage", page("Approval")),
        ("ApprovalDetail", object(detail)),
    ]
}

fn audit() -> Vec<Named> {
    let entry = json!({
        "ms": time(),
        "instance": { "type": "string", "description": "The chain of one server" },
        "seq": count(),
        "kind": text(),
        "data": { "type": "object" },
    });
    let report = json!({
        "verdict": { "type": "string", "enum": ["whole", "incomplete", "broken"] },
        "chains": { "type": "array", "items": { "type": "object" } },
        "receipts": { "type": "array", "items": { "type": "object" } },
        "false_checkpoints": { "type": "array", "items": text() },
    });
    vec![
        ("Time", time()),
        ("ExportFormat", json!({ "type": "string", "enum": ["jsonl", "ocsf"] })),
        ("Lines", text()),
        ("AuditEntry", object(entry)),
        ("AuditTail", object(json!({ "items": { "type": "array", "items": reference("AuditEntry") } }))),
        ("AuditReport", object(report)),
        ("AuditKeys", object(json!({ "keys": { "type": "array", "items": text() } }))),
        ("AuditCheckpoint", object(json!({ "note": nullable("string") }))),
        ("Receipt", object(json!({ "run_id": text(), "receipt": text() }))),
    ]
}
