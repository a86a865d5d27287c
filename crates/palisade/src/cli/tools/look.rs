//! What `palisade tools` shows: servers, tools, definitions, differences.

use engine::Principal;
use serde_json::{Value, json};
use upstreams::{Dialect, FindQuery, ServerState, ToolHost, Upstreams, Viewer};

use super::{Failure, Told, told};
use crate::config::Settings;

/// The most lines of one difference.
const LINES_MAX: usize = 200;

pub(super) fn list(host: &Upstreams, settings: &Settings, json: bool) -> Told {
    let mut servers = host.servers(Viewer::of(&Principal::local()));
    for server in &mut servers {
        // With those that only some principals are shown.
        server.held = host.held(&server.name).map_err(told)?.len();
    }
    if json {
        return Ok(serde_json::to_string_pretty(&json!(servers)).unwrap_or_default());
    }
    let line = |server: &upstreams::ServerInfo| {
        let wall = match server.is_walled {
            Some(true) => "behind the wall",
            Some(false) => "WITHOUT a wall",
            None => "by address",
        };
        let held = if server.held > 0 { format!(", {} held", server.held) } else { String::new() };
        let about = if server.about.is_empty() { String::new() } else { format!(": {}", server.about) };
        let state = match &server.state {
            ServerState::Failed { reason } => format!("; failed: {reason}"),
            _ => String::new(),
        };
        let tools = match server.is_listed {
            true => format!("{} tools", server.tools),
            false => "not listed yet".to_owned(),
        };
        format!("{}  {tools}{held}, {wall}{about}{state}", server.name)
    };
    let mut lines: Vec<String> = servers.iter().map(|server| terminal::visible(&line(server))).collect();
    for (name, bundle) in settings.access.names.value.iter().filter(|(_, bundle)| !bundle.tools.is_empty()) {
        lines.push(format!("access {name} opens {}", bundle.tools.join(", ")));
    }
    Ok(lines.join("\n"))
}

pub(super) async fn find(
    host: &Upstreams,
    words: &str,
    servers: &[String],
    limit: usize,
    json: bool,
) -> Told {
    let servers = (!servers.is_empty()).then_some(servers);
    let found = host
        .find(FindQuery {
            viewer: Viewer::of(&Principal::local()),
            words,
            servers,
            dialect: Dialect::Python,
            limit,
        })
        .await;
    if json {
        return Ok(serde_json::to_string_pretty(&json!(found)).unwrap_or_default());
    }
    let mut lines = Vec::new();
    for tool in &found.tools {
        lines.push(format!(
            "{}\n  {} ({}, {})",
            tool.signature,
            tool.about,
            tool.effect.name(),
            tool.access.name()
        ));
    }
    for (server, reason) in &found.failed {
        lines.push(format!("{server} could not be listed: {reason}"));
    }
    lines.push(format!("{} of {} tools that match", found.tools.len(), found.total));
    Ok(terminal::visible(&lines.join("\n")))
}

pub(super) async fn show(host: &Upstreams, name: &str, stubs: Option<&str>) -> Told {
    let dialect = match stubs {
        None | Some("python") => Dialect::Python,
        Some("typescript" | "javascript") => Dialect::TypeScript,
        Some(other) => return Err(unknown_language(other)),
    };
    let text = match name.split_once('.') {
        Some((server, tool)) => {
            let definition = host.describe(&Principal::local(), server, tool).await.map_err(told)?;
            serde_json::to_string_pretty(&json!(definition)).unwrap_or_default()
        }
        None => host.stubs(&Principal::local(), name, dialect).await.map_err(told)?,
    };
    Ok(terminal::visible(&text))
}

fn unknown_language(name: &str) -> Failure {
    let message = format!("there are no declarations for `{}`", terminal::plain(name));
    (message, Some("python or typescript".to_owned()))
}

pub(super) fn diff(host: &Upstreams, server: Option<&str>) -> Told {
    let servers = match server {
        Some(server) => vec![server.to_owned()],
        None => host.servers(Viewer::of(&Principal::local())).into_iter().map(|server| server.name).collect(),
    };
    let mut text = String::new();
    for server in servers {
        for held in host.held(&server).map_err(told)? {
            text.push_str(&format!("{server}.{}: {}\n", held.tool, held.reason));
            let before = held.before.map(|before| written(&before)).unwrap_or_default();
            for line in difference(&before, &written(&held.now)) {
                text.push_str(&line);
                text.push('\n');
            }
        }
    }
    if text.is_empty() {
        return Ok("nothing is held".to_owned());
    }
    Ok(terminal::visible(text.trim_end()))
}

/// A definition as lines. Characters that do not show are written as escapes.
fn written(definition: &Value) -> Vec<String> {
    let text = serde_json::to_string_pretty(definition).unwrap_or_default();
    let shown = |one: char| {
        if one.is_ascii() || one.is_alphanumeric() {
            one.to_string()
        } else {
            one.escape_unicode().to_string()
        }
    };
    text.lines().map(|line| line.chars().map(shown).collect()).collect()
}

/// The lines that only one side has, without what both begin and end with.
fn difference(before: &[String], now: &[String]) -> Vec<String> {
    let same = before.iter().zip(now).take_while(|(one, other)| one == other).count();
    let (before, now) = (&before[same..], &now[same..]);
    let end = before.iter().rev().zip(now.iter().rev()).take_while(|(one, other)| one == other).count();
    let gone = before[..before.len() - end].iter().map(|line| format!("- {line}"));
    let new = now[..now.len() - end].iter().map(|line| format!("+ {line}"));
    let mut lines: Vec<String> = gone.chain(new).take(LINES_MAX + 1).collect();
    if lines.len() > LINES_MAX {
        lines.truncate(LINES_MAX);
        lines.push("  (more lines are left out: palisade tools show SERVER.TOOL)".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_what_changed_and_hidden_characters() {
        let before = written(&json!({"name": "a", "description": "one"}));
        let now = written(&json!({"name": "a", "description": "o\u{200b}ne"}));
        assert_eq!(
            difference(&before, &now),
            ["-   \"description\": \"one\"", "+   \"description\": \"o\\u{200b}ne\""]
        );
        assert_eq!(difference(&[], &written(&json!(1))), ["+ 1"]);
    }
}
