//! Rules: what a policy file says about calls of tools, and the judgement about one call.
//!
//! Order: hidden tools, the default for tools that are not listed, the rules of the tool, the rules of all tools, limits,
//! approval. The first denial ends it, so a call that is denied never asks a human. Limits are not counted here: the
//! judgement names what to reserve, and the ledger reserves it ([`Limit::allows`] is the test after adding).

mod cases;
mod doubts;
mod predicate;
mod read;
mod read_intercept;
mod read_native;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use self::predicate::{Finding, Op, Path, Predicate};
use crate::caller::Caller;
use crate::decimal::Decimal;
use crate::document::{Flaw, Position};
use crate::principal::Principal;
use crate::window::Window;

pub use self::cases::{Case, Expectation, Subject, read_cases};
pub use self::read::read_rules;

/// The rule of a denial because the tool is hidden.
pub const RULE_HIDE: &str = "/hide";
/// The rule of a denial because a name of access is not listed.
pub const RULE_ACCESS: &str = "/access";
/// The rule of a denial because the tool is not listed.
pub const RULE_DEFAULT: &str = "/default";

/// A policy file, compiled.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// What the file says about itself.
    pub description: Option<String>,
    /// Whether tools that are not listed are allowed.
    allows_unlisted: bool,
    hides_all: bool,
    hidden: HashSet<String>,
    tools: HashMap<String, ToolRules>,
    all: ToolRules,
    examples: Vec<Case>,
    hide_at: Position,
    default_at: Position,
    notes: Vec<Flaw>,
}

/// The rules of one tool, or of all.
#[derive(Debug, Clone, Default)]
struct ToolRules {
    checks: Vec<Check>,
    limits: Vec<Arc<Limit>>,
    approvals: Vec<Approval>,
    declared: Declared,
    /// Each list of walls. [`crate::choose_wall`] holds every list.
    walls: Vec<Vec<String>>,
    /// Names among them that this version does not know.
    unknown_walls: Vec<(Position, String)>,
    /// Where it names what programs may reach outside. Names that are not listed are denied then.
    access_at: Option<Position>,
}

/// What a policy says about reach and isolation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared {
    /// Names of what a program may reach outside of its sandbox.
    pub access: Vec<String>,
    /// Walls that a program may be behind: names, or `own_kernel`.
    pub walls: Vec<String>,
}

/// A rule that allows or denies by the arguments alone.
#[derive(Debug, Clone)]
struct Check {
    rule: String,
    at: Position,
    kind: CheckKind,
    reason: Option<String>,
}

#[derive(Debug, Clone)]
enum CheckKind {
    /// All must hold.
    Require(Vec<Predicate>),
    /// Must not hold.
    DenyIf(Predicate),
    /// Denies every call.
    Deny,
}

/// A limit on a counter.
#[derive(Debug, Clone)]
pub struct Limit {
    /// The rule, as a JSON pointer into the file.
    pub rule: String,
    /// The tool whose counter it is, or [`Limit::OF_ALL_TOOLS`].
    pub tool: String,
    /// The counter's name.
    pub counter: String,
    /// How long the counter counts.
    pub window: Window,
    /// Where the file says so.
    pub(crate) at: Position,
    /// Whether all callers share the counter.
    pub is_shared: bool,
    tests: Vec<(Op, Decimal)>,
    increment: Increment,
    /// Whether another rule counts it, and this one only looks at it.
    only_reads: bool,
    reason: Option<String>,
}

#[derive(Debug, Clone)]
enum Increment {
    By(Decimal),
    From(Path),
}

/// A rule that asks a human.
#[derive(Debug, Clone)]
pub struct Approval {
    /// The rule, as a JSON pointer into the file.
    pub rule: String,
    /// Why a human is asked.
    pub reason: Option<String>,
    /// Who may approve.
    pub by: Option<ApproveBy>,
    /// How long an approval is valid, in seconds.
    pub timeout_s: Option<u64>,
    at: Position,
    /// All of them; empty asks always.
    when: Vec<Predicate>,
}

/// Who may approve a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApproveBy {
    /// Somebody with the scope `approve`.
    Operator,
    /// The user of the client that calls.
    Caller,
}

/// What the rules say about a call.
#[derive(Debug, Clone)]
pub enum Judgement<'r> {
    /// It must not happen.
    Denied(Denied),
    /// It may happen, after these reservations and this approval.
    Allowed {
        /// What to count.
        reserve: Vec<Reservation>,
        /// Whom to ask.
        approval: Option<&'r Approval>,
    },
}

/// A denial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The rule, as a JSON pointer into the file.
    pub rule: String,
    /// The reason for the model.
    pub reason: String,
}

/// What to add to a counter.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// Of this limit.
    pub limit: Arc<Limit>,
    /// So much.
    pub amount: Decimal,
}

/// One rule that was looked at, for `explain`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The rule, as a JSON pointer into the file.
    pub rule: String,
    /// What it did.
    pub effect: Effect,
}

