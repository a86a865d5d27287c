//! Reads the native shape of a tool's entry: `require`, `deny_if`, `limits`, `require_approval`.

use std::sync::Arc;

use sandbox::{Guarantee, Kernel, OWN_KERNEL};

use super::predicate::{self, Op, Path};
use super::read::{as_list, as_map, as_text, escape, texts, unknown};
use super::read_intercept::read_timeout;
use super::{Approval, ApproveBy, Check, CheckKind, Increment, Limit, ToolRules};
use crate::decimal::Decimal;
use crate::document::{Entry, Flaw, Node, NodeValue};
use crate::window::Window;

const FIELDS: &str = "require, deny_if, limits, require_approval, approve_by, reason, access, walls, rules";
const APPROVAL_FIELDS: &str = "when, reason, approve_by, approval_timeout";
const LIMIT_FIELDS: &str = "counter, window, max, scope, increment_from, on_deny";

/// Reads an entry. `rules` is the other format's and left to it.
pub(super) fn read(map: &[Entry], pointer: &str, tool: &str, into: &mut ToolRules) -> Result<(), Flaw> {
    let field = |name: &str| map.iter().find(|entry| entry.key == name).map(|entry| &entry.value);
    let reason = field("reason").map(|node| as_text(node, "reason")).transpose()?;
    let by = field("approve_by").map(approve_by).transpose()?;
    for Entry { at, key, value } in map {
        match key.as_str() {
            "require" | "deny_if" => read_checks(key, value, pointer, reason, into)?,
            "limits" => {
                for limit in as_list(value, key)? {
                    into.limits.push(Arc::new(read_limit(limit, pointer, tool, reason)?));
                }
            }
            "require_approval" => {
                into.approvals.extend(read_approval(value, pointer, reason, by)?);
            }
            "access" | "walls" => read_declared(key, value, into)?,
            "reason" | "approve_by" | "rules" => {}
            _ => return Err(unknown(*at, key, "a tool's entry", FIELDS)),
        }
    }
    Ok(())
}

/// Reads `access` or `walls`.
pub(super) fn read_declared(key: &str, node: &Node, into: &mut ToolRules) -> Result<(), Flaw> {
    let names = texts(node, key)?;
    if key == "access" {
        into.declared.access.extend(names);
        into.access_at = Some(node.at);
        return Ok(());
    }
    for name in &names {
        if Guarantee::ALL.iter().any(|guarantee| guarantee.name() == name) {
            let message = format!(
                "`{name}` is a guarantee, and `walls` lists walls: names such as native, or {OWN_KERNEL}; every wall keeps the \
                 guarantees, unless the setting allow_missing excepts some"
            );
            return Err(Flaw::new(node.at, message));
        }
        if Kernel::demanded(name).is_none() {
            into.unknown_walls.push((node.at, name.clone()));
        }
    }
    into.declared.walls.extend_from_slice(&names);
    into.walls.push(names);
    Ok(())
}

fn read_checks(
    key: &str,
    node: &Node,
    pointer: &str,
    reason: Option<&str>,
    into: &mut ToolRules,
) -> Result<(), Flaw> {
    let pointer = format!("{pointer}/{key}");
    if key == "deny_if" && node.value == NodeValue::Bool(true) {
        let (at, reason) = (node.at, reason.map(str::to_owned));
        into.checks.push(Check { rule: pointer, at, kind: CheckKind::Deny, reason });
        return Ok(());
    }
    for (predicate, on_deny) in predicate::read_list(node)? {
        let predicate_at = predicate.at;
        let rule = format!("{pointer}/{}", escape(&predicate.id()));
        let kind = match key {
            "require" => CheckKind::Require(vec![predicate]),
            _ => CheckKind::DenyIf(predicate),
        };
        let (at, reason) = (predicate_at, on_deny.or_else(|| reason.map(str::to_owned)));
        into.checks.push(Check { rule, at, kind, reason });
    }
    Ok(())
}

