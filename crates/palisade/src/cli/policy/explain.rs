//! `palisade policy explain`: which binding, policy and rules decide about a call, with their places and counters.

use std::path::PathBuf;

use ::policy::{Bound, Decimal, Declared, Effect, Judgement, NamedRules, Reservation, Rules, Step};
use clap::Args;
use engine::Caller;
use serde_json::{Map, Value, json};
use terminal::plain;

use super::{caller, keys, read, with_settings};
use crate::config::{self, Settings};
use crate::options::Options;
use crate::state;

#[derive(Debug, Args)]
pub(super) struct ExplainArguments {
    /// The caller, as bindings name it: local, owner, key:NAME
    #[arg(long, value_name = "CALLER", default_value = "local")]
    principal: String,
    /// A claim of the caller, repeatable
    #[arg(long = "claim", value_name = "NAME=VALUE")]
    claims: Vec<String>,
    /// The tool
    #[arg(long, value_name = "NAME")]
    tool: String,
    /// Its arguments
    #[arg(long, value_name = "JSON", default_value = "{}")]
    args: String,
    /// Judge by this file instead of the policies in force
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

impl ExplainArguments {
    /// The arguments of the call, in the form that is judged.
    pub(super) fn given(&self) -> Result<Value, String> {
        match serde_json::from_str(&self.args) {
            Ok(Value::Object(given)) => Ok(mcp::judged_arguments(given)),
            Ok(_) => Err("--args must be a JSON object".to_owned()),
            Err(error) => Err(format!("--args is not JSON: {error}")),
        }
    }

    fn caller(&self, settings: &Settings) -> Result<Caller, String> {
        let claims: Option<Vec<_>> = self.claims.iter().map(|claim| claim.split_once('=')).collect();
        let claims = claims.ok_or("--claim is NAME=VALUE, such as groups=ops")?;
        Ok(Caller { claims: ::policy::Claims::new(claims), ..caller(&self.principal, &keys(settings))? })
    }
}

/// What there is to tell.
#[derive(Default)]
struct Findings {
    verdict: &'static str,
    binding: Option<String>,
    policy: String,
    file: Option<String>,
    steps: Vec<Told>,
    declared: Declared,
}

/// A rule that was looked at.
struct Told {
    step: Step,
    line: Option<usize>,
    counter: Option<Counter>,
}

/// A counter as it is, and what the call would make of it.
struct Counter {
    counted: Decimal,
    most: Option<Decimal>,
    window: &'static str,
    is_reached: bool,
}

/// Explains a call; the truth says whether it is allowed.
pub(super) fn explain(
    options: &Options,
    asked: &ExplainArguments,
    given: Value,
) -> Result<(String, bool), String> {
    let findings = match &asked.file {
        Some(file) => {
            let name = file.display().to_string();
            let findings = Findings { file: Some(name.clone()), policy: name, ..Findings::default() };
            judged(findings, &read(file)?, asked, (&given, |_: &Reservation| None))
        }
        None => in_force(options, asked, &given)?,
    };
    let is_allowed = findings.verdict == "allowed";
    Ok((if asked.json { findings.as_json() } else { findings.as_text() }, is_allowed))
}

fn in_force(options: &Options, asked: &ExplainArguments, given: &Value) -> Result<Findings, String> {
    let (book, settings) = with_settings(options)?;
    let caller = asked.caller(&settings)?;
    let binding = book.binding_of(&caller).and_then(|place| {
        let binding = book.bindings().get(place)?;
        let (number, all, origin) = (place + 1, book.bindings().len(), &settings.policy_bind.origin);
        Some(format!(
            "{} -> {} (binding {number} of {all}, {origin})",
            plain(&binding.callers),
            binding.policy
        ))
    });
    let own = caller.policy.as_ref().map(|policy| format!("{} -> {policy} (named by the key)", caller.label));
    let findings = Findings { binding: own.or(binding), ..Findings::default() };
    Ok(match book.of(&caller) {
        Bound::Free => Findings { verdict: "allowed", ..findings },
        Bound::Nothing => Findings { verdict: "denied", ..findings },
        Bound::By(named) => {
            let found = config::policies::find(&settings, &named.name).map_err(|error| error.to_string())?;
            let file = found.map(|(path, _)| path.display().to_string());
            let findings = Findings { policy: named.name.clone(), file, ..findings };
            let count = |reservation: &Reservation| counter(&settings, &named, &caller, reservation);
            judged(findings, &named.rules, asked, (given, count))
        }
    })
}

fn judged(
    mut findings: Findings,
    rules: &Rules,
    asked: &ExplainArguments,
    (given, counter): (&Value, impl Fn(&Reservation) -> Option<Counter>),
) -> Findings {
    let names = [asked.tool.as_str()];
    let (judgement, steps) = rules.explain(&names, given);
    findings.declared = rules.declared(&names);
    let mut counters: Vec<_> = match &judgement {
        Judgement::Allowed { reserve, .. } => reserve.iter().map(&counter).collect(),
        Judgement::Denied(_) => Vec::new(),
    };
    let is_reached = counters.iter().flatten().any(|counter| counter.is_reached);
    findings.verdict = match judgement {
        Judgement::Denied(_) => "denied",
        _ if is_reached => "denied",
        Judgement::Allowed { approval: Some(_), .. } => "needs approval",
        Judgement::Allowed { approval: None, .. } => "allowed",
    };
    counters.reverse();
    for step in steps {
        let counter = match step.effect {
            Effect::Counts(_) => counters.pop().flatten(),
            _ => None,
        };
        let line = rules.place(&step.rule).map(|at| at.line);
        findings.steps.push(Told { step, line, counter });
    }
    findings
}

/// The counter of a reservation, if it can be looked at.
fn counter(
    settings: &Settings,
    named: &NamedRules,
    caller: &Caller,
    Reservation { limit, amount }: &Reservation,
) -> Option<Counter> {
    let state_dir = settings.state_dir.value.clone().or_else(state::expected)?;
    let counted = engine::counted(&state_dir, &named.name, &caller.principal, limit).ok()?;
    let is_reached = !counted.checked_add(*amount).is_some_and(|sum| limit.allows(sum));
    Some(Counter { counted, most: limit.most(), window: limit.window.name(), is_reached })
}

impl Findings {
    fn as_text(&self) -> String {
        let by = match (self.policy.as_str(), &self.binding) {
            ("", None) if self.verdict == "allowed" => "no policy binds the caller".to_owned(),
            ("", _) => "no policy is bound to the caller".to_owned(),
            (policy, _) => format!("by the policy {policy}"),
        };
        let mut text = format!("{}: {by}\n", self.verdict);
        if let Some(binding) = &self.binding {
            text.push_str(&format!("  binding  {binding}\n"));
        }
        if let Some(file) = &self.file {
            text.push_str(&format!("  file     {file}\n"));
        }
        for Told { step: Step { rule, effect }, line, counter } in &self.steps {
            let effect = match (effect, counter) {
                (Effect::Passes, _) => "passes".to_owned(),
                (Effect::Denies(reason), _) => format!("denies: {}", plain(reason)),
                (Effect::Counts(amount), Some(counter)) => counter.as_text(*amount),
                (Effect::Counts(amount), None) => format!("counts {amount}"),
                (Effect::Asks, _) => "asks a human".to_owned(),
            };
            let line = line.map(|line| format!("  (line {line})")).unwrap_or_default();
            text.push_str(&format!("  {}  {effect}{line}\n", plain(rule)));
        }
        for (name, list) in [("access", &self.declared.access), ("walls", &self.declared.walls)] {
            if !list.is_empty() {
                let note = if name == "walls" { "  (not enforced yet)" } else { "" };
                text.push_str(&format!("  {name}: {}{note}\n", plain(&list.join(", "))));
            }
        }
        text
    }