/// What a rule did to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: the call passes it.
    Passes,
    /// It denies the call.
    Denies(String),
    /// It adds this much to a counter.
    Counts(Decimal),
    /// It asks a human.
    Asks,
}

impl Rules {
    /// Rules that allow every call.
    pub fn open() -> Self {
        Self { allows_unlisted: true, ..Self::default() }
    }

    /// Whether a tool is kept out of lists. `names` are the published name and the tool's own.
    pub fn hides(&self, names: &[&str]) -> bool {
        self.hides_all || names.iter().any(|name| self.hidden.contains(*name))
    }

    /// The judgement about a call. `names` are the published name of the tool and its own name, if it differs.
    pub fn judge(&self, names: &[&str], arguments: &Value) -> Judgement<'_> {
        self.judge_with(names, arguments, &mut |_, _| {})
    }

    /// The judgement, with every rule that was looked at. Rules behind a denial were not.
    pub fn explain(&self, names: &[&str], arguments: &Value) -> (Judgement<'_>, Vec<Step>) {
        let mut steps = Vec::new();
        let judgement = self.judge_with(names, arguments, &mut |rule, effect| {
            steps.push(Step { rule: rule.to_owned(), effect });
        });
        (judgement, steps)
    }

    /// Where the file has a rule.
    pub fn place(&self, rule: &str) -> Option<Position> {
        let all = || self.tools.values().chain([&self.all]);
        let checks = all().flat_map(|tool| &tool.checks).map(|check| (&check.rule, check.at));
        let limits = all().flat_map(|tool| &tool.limits).map(|limit| (&limit.rule, limit.at));
        let approvals = all().flat_map(|tool| &tool.approvals).map(|one| (&one.rule, one.at));
        match rule {
            RULE_HIDE => Some(self.hide_at),
            RULE_DEFAULT => Some(self.default_at),
            RULE_ACCESS => all().find_map(|tool| tool.access_at),
            _ => checks.chain(limits).chain(approvals).find(|(known, _)| *known == rule).map(|(_, at)| at),
        }
        .filter(|at| at.line > 0)
    }

    /// What the policy declares about a tool.
    pub fn declared(&self, names: &[&str]) -> Declared {
        let mut declared = self.all.declared.clone();
        for tool in names.iter().filter_map(|name| self.tools.get(*name)) {
            declared.access.extend_from_slice(&tool.declared.access);
            declared.walls.extend_from_slice(&tool.declared.walls);
        }
        declared
    }

    /// The lists of walls that a call of that tool must keep to.
    pub fn wall_lists(&self, names: &[&str]) -> Vec<Vec<String>> {
        let of_tools = names.iter().filter_map(|name| self.tools.get(*name));
        of_tools.chain([&self.all]).flat_map(|rules| rules.walls.clone()).collect()
    }

    /// Parts of the file that this version reads and does not enforce, with their places.
    pub fn notes(&self) -> &[Flaw] {
        &self.notes
    }

    /// The calls that the policy says something about. They came true when it was read.
    pub fn examples(&self) -> &[Case] {
        &self.examples
    }

    fn judge_with(
        &self,
        names: &[&str],
        arguments: &Value,
        on_rule: &mut dyn FnMut(&str, Effect),
    ) -> Judgement<'_> {
        match self.decide(names, arguments, on_rule) {
            Ok((reserve, approval)) => Judgement::Allowed { reserve, approval },
            Err(denied) => {
                on_rule(&denied.rule, Effect::Denies(denied.reason.clone()));
                Judgement::Denied(denied)
            }
        }
    }

    fn decide(
        &self,
        names: &[&str],
        arguments: &Value,
        on_rule: &mut dyn FnMut(&str, Effect),
    ) -> Result<(Vec<Reservation>, Option<&Approval>), Denied> {
        let name = names.first().copied().unwrap_or_default();
        if self.hides(names) {
            let reason = format!("the tool {name} is hidden by policy");
            return Err(Denied { rule: RULE_HIDE.to_owned(), reason });
        }
        let mut applied: Vec<&ToolRules> = names.iter().filter_map(|name| self.tools.get(*name)).collect();
        if applied.is_empty() && !self.allows_unlisted {
            let reason = format!("the tool {name} is not among the tools that the policy allows");
            return Err(Denied { rule: RULE_DEFAULT.to_owned(), reason });
        }
        applied.push(&self.all);
        for check in applied.iter().flat_map(|rules| &rules.checks) {
            check.pass(name, arguments)?;
            on_rule(&check.rule, Effect::Passes);
        }
        check_access(&applied, arguments)?;
        let mut reserve = Vec::new();
        for limit in applied.iter().flat_map(|rules| &rules.limits) {
            let amount = limit.amount(arguments)?;
            on_rule(&limit.rule, Effect::Counts(amount));
            reserve.push(Reservation { limit: Arc::clone(limit), amount });
        }
        let asks = |approval: &&Approval| approval.is_needed(arguments);
        let asking = applied.iter().flat_map(|rules| &rules.approvals).filter(asks);
        // If several rules ask, the strictest one does.
        let approval = asking.min_by_key(|approval| approval.leniency());
        if let Some(approval) = approval {
            on_rule(&approval.rule, Effect::Asks);
        }
        Ok((reserve, approval))
    }
}

