//! Which binding, policy and rules decide about a call, with their places and counters. Nothing is counted.

use std::path::Path;

use policy::{
    ApproveBy, Book, Bound, Caller, Decimal, Declared, Effect, Judgement, NamedRules, Reservation, Rules,
    Step,
};
use serde_json::{Value, json};

use crate::gatekeeper::counted;

/// The call that is explained.
#[derive(Debug, Clone, Copy)]
pub struct ExplainedCall<'c> {
    /// Who would call.
    pub caller: &'c Caller,
    /// The tool.
    pub tool: &'c str,
    /// Its arguments, in the form that is judged.
    pub arguments: &'c Value,
}

/// What there is to tell.
#[derive(Debug, Default)]
pub struct Explanation {
    /// `allowed`, `denied` or `needs approval`.
    pub verdict: &'static str,
    /// Why that policy binds the caller.
    pub binding: Option<String>,
    /// The policy; empty if none binds the caller.
    pub policy: String,
    /// The file of the policy, as far as it is known.
    pub file: Option<String>,
    /// The rules that were looked at.
    pub steps: Vec<ExplainedStep>,
    /// Who is asked, if the call needs an approval.
    pub asks: Option<ApproveBy>,
    /// What the rules say about reach and isolation.
    pub declared: Declared,
}

/// A rule that was looked at.
#[derive(Debug)]
pub struct ExplainedStep {
    /// The rule and what it says.
    pub step: Step,
    /// Its line in the file.
    pub line: Option<usize>,
    /// Its counter, if it has one that can be looked at.
    pub counter: Option<Counter>,
}

/// A counter as it is, and what the call would make of it.
#[derive(Debug)]
pub struct Counter {
    /// What it has reached.
    pub counted: Decimal,
    /// The most.
    pub most: Option<Decimal>,
    /// Its window.
    pub window: &'static str,
    /// Whether the call would exceed it.
    pub is_reached: bool,
}

/// Explains a call by the policies of a book, with the counters of that state directory. `origin` says where the
/// bindings come from.
pub fn explain(
    book: &Book,
    state_dir: Option<&Path>,
    call: ExplainedCall<'_>,
    origin: Option<&str>,
) -> Explanation {
    let caller = call.caller;
    let bound = book.binding_of(caller).and_then(|place| {
        let binding = book.bindings().get(place)?;
        let (number, all) = (place + 1, book.bindings().len());
        let from = origin.map(|origin| format!(", {origin}")).unwrap_or_default();
        let callers: String = binding.callers.chars().filter(|c| !c.is_control()).collect();
        Some(format!("{callers} -> {} (binding {number} of {all}{from})", binding.policy))
    });
    let own = caller.policy.as_ref().map(|policy| format!("{} -> {policy} (named by the key)", caller.label));
    let begun = Explanation { binding: own.or(bound), ..Explanation::default() };
    match book.of(caller) {
        Bound::Free => Explanation { verdict: "allowed", ..begun },
        Bound::Nothing => Explanation { verdict: "denied", ..begun },
        Bound::By(named) => {
            let begun = Explanation { policy: named.name.clone(), ..begun };
            begun.judged(&named.rules, call, |reservation| {
                state_dir.and_then(|state_dir| counter(state_dir, &named, caller, reservation))
            })
        }
    }
}

impl Explanation {
    /// What rules say about the call.
    pub fn judged(
        mut self,
        rules: &Rules,
        call: ExplainedCall<'_>,
        counter: impl Fn(&Reservation) -> Option<Counter>,
    ) -> Self {
        let names = [call.tool];
        let (judgement, steps) = rules.explain(&names, call.arguments);
        self.declared = rules.declared(&names);
        if let Judgement::Allowed { approval: Some(approval), .. } = &judgement {
            self.asks = Some(approval.asks(call.caller));
        }
        let mut counters: Vec<_> = match &judgement {
            Judgement::Allowed { reserve, .. } => reserve.iter().map(&counter).collect(),
            Judgement::Denied(_) => Vec::new(),
        };
        let is_reached = counters.iter().flatten().any(|counter| counter.is_reached);
        self.verdict = match judgement {
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
            self.steps.push(ExplainedStep { step, line, counter });
        }
        self
    }

    /// Whether the call may happen without more ado.
    pub fn is_allowed(&self) -> bool {
        self.verdict == "allowed"
    }

    /// As JSON, for programs.
    pub fn to_json(&self) -> Value {
        json!({
            "policy": self.policy,
            "verdict": self.verdict,
            "binding": self.binding,
            "file": self.file,
            "rules": self.steps.iter().map(|step| step.to_json(self.asks)).collect::<Vec<_>>(),
            "access": self.declared.access,
            "walls": self.declared.walls,
        })
    }
}

impl ExplainedStep {
    fn to_json(&self, asks: Option<ApproveBy>) -> Value {
        let Self { step: Step { rule, effect }, line, counter } = self;
        let mut told = match effect {
            Effect::Passes => json!({"rule": rule, "effect": "passes"}),
            Effect::Denies(reason) => json!({"rule": rule, "effect": "denies", "reason": reason}),
            Effect::Counts(amount) => json!({"rule": rule, "effect": "counts", "amount": amount.to_string()}),
            Effect::Asks => {
                json!({"rule": rule, "effect": "asks", "approve_by": asks.map(ApproveBy::name)})
            }
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
    }
}

/// The counter of a reservation, if it can be looked at.
fn counter(
    state_dir: &Path,
    named: &NamedRules,
    caller: &Caller,
    Reservation { limit, amount }: &Reservation,
) -> Option<Counter> {
    let counted = counted(state_dir, &named.name, &caller.principal, limit).ok()?;
    let is_reached = !counted.checked_add(*amount).is_some_and(|sum| limit.allows(sum));
    Some(Counter { counted, most: limit.most(), window: limit.window.name(), is_reached })
}