    fn as_json(&self) -> String {
        let step = |Told { step: Step { rule, effect }, line, counter }: &Told| {
            let mut told = match effect {
                Effect::Passes => json!({"rule": rule, "effect": "passes"}),
                Effect::Denies(reason) => json!({"rule": rule, "effect": "denies", "reason": reason}),
                Effect::Counts(amount) => {
                    json!({"rule": rule, "effect": "counts", "amount": amount.to_string()})
                }
                Effect::Asks => json!({"rule": rule, "effect": "asks"}),
            };
            if let Some(line) = line {
                told["line"] = json!(line);
            }
            if let Some(counter) = counter {
                told["counted"] = json!(counter.counted.to_string());
                told["most"] = json!(counter.most.map(|most| most.to_string()));
                told["window"] = json!(counter.window);
                told["reached"] = json!(counter.is_reached);
            }
            told
        };
        let mut whole = Map::new();
        whole.insert("policy".to_owned(), json!(self.policy));
        whole.insert("verdict".to_owned(), json!(self.verdict));
        whole.insert("binding".to_owned(), json!(self.binding));
        whole.insert("file".to_owned(), json!(self.file));
        whole.insert("rules".to_owned(), self.steps.iter().map(step).collect());
        whole.insert(
            "not_enforced".to_owned(),
            json!({"access": self.declared.access, "walls": self.declared.walls}),
        );
        serde_json::to_string_pretty(&whole).unwrap_or_default()
    }
}

impl Counter {
    fn as_text(&self, amount: Decimal) -> String {
        let most = self.most.map(|most| format!(" of {most}")).unwrap_or_default();
        let reached = if self.is_reached { ", so the limit is reached" } else { "" };
        format!("counts {amount} to {}{most} in this {}{reached}", self.counted, self.window)
    }
}
