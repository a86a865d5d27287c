//! `palisade tools`: the servers whose tools programs may call.
//!
//! The commands need no running server. They share its catalogues: what is accepted here counts there at once. A server
//! that is added or removed counts from the next start of `palisade mcp` or `palisade serve`.

mod arguments;
mod edit;
mod import;
mod look;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use terminal::complain;
use upstreams::{Login, ToolCall, ToolError, ToolHost, ToolName, Transport, Upstreams};

pub(crate) use self::arguments::ToolsArguments;
use self::arguments::Verb;
use crate::config::{self, Settings};
use crate::machine::{self, ServerMode};
use crate::options::Options;
use crate::{state, tools};

const FAILED: u8 = 1;
const CALL_PATIENCE: Duration = Duration::from_secs(60);
const LISTING_PATIENCE: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// What went wrong, and what to do.
type Failure = (String, Option<String>);
type Told = Result<String, Failure>;

pub(crate) fn main(options: &Options, arguments: ToolsArguments) -> ExitCode {
    match run(options, arguments.verb) {
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

fn run(options: &Options, verb: Verb) -> Told {
    match verb {
        Verb::Add(add) => {
            let told = edit::add(&add)?;
            Ok(format!("{told}\n{}", listed(options, &add.name)))
        }
        Verb::Remove { name } => edit::remove(&name),
        Verb::Import { client, print } => import::main(&client, print),
        Verb::List { json } => with_hosts(options, |host, settings| look::list(host, settings, json)),
        Verb::Diff { server } => with_hosts(options, |host, _| look::diff(host, server.as_deref())),
        Verb::Forget { server } => with_hosts(options, |host, _| {
            let is_known = host.forget(&server).map_err(told)?;
            Ok(if is_known {
                format!("what was known about {server} is forgotten")
            } else {
                "nothing was known".to_owned()
            })
        }),
        Verb::Login { server, scope, client_id, principal } => {
            let principal = principal.map(|name| {
                let wrong = || failure(format!("`{}` is no principal", terminal::plain(&name)));
                engine::Principal::new(&name).ok_or_else(wrong)
            });
            let login = Login { principal: principal.transpose()?, scope, client_id };
            with_servers(options, async |host| log_in(host, &server, &login).await)
        }
        Verb::Find { words, server, limit, json } => {
            with_servers(options, async |host| look::find(host, &words.join(" "), &server, limit, json).await)
        }
        Verb::Show { name, stubs } => {
            with_servers(options, async |host| look::show(host, &name, stubs.as_deref()).await)
        }
        Verb::Accept { server, tools } => with_servers(options, async |host| {
            let names = (!tools.is_empty()).then_some(tools);
            let accepted = host.accept(&server, names).await.map_err(told)?;
            Ok(match accepted.is_empty() {
                true => format!("nothing of {server} was held"),
                false => format!("accepted: {}", accepted.join(", ")),
            })
        }),
        Verb::Call { name, arguments, json } => {
            let arguments = call_arguments(&arguments, json.as_deref())?;
            with_servers(options, async |host| call(host, &name, arguments).await)
        }
    }
}

fn told(error: ToolError) -> Failure {
    let remedy = (!error.remedy.is_empty()).then_some(error.remedy);
    (format!("{} ({})", error.message, error.code.name()), remedy)
}

fn failure(error: impl std::fmt::Display) -> Failure {
    (error.to_string(), None)
}

fn with_hosts(options: &Options, work: impl FnOnce(&Upstreams, &Settings) -> Told) -> Told {
    let (host, settings) = host(options)?;
    work(&host, &settings)
}

/// Runs a command that may start servers, behind their walls. They end with it.
fn with_servers(options: &Options, work: impl AsyncFnOnce(&Upstreams) -> Told) -> Told {
    let done = machine::with_engine(options, ServerMode::OneShot, |machine| async move {
        match &machine.upstreams {
            Some(host) => work(host).await,
            None => Err(none_configured()),
        }
    });
    done.map_err(failure)?
}

/// The servers for a command that starts none.
fn host(options: &Options) -> Result<(Arc<Upstreams>, Settings), Failure> {
    let settings = config::load(options).map_err(failure)?.settings;
    let state_dir: PathBuf = state::directory(settings.state_dir.value.as_deref()).map_err(failure)?;
    match tools::upstreams(&settings, &state_dir, None) {
        Some(host) => Ok((host, settings)),
        None => Err(none_configured()),
    }
}

fn none_configured() -> Failure {
    let remedy = "add one with `palisade tools add` or `palisade tools import CLIENT`";
    ("no tool server is configured".to_owned(), Some(remedy.to_owned()))
}

/// Lists the tools of a server that was just added. What it lacks is told, and the entry stays.
fn listed(options: &Options, name: &str) -> String {
    let outcome = with_servers(options, async |host| {
        let (tools, held) =
            host.list(name, &engine::Principal::local(), LISTING_PATIENCE).await.map_err(told)?;
        let waiting = if held > 0 {
            format!(", of which {held} are held (palisade tools diff {name})")
        } else {
            String::new()
        };
        Ok(format!("{name} has {tools} tools{waiting}"))
    });
    let told = outcome.unwrap_or_else(|(message, remedy)| {
        let remedy = remedy.map(|remedy| format!(" ({remedy})")).unwrap_or_default();
        format!("it cannot be used yet: {}{remedy}", terminal::plain(&message))
    });
    let lacking = lacking(options, name).unwrap_or_default();
    std::iter::once(told).chain(lacking).collect::<Vec<_>>().join("\n")
}

/// What the wall keeps from a server that its configuration names.
fn lacking(options: &Options, name: &str) -> Option<Vec<String>> {
    let settings = config::load(options).ok()?.settings;
    let Transport::Stdio(stdio) = &settings.tools.servers.value.get(name)?.transport else { return None };
    let line = |line: String| terminal::visible(&format!("missing: {line}"));
    Some(tools::missing::missing(stdio).into_iter().map(line).collect())
}

/// Logs in, and lists the tools with the new token.
async fn log_in(host: &Upstreams, server: &str, login: &Login) -> Told {
    // To standard error, as it is a question to the user and no result.
    let show = |url: &str| eprintln!("open this address to log in to {server}:\n\n  {url}\n");
    let scope = host.login(server, login, show).await.map_err(told)?;
    let scope = if scope.is_empty() { String::new() } else { format!(" ({})", terminal::plain(&scope)) };
    let mut text = format!("logged in to {server}{scope}");
    let principal = login.principal.clone().unwrap_or_else(engine::Principal::local);
    match host.list(server, &principal, LISTING_PATIENCE).await {
        Ok((tools, held)) => text.push_str(&format!("; it has {tools} tools, {held} held")),
        Err(error) => {
            text.push_str(&format!("; its tools cannot be listed: {}", terminal::plain(&error.message)))
        }
    }
    Ok(text)
}

fn call_arguments(words: &[String], json: Option<&str>) -> Result<Map<String, Value>, Failure> {
    let mut arguments = match json.map(serde_json::from_str::<Value>) {
        None => Map::new(),
        Some(Ok(Value::Object(arguments))) => arguments,
        Some(_) => return Err(("--json must be a JSON object".to_owned(), None)),
    };
    for word in words {
        let Some((name, text)) = word.split_once('=') else {
            let remedy = "write NAME=VALUE, or --json '{\"NAME\": VALUE}'".to_owned();
            return Err((format!("`{}` is no argument", terminal::plain(word)), Some(remedy)));
        };
        // A value that is JSON is taken as such; anything else is text.
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        arguments.insert(name.to_owned(), value);
    }
    Ok(arguments)
}

async fn call(host: &Upstreams, name: &str, arguments: Map<String, Value>) -> Told {
    let Some((server, tool)) = name.split_once('.') else {
        return Err((format!("`{}` is no tool: write SERVER.TOOL", terminal::plain(name)), None));
    };
    let principal = engine::Principal::local();
    let call = ToolCall {
        principal: &principal,
        server,
        tool: ToolName::Spelled(tool),
        arguments,
        deadline: Instant::now() + CALL_PATIENCE,
        cancel: tokio_util::sync::CancellationToken::new(),
        answer_bytes_max: ANSWER_BYTES_MAX,
        is_learned_from: true,
    };
    let answer = host.call(call).await.map_err(told)?;
    let text = serde_json::to_string_pretty(&json!(answer.result)).unwrap_or_default();
    if answer.is_error() { Err((text, None)) } else { Ok(text) }
}