fn read_limit(node: &Node, pointer: &str, tool: &str, reason: Option<&str>) -> Result<Limit, Flaw> {
    let (mut counter, mut window, mut most) = (None, None, None);
    let (mut is_shared, mut increment) = (false, Increment::By(Decimal::ONE));
    let mut on_deny = reason.map(str::to_owned);
    for Entry { at, key, value } in as_map(node, "a limit")? {
        match (key.as_str(), &value.value) {
            ("counter", _) => counter = Some(as_text(value, key)?),
            ("window", _) => window = Some(read_window(value)?),
            ("max", NodeValue::Number(number)) if !number.is_negative() => most = Some(*number),
            ("max", _) => return Err(Flaw::new(value.at, "`max` is a number of at least zero")),
            ("scope", NodeValue::Text(text)) if text == "grant" => is_shared = false,
            ("scope", NodeValue::Text(text)) if text == "all" => is_shared = true,
            ("scope", _) => return Err(Flaw::new(value.at, "`scope` is \"grant\" (each caller) or \"all\"")),
            ("increment_from", _) => {
                increment = Increment::From(Path::parse(as_text(value, key)?, value.at)?);
            }
            ("on_deny" | "reason", _) => on_deny = Some(as_text(value, key)?.to_owned()),
            _ => return Err(unknown(*at, key, "a limit", LIMIT_FIELDS)),
        }
    }
    let missing = |name: &str| Flaw::new(node.at, format!("the limit has no `{name}`"));
    let window = window.ok_or_else(|| missing("window"))?;
    let counter = counter.unwrap_or("calls");
    Ok(Limit {
        at: node.at,
        rule: format!("{pointer}/limits/{}-per-{}", escape(counter), window.name()),
        tool: tool.to_owned(),
        counter: counter.to_owned(),
        window,
        is_shared,
        tests: vec![(Op::Lte, most.ok_or_else(|| missing("max"))?)],
        increment,
        only_reads: false,
        reason: on_deny,
    })
}

pub(super) fn read_window(node: &Node) -> Result<Window, Flaw> {
    Window::parse(as_text(node, "window")?)
        .ok_or_else(|| Flaw::new(node.at, "a window is \"minute\", \"hour\" or \"day\""))
}

/// `true`, a list of predicates that must all hold, or an object with the fields of [`APPROVAL_FIELDS`].
fn read_approval(
    node: &Node,
    pointer: &str,
    reason: Option<&str>,
    by: Option<ApproveBy>,
) -> Result<Option<Approval>, Flaw> {
    let mut approval = Approval {
        rule: format!("{pointer}/require_approval"),
        reason: reason.map(str::to_owned),
        by,
        timeout_s: None,
        at: node.at,
        when: Vec::new(),
    };
    let predicates = |node: &Node| -> Result<Vec<_>, Flaw> {
        Ok(predicate::read_list(node)?.into_iter().map(|(predicate, _)| predicate).collect())
    };
    match &node.value {
        NodeValue::Bool(false) => return Ok(None),
        NodeValue::Bool(true) => {}
        NodeValue::Map(map) if map.iter().any(|entry| is_field_of_approval(&entry.key)) => {
            for Entry { at, key, value } in map {
                match key.as_str() {
                    "when" => approval.when = predicates(value)?,
                    "reason" => approval.reason = Some(as_text(value, key)?.to_owned()),
                    "approve_by" => approval.by = Some(approve_by(value)?),
                    "approval_timeout" => approval.timeout_s = Some(read_timeout(value)?),
                    _ => return Err(unknown(*at, key, "`require_approval`", APPROVAL_FIELDS)),
                }
            }
        }
        _ => approval.when = predicates(node)?,
    }
    Ok(Some(approval))
}

fn is_field_of_approval(key: &str) -> bool {
    matches!(key, "when" | "reason" | "approve_by" | "approval_timeout")
}

fn approve_by(node: &Node) -> Result<ApproveBy, Flaw> {
    match as_text(node, "approve_by")? {
        "operator" => Ok(ApproveBy::Operator),
        "caller" => Ok(ApproveBy::Caller),
        _ => Err(Flaw::new(node.at, "`approve_by` is \"operator\" or \"caller\"")),
    }
}
