//! `palisade policy explain`: which binding, policy and rules decide about a call, with their places and counters.

use std::path::PathBuf;

use ::policy::{ApproveBy, Decimal, Effect, Step};
use clap::Args;
use engine::Caller;
use engine::admin::{self, Counter, ExplainedCall, ExplainedStep, Explanation};
use serde_json::Value;
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

/// Explains a call; the truth says whether it is allowed.
pub(super) fn explain(
    options: &Options,
    asked: &ExplainArguments,
    given: Value,
) -> Result<(String, bool), String> {
    let told = match &asked.file {
        Some(file) => {
            let name = file.display().to_string();
            let begun = Explanation { file: Some(name.clone()), policy: name, ..Explanation::default() };
            let caller = caller(&asked.principal, &[])?;
            let call = ExplainedCall { caller: &caller, tool: &asked.tool, arguments: &given };
            begun.judged(&read(file)?, call, |_| None)
        }
        None => in_force(options, asked, &given)?,
    };
    let text = match asked.json {
        true => serde_json::to_string_pretty(&told.to_json()).unwrap_or_default(),
        false => as_text(&told),
    };
    Ok((text, told.is_allowed()))
}

fn in_force(options: &Options, asked: &ExplainArguments, given: &Value) -> Result<Explanation, String> {
    let (book, settings) = with_settings(options)?;
    let caller = asked.caller(&settings)?;
    let call = ExplainedCall { caller: &caller, tool: &asked.tool, arguments: given };
    let state_dir = settings.state_dir.value.clone().or_else(state::expected);
    let origin = settings.policy_bind.origin.to_string();
    let mut told = admin::explain(&book, state_dir.as_deref(), call, Some(&origin));
    if !told.policy.is_empty() {
        let found = config::policies::find(&settings, &told.policy).map_err(|error| error.to_string())?;
        told.file = found.map(|(path, _)| path.display().to_string());
    }
    Ok(told)
}

fn as_text(told: &Explanation) -> String {
    let by = match (told.policy.as_str(), &told.binding) {
        ("", None) if told.is_allowed() => "no policy binds the caller".to_owned(),
        ("", _) => "no policy is bound to the caller".to_owned(),
        (policy, _) => format!("by the policy {policy}"),
    };
    let mut text = format!("{}: {by}\n", told.verdict);
    if let Some(binding) = &told.binding {
        text.push_str(&format!("  binding  {}\n", plain(binding)));
    }
    if let Some(file) = &told.file {
        text.push_str(&format!("  file     {file}\n"));
    }
    for ExplainedStep { step: Step { rule, effect }, line, counter } in &told.steps {
        let effect = match (effect, counter) {
            (Effect::Passes, _) => "passes".to_owned(),
            (Effect::Denies(reason), _) => format!("denies: {}", plain(reason)),
            (Effect::Counts(amount), Some(counter)) => counter_text(counter, *amount),
            (Effect::Counts(amount), None) => format!("counts {amount}"),
            (Effect::Asks, _) => match told.asks {
                Some(ApproveBy::Caller) => "asks the caller, at the client; else the operator".to_owned(),
                _ => "asks the operator".to_owned(),
            },
        };
        let line = line.map(|line| format!("  (line {line})")).unwrap_or_default();
        text.push_str(&format!("  {}  {effect}{line}\n", plain(rule)));
    }
    for (name, list) in [("access", &told.declared.access), ("walls", &told.declared.walls)] {
        if !list.is_empty() {
            text.push_str(&format!("  {name}: {}\n", plain(&list.join(", "))));
        }
    }
    text
}

fn counter_text(counter: &Counter, amount: Decimal) -> String {
    let most = counter.most.map(|most| format!(" of {most}")).unwrap_or_default();
    let reached = if counter.is_reached { ", so the limit is reached" } else { "" };
    format!("counts {amount} to {}{most} in this {}{reached}", counter.counted, counter.window)
}
