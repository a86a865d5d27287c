//! Reads Intercept's shape of a tool's entry: a list of `rules` with conditions, rate limits and counters.

use std::collections::HashMap;
use std::sync::Arc;

use super::predicate::{Op, Path, Predicate};
use super::read::{as_list, as_map, as_text, escape, unknown};
use super::read_native::read_window;
use super::{Approval, Check, CheckKind, Increment, Limit, ToolRules};
use crate::decimal::Decimal;
use crate::document::{Entry, Flaw, Node, NodeValue, Position};
use crate::window::Window;

const RULE_FIELDS: &str = "name, action, conditions, rate_limit, on_deny, approval_timeout, state";

/// The windows of the counters that a file counts, by tool and name.
pub(super) type Counters = HashMap<(String, String), Window>;

/// What a rule is read with: its place, its tool, and all counters of the file.
pub(super) struct Context<'c> {
    pub(super) pointer: &'c str,
    pub(super) tool: &'c str,
    pub(super) counters: &'c Counters,
}

/// The counters that a list of rules counts.
pub(super) fn collect(rules: &Node, tool: &str, into: &mut Counters) -> Result<(), Flaw> {
    for rule in as_list(rules, "rules")? {
        let map = as_map(rule, "a rule")?;
        let field = |name: &str| map.iter().find(|entry| entry.key == name).map(|entry| &entry.value);
        let counted = match (field("state"), field("rate_limit")) {
            (Some(state), _) => State::read(state)?,
            (None, Some(rate)) => State::of_rate(read_rate(rate)?.1),
            (None, None) => continue,
        };
        into.insert((tool.to_owned(), counted.counter), counted.window);
    }
    Ok(())
}

/// Reads the rules of one tool.
pub(super) fn read(rules: &Node, context: &Context<'_>, into: &mut ToolRules) -> Result<(), Flaw> {
    let mut names: HashMap<String, usize> = HashMap::new();
    for node in as_list(rules, "rules")? {
        let mut rule = Rule::read(node, context)?;
        // The format allows two rules of one name; only their pointers must differ.
        let times = names.entry(rule.pointer.clone()).or_default();
        *times += 1;
        if *times > 1 {
            rule.pointer = format!("{}-{times}", rule.pointer);
        }
        rule.compile(context, into)?;
    }
    Ok(())
}

/// One rule as it is written.
struct Rule {
    at: Position,
    pointer: String,
    action: Action,
    conditions: Vec<Predicate>,
    readings: Vec<Reading>,
    rate: Option<(Decimal, Window)>,
    state: Option<State>,
    on_deny: Option<String>,
    timeout_s: Option<u64>,
}

#[derive(PartialEq)]
enum Action {
    Evaluate,
    Deny,
    RequireApproval,
}

/// A condition on a counter.
struct Reading {
    at: Position,
    tool: String,
    counter: String,
    op: Op,
    bound: Decimal,
}

/// What a rule counts.
struct State {
    counter: String,
    window: Window,
    increment: Increment,
}

impl Rule {
    fn read(node: &Node, context: &Context<'_>) -> Result<Self, Flaw> {
        let mut rule = Self {
            at: node.at,
            pointer: String::new(),
            action: Action::Evaluate,
            conditions: Vec::new(),
            readings: Vec::new(),
            rate: None,
            state: None,
            on_deny: None,
            timeout_s: None,
        };
        for Entry { at, key, value } in as_map(node, "a rule")? {
            match key.as_str() {
                "name" => rule.pointer = pointer(context, as_text(value, key)?),
                "action" => rule.action = read_action(value)?,
                "conditions" => {
                    for condition in as_list(value, key)? {
                        rule.read_condition(condition)?;
                    }
                }
                "rate_limit" => rule.rate = Some(read_rate(value)?),
                "state" => rule.state = Some(State::read(value)?),
                "on_deny" => rule.on_deny = Some(as_text(value, key)?.to_owned()),
                "approval_timeout" => rule.timeout_s = Some(read_timeout(value)?),
                _ => return Err(unknown(*at, key, "a rule", RULE_FIELDS)),
            }
        }
        rule.check()?;
        Ok(rule)
    }

