//! `palisade access`: what runs may reach outside, and whether it works.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use egress::{Bundle, Gateway, Rule};
use engine::access::{ReachLog, Secrets};
use serde_json::{Value, json};
use terminal::complain;

use crate::config::Settings;
use crate::options::Options;
use crate::{config, machine, state};

const FAILED: u8 = 1;

/// Arguments of `access`.
#[derive(Debug, Args)]
pub(crate) struct AccessArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the names that runs can ask for, and what they give
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Try a connection as a program would make it: rules, address, connection
    Test {
        /// The name of the access
        name: String,
        /// Host and port, for example api.github.com:443
        #[arg(value_name = "HOST:PORT")]
        place: String,
    },
}

pub(crate) fn main(options: &Options, arguments: &AccessArguments) -> ExitCode {
    let done = match &arguments.verb {
        Verb::List { json } => list(options, *json),
        Verb::Test { name, place } => test(options, name, place),
    };
    match done {
        Ok(text) => {
            // A reader that has gone wants no more.
            writeln!(std::io::stdout().lock(), "{text}").ok();
            ExitCode::SUCCESS
        }
        Err((message, remedy)) => {
            complain(&message, remedy.as_deref());
            ExitCode::from(FAILED)
        }
    }
}

type Failure = (String, Option<String>);

fn settings(options: &Options) -> Result<Settings, Failure> {
    config::load(options).map(|loaded| loaded.settings).map_err(|error| (error.to_string(), None))
}

fn list(options: &Options, json: bool) -> Result<String, Failure> {
    let settings = settings(options)?;
    let state_dir =
        state::directory(settings.state_dir.value.as_deref()).map_err(|error| (error.to_string(), None))?;
    let secrets = Secrets::new(&state_dir);
    let names = &settings.access.names.value;
    if json {
        let all: Vec<Value> = names.iter().map(|(name, bundle)| as_json(name, bundle, &secrets)).collect();
        return Ok(serde_json::to_string_pretty(&all).unwrap_or_default());
    }
    if names.is_empty() {
        return Ok("no access is configured: programs reach nothing (see docs/ACCESS.md)".to_owned());
    }
    Ok(names.iter().map(|(name, bundle)| as_text(name, bundle, &secrets)).collect::<Vec<_>>().join("\n"))
}

fn as_text(name: &str, bundle: &Bundle, secrets: &Secrets) -> String {
    let mut text = name.to_owned();
    if !bundle.about.is_empty() {
        text.push_str(&format!(": {}", bundle.about));
    }
    for rule in &bundle.rules {
        text.push_str(&format!("\n  reaches {rule}"));
    }
    for grant in &bundle.secrets {
        let state = secrets
            .read(&grant.secret)
            .map_or_else(|error| format!("MISSING: {error}"), |_| "set".to_owned());
        text.push_str(&format!("\n  gives {} ({state})", grant.variable));
        if !grant.hosts.is_empty() {
            let hosts: Vec<String> = grant.hosts.iter().map(Rule::to_string).collect();
            text.push_str(&format!(", only to runs that reach nothing but {}", hosts.join(", ")));
        }
    }
    let max = bundle.maxima;
    text.push_str(&format!(
        "\n  at most {} connections at once, {} MB out and {} MB in for each run",
        max.connections, max.mb_out, max.mb_in
    ));
    text
}

fn as_json(name: &str, bundle: &Bundle, secrets: &Secrets) -> Value {
    let rules = |rules: &[Rule]| rules.iter().map(Rule::to_string).collect::<Vec<_>>();
    let given = bundle.secrets.iter().map(|grant| {
        let is_set = secrets.read(&grant.secret).is_ok();
        json!({ "variable": grant.variable, "is_set": is_set, "hosts": rules(&grant.hosts) })
    });
    let max = bundle.maxima;
    json!({
        "name": name,
        "about": bundle.about,
        "egress": rules(&bundle.rules),
        "secrets": given.collect::<Vec<_>>(),
        "max": { "connections": max.connections, "mb_out": max.mb_out, "mb_in": max.mb_in },
    })
}

fn test(options: &Options, name: &str, place: &str) -> Result<String, Failure> {
    let settings = settings(options)?;
    if !settings.access.names.value.contains_key(name) {
        let names: Vec<&str> = settings.access.names.value.keys().map(String::as_str).collect();
        let remedy = if names.is_empty() {
            "none is configured".to_owned()
        } else {
            format!("the names are {}", names.join(", "))
        };
        return Err((format!("there is no access `{}`", terminal::plain(name)), Some(remedy)));
    }
    // A test is no run: it is not recorded.
    let gateway = gateway_of(&settings, Path::new("/dev/null"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| (error.to_string(), None))?;
    let tested = runtime.block_on(gateway.test(name, place));
    let tested = tested.map_err(|refusal| {
        (
            format!("{}: {} ({})", terminal::plain(place), refusal.reason(), refusal.code()),
            Some(refusal.remedy().to_owned()),
        )
    })?;
    let addresses = if tested.addresses.is_empty() {
        "the upstream proxy".to_owned()
    } else {
        tested.addresses.join(", ")
    };
    Ok(format!("{} is reached by the rule {} at {addresses}", terminal::plain(place), tested.rule))
}

fn gateway_of(settings: &Settings, state_dir: &Path) -> Gateway {
    machine::gateway(settings, state_dir, &Arc::new(ReachLog::new(state_dir)))
}