/// Refuses names of access that the rules do not list, where they list some.
fn check_access(applied: &[&ToolRules], arguments: &Value) -> Result<(), Denied> {
    if applied.iter().all(|rules| rules.access_at.is_none()) {
        return Ok(());
    }
    let is_listed =
        |name: &str| applied.iter().any(|rules| rules.declared.access.iter().any(|own| own == name));
    let unlisted = match arguments.get("access") {
        None | Some(Value::Null) => None,
        Some(Value::Array(names)) => names.iter().find(|name| !name.as_str().is_some_and(is_listed)),
        // Whatever else it is, it is not on the list.
        Some(other) => Some(other),
    };
    let Some(unlisted) = unlisted else { return Ok(()) };
    let shown: String = unlisted.as_str().unwrap_or("that").chars().take(64).collect();
    let reason = format!("the policy does not allow the access `{}`", shown.escape_debug());
    Err(Denied { rule: RULE_ACCESS.to_owned(), reason })
}

impl Check {
    fn pass(&self, tool: &str, arguments: &Value) -> Result<(), Denied> {
        let failed = match &self.kind {
            CheckKind::Require(all) => all.iter().find(|one| one.find(arguments) != Finding::Holds).map(Some),
            CheckKind::DenyIf(one) => {
                let matches = matches!(one.find(arguments), Finding::Holds | Finding::Unfit);
                matches.then_some(Some(one))
            }
            CheckKind::Deny => Some(None),
        };
        let Some(failed) = failed else { return Ok(()) };
        let reason = match (&self.reason, failed) {
            (Some(reason), _) => reason.clone(),
            (None, Some(predicate)) => format!("the policy does not allow {} here", predicate.path),
            (None, None) => format!("the policy does not allow the tool {tool}"),
        };
        Err(Denied { rule: self.rule.clone(), reason })
    }
}

impl Limit {
    /// The name that counters of all tools together have instead of a tool's.
    pub const OF_ALL_TOOLS: &str = "_global";

    /// Whether the counter may have this value, after the call was added.
    pub fn allows(&self, counted: Decimal) -> bool {
        self.tests.iter().all(|(op, bound)| op.compare(counted, *bound).unwrap_or(false))
    }

    /// The most that the counter may reach, if the limit has the usual shape.
    pub fn most(&self) -> Option<Decimal> {
        self.tests.iter().find(|(op, _)| matches!(op, Op::Lt | Op::Lte)).map(|(_, bound)| *bound)
    }

    /// The denial of a call that this limit does not allow.
    pub fn denied(&self) -> Denied {
        let reason = self.reason.clone().unwrap_or_else(|| match self.most() {
            Some(most) => {
                format!("the limit of {most} per {} is reached ({})", self.window.name(), self.counter)
            }
            None => format!("the counter {} does not allow this call", self.counter),
        });
        Denied { rule: self.rule.clone(), reason }
    }

    fn amount(&self, arguments: &Value) -> Result<Decimal, Denied> {
        match &self.increment {
            Increment::By(amount) => Ok(*amount),
            Increment::From(path) => {
                path.number(arguments).filter(|amount| !amount.is_negative()).ok_or_else(|| Denied {
                    rule: self.rule.clone(),
                    reason: format!("{path} must be a number of at least zero, because the policy counts it"),
                })
            }
        }
    }
}

impl ApproveBy {
    /// The name in policy files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Caller => "caller",
        }
    }
}

impl Approval {
    /// A rule of the server itself, which asks always.
    pub fn always(rule: &str, reason: String, timeout_s: u64) -> Self {
        let (at, when) = (Position::default(), Vec::new());
        Self { rule: rule.to_owned(), reason: Some(reason), by: None, timeout_s: Some(timeout_s), at, when }
    }

    /// Who is asked about a call of this caller. The user of this machine sits at the client, other callers may not.
    pub fn asks(&self, caller: &Caller) -> ApproveBy {
        let is_local = caller.principal == Principal::local();
        self.by.unwrap_or(if is_local { ApproveBy::Caller } else { ApproveBy::Operator })
    }

    fn leniency(&self) -> u8 {
        match self.by {
            Some(ApproveBy::Operator) => 0,
            None => 1,
            Some(ApproveBy::Caller) => 2,
        }
    }

    fn is_needed(&self, arguments: &Value) -> bool {
        self.when.iter().all(|one| matches!(one.find(arguments), Finding::Holds | Finding::Unfit))
    }
}

#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