    fn read_condition(&mut self, node: &Node) -> Result<(), Flaw> {
        let (mut path, mut op, mut value) = (None, None, None);
        for Entry { at, key, value: given } in as_map(node, "a condition")? {
            match key.as_str() {
                "path" => path = Some((as_text(given, key)?, given.at)),
                "op" => op = Some(Op::parse(as_text(given, key)?, given.at)?),
                "value" => value = Some(given),
                _ => return Err(unknown(*at, key, "a condition", "path, op, value")),
            }
        }
        let missing = |name: &str| Flaw::new(node.at, format!("the condition has no `{name}`"));
        let (path, at) = path.ok_or_else(|| missing("path"))?;
        let (op, value) = (op.ok_or_else(|| missing("op"))?, value.ok_or_else(|| missing("value"))?);
        match path.strip_prefix("state.") {
            Some(counter) => self.readings.push(Reading::new(counter, op, value, at)?),
            None => self.conditions.push(Predicate::new(Path::parse(path, at)?, op, value)?),
        }
        Ok(())
    }

    /// The combinations that the format forbids.
    fn check(&self) -> Result<(), Flaw> {
        let flaw = |message: &str| Err(Flaw::new(self.at, message));
        let has_conditions = !self.conditions.is_empty() || !self.readings.is_empty();
        if self.pointer.is_empty() {
            return flaw("the rule has no `name`");
        }
        if self.rate.is_some() && (has_conditions || self.state.is_some()) {
            return flaw("`rate_limit` cannot be combined with `conditions` or `state`");
        }
        if self.timeout_s.is_some() && self.action != Action::RequireApproval {
            return flaw("`approval_timeout` belongs to `action: require_approval`");
        }
        match self.action {
            Action::Deny if has_conditions => flaw("a rule with `action: deny` has no conditions"),
            Action::Deny if self.rate.is_some() || self.state.is_some() => {
                flaw("a rule with `action: deny` counts nothing")
            }
            Action::Evaluate if !has_conditions && self.rate.is_none() => {
                flaw("a rule with `action: evaluate` needs at least one condition")
            }
            Action::RequireApproval if !self.readings.is_empty() || self.rate.is_some() => {
                flaw("whether a human is asked cannot depend on a counter")
            }
            _ => Ok(()),
        }
    }

    fn compile(self, context: &Context<'_>, into: &mut ToolRules) -> Result<(), Flaw> {
        let Self { at, pointer: rule, conditions, readings, on_deny, .. } = self;
        match self.action {
            Action::Deny => into.checks.push(Check { rule, at, kind: CheckKind::Deny, reason: on_deny }),
            Action::RequireApproval => {
                let (when, timeout_s) = (conditions, self.timeout_s);
                into.approvals.push(Approval { rule, at, reason: on_deny, by: None, timeout_s, when });
            }
            Action::Evaluate => {
                let state = self.rate.map(|(_, window)| State::of_rate(window)).or(self.state);
                let new = |tool: &str, counter: &str, window| Limit {
                    at,
                    rule: rule.clone(),
                    tool: tool.to_owned(),
                    counter: counter.to_owned(),
                    window,
                    is_shared: false,
                    tests: Vec::new(),
                    increment: Increment::By(Decimal::ZERO),
                    only_reads: true,
                    reason: on_deny.clone(),
                };
                let mut own = state.map(|state| Limit {
                    increment: state.increment,
                    only_reads: false,
                    tests: self.rate.map(|(most, _)| (Op::Lte, most)).into_iter().collect(),
                    ..new(context.tool, &state.counter, state.window)
                });
                for Reading { at, tool, counter, op, bound } in readings {
                    if let Some(limit) = own.as_mut().filter(|own| own.tool == tool && own.counter == counter)
                    {
                        limit.tests.push((op, bound));
                        continue;
                    }
                    let window = *context
                        .counters
                        .get(&(tool.clone(), counter.clone()))
                        .ok_or_else(|| Flaw::new(at, format!("no rule counts `state.{tool}.{counter}`")))?;
                    into.limits
                        .push(Arc::new(Limit { tests: vec![(op, bound)], ..new(&tool, &counter, window) }));
                }
                into.limits.extend(own.map(Arc::new));
                if !conditions.is_empty() {
                    let kind = CheckKind::Require(conditions);
                    into.checks.push(Check { rule, at, kind, reason: on_deny });
                }
            }
        }
        Ok(())
    }
}

impl Reading {
    fn new(path: &str, op: Op, value: &Node, at: Position) -> Result<Self, Flaw> {
        let Some((tool, counter)) =
            path.rsplit_once('.').filter(|(tool, counter)| !tool.is_empty() && !counter.is_empty())
        else {
            return Err(Flaw::new(
                at,
                "a path to a counter is `state.TOOL.COUNTER` or `state._global.COUNTER`",
            ));
        };
        match (&value.value, op.compare(Decimal::ZERO, Decimal::ZERO)) {
            (NodeValue::Number(bound), Some(_)) => {
                Ok(Self { at, tool: tool.to_owned(), counter: counter.to_owned(), op, bound: *bound })
            }
            (_, None) => Err(Flaw::new(at, format!("`{}` cannot compare a counter", op.name()))),
            (other, _) => {
                Err(Flaw::new(value.at, format!("a counter is compared with a number, not {}", other.kind())))
            }
        }
    }
}

impl State {
    fn read(node: &Node) -> Result<Self, Flaw> {
        let (mut counter, mut window, mut fixed, mut from) = (None, None, None, None);
        for Entry { at, key, value } in as_map(node, "`state`")? {
            match (key.as_str(), &value.value) {
                ("counter", _) => counter = Some(as_text(value, key)?.to_owned()),
                ("window", _) => window = Some(read_window(value)?),
                // The format reads zero as if the field were absent.
                ("increment", NodeValue::Number(number)) if *number == Decimal::ZERO => {}
                ("increment", NodeValue::Number(number)) if !number.is_negative() => {
                    fixed = Some(Increment::By(*number));
                }
                ("increment", _) => {
                    return Err(Flaw::new(value.at, "`increment` is a number of at least zero"));
                }
                ("increment_from", _) => {
                    from = Some(Increment::From(Path::parse(as_text(value, key)?, value.at)?));
                }
                _ => return Err(unknown(*at, key, "`state`", "counter, window, increment, increment_from")),
            }
        }
        let missing = |name: &str| Flaw::new(node.at, format!("`state` has no `{name}`"));
        Ok(Self {
            counter: counter.filter(|name| !name.is_empty()).ok_or_else(|| missing("counter"))?,
            window: window.ok_or_else(|| missing("window"))?,
            // The format takes the path instead of the fixed number, if both are there.
            increment: from.or(fixed).unwrap_or(Increment::By(Decimal::ONE)),
        })
    }

    /// The counter of the shorthand `rate_limit`.
    fn of_rate(window: Window) -> Self {
        let counter = format!("_rate_{}", window.name());
        Self { counter, window, increment: Increment::By(Decimal::ONE) }
    }
}

fn pointer(context: &Context<'_>, name: &str) -> String {
    match name.is_empty() {
        true => String::new(),
        false => format!("{}/rules/{}", context.pointer, escape(name)),
    }
}

fn read_action(node: &Node) -> Result<Action, Flaw> {
    match as_text(node, "action")? {
        "evaluate" => Ok(Action::Evaluate),
        "deny" => Ok(Action::Deny),
        "require_approval" => Ok(Action::RequireApproval),
        _ => Err(Flaw::new(node.at, "`action` is \"evaluate\", \"deny\" or \"require_approval\"")),
    }
}

/// `5/hour`.
fn read_rate(node: &Node) -> Result<(Decimal, Window), Flaw> {
    let flaw = || Flaw::new(node.at, "`rate_limit` is a number per window, such as 5/hour or 10/minute");
    let (count, window) =
        as_text(node, "rate_limit").map_err(|_| flaw())?.split_once('/').ok_or_else(flaw)?;
    let is_whole = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    let count = Decimal::parse(count).filter(|count| is_whole && *count > Decimal::ZERO).ok_or_else(flaw)?;
    Ok((count, Window::parse(window).ok_or_else(flaw)?))
}

/// `30m`, as Go writes durations: numbers with `s`, `m` or `h`.
pub(super) fn read_timeout(node: &Node) -> Result<u64, Flaw> {
    let flaw = || Flaw::new(node.at, "`approval_timeout` is a time such as \"90s\", \"30m\" or \"1h30m\"");
    let mut rest = as_text(node, "approval_timeout")?;
    let mut seconds = 0u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(flaw)?;
        let number: u64 = rest[..digits].parse().map_err(|_| flaw())?;
        let unit = match rest.as_bytes().get(digits) {
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            _ => return Err(flaw()),
        };
        seconds = number.checked_mul(unit).and_then(|more| seconds.checked_add(more)).ok_or_else(flaw)?;
        rest = &rest[digits + 1..];
    }
    if seconds == 0 { Err(flaw()) } else { Ok(seconds) }
}
