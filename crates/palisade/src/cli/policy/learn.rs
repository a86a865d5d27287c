//! `palisade policy learn`: the policy that allows exactly what was called, from the record of decisions.
//!
//! Exactly means: the tools, the languages and the names of arguments. The record has no other values.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use engine::{Decided, Decision};
use terminal::plain;

use super::diff::diff;
use super::with_settings;
use crate::options::Options;
use crate::{config, state};

pub(super) const AFTER_HELP: &str = "\
`palisade serve` and `palisade mcp` record which tools are called with which language and names of arguments, never
other values. A record is kept for 31 days. Calls that were denied are listed as comments.";

#[derive(Debug, Args)]
pub(super) struct LearnArguments {
    /// How far back: 30m, 24h, 7d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = time)]
    since: Duration,
    /// Only the calls of callers with this label; `*` stands for any characters
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    principal: String,
    /// Print the difference to this policy
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
}

fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "it must be a time such as 30m, 24h or 7d".to_owned();
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let count: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(count.checked_mul(seconds).ok_or_else(wrong)?))
}

/// The policy, or its difference to another one.
pub(super) fn learn(options: &Options, asked: &LearnArguments) -> Result<String, String> {
    let (book, settings) = with_settings(options)?;
    let state_dir = settings.state_dir.value.clone().or_else(state::expected);
    let state_dir = state_dir.ok_or("there is no state directory")?;
    let since = SystemTime::now().checked_sub(asked.since).unwrap_or(UNIX_EPOCH);
    let since_ms = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let found = engine::decisions(&state_dir, u64::try_from(since_ms).unwrap_or(0));
    let mut found = found.map_err(|error| error.to_string())?;
    found.retain(|decision| ::policy::matches_label(&asked.principal, &decision.label));
    let learned = written(&found);
    let Some(name) = &asked.policy else { return Ok(learned) };
    let shipped = || ::policy::shipped(name).map(str::to_owned);
    let own = config::policies::find(&settings, name).map_err(|error| error.to_string())?;
    let old = own.map(|(_, text)| text).or_else(shipped);
    let old =
        old.ok_or_else(|| format!("there is no policy {name}; there are {}", book.names().join(", ")))?;
    Ok(diff((name, &old), ("learned", &learned)))
}

/// What was called of one tool.
#[derive(Default)]
struct Calls {
    times: u64,
    languages: BTreeSet<String>,
    has_call_without_language: bool,
    arguments: BTreeSet<String>,
    has_call_without_names: bool,
}

fn written(found: &[Decision]) -> String {
    let (allowed, others): (Vec<&Decision>, Vec<&Decision>) =
        found.iter().partition(|one| one.verdict == Decided::Allowed);
    let mut tools: BTreeMap<&str, Calls> = BTreeMap::new();
    for decision in allowed {
        let calls = tools.entry(&decision.tool).or_default();
        calls.times += decision.times;
        match decision.language.is_empty() {
            true => calls.has_call_without_language = true,
            false => drop(calls.languages.insert(decision.language.clone())),
        }
        match &decision.arguments {
            Some(names) => calls.arguments.extend(names.iter().cloned()),
            None => calls.has_call_without_names = true,
        }
    }
    let mut text = String::from("version: \"1\"\ndefault: deny\n");
    text.push_str(if tools.is_empty() { "tools: {}\n" } else { "tools:\n" });
    for (tool, calls) in tools {
        text.push_str(&calls.written(tool));
    }
    let mut denied: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
    for one in others {
        *denied.entry((&one.tool, one.verdict.name(), &one.rule)).or_default() += one.times;
    }
    for ((tool, verdict, rule), times) in denied {
        text.push_str(&format!("# {tool}: {times} calls, {verdict} by {}\n", plain(rule)));
    }
    text
}

impl Calls {
    fn written(&self, tool: &str) -> String {
        let mut rules = Vec::new();
        if !self.languages.is_empty() && !self.has_call_without_language {
            let names: Vec<&str> = self.languages.iter().map(String::as_str).collect();
            rules.push(format!("{{path: args.language, op: in, value: [{}]}}", names.join(", ")));
        }
        let known = mcp::arguments_of(tool).unwrap_or_default();
        let unused =
            known.iter().filter(|name| !self.has_call_without_names && !self.arguments.contains(**name));
        rules.extend(unused.map(|name| format!("{{path: args.{name}, op: exists, value: false}}")));
        let head = format!("  # {} calls\n  {tool}:", self.times);
        match rules.is_empty() {
            true => format!("{head} {{}}\n"),
            false => {
                let list: String = rules.iter().map(|rule| format!("      - {rule}\n")).collect();
                format!("{head}\n    require:\n{list}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn decision(tool: &str, language: &str, arguments: Option<&[&str]>, verdict: Decided) -> Decision {
        Decision {
            principal: "local".to_owned(),
            label: "local".to_owned(),
            policy: String::new(),
            tool: tool.to_owned(),
            language: language.to_owned(),
            arguments: arguments.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            verdict,
            rule: if verdict == Decided::Allowed { String::new() } else { "/default".to_owned() },
            times: 2,
            first_ms: 1,
            last_ms: 1,
        }
    }

    #[test]
    fn the_learned_policy_allows_what_was_called_and_nothing_else() {
        let text = written(&[
            decision("run", "python", Some(&["code", "language"]), Decided::Allowed),
            decision("run", "bash", Some(&["code", "language", "stdin"]), Decided::Allowed),
            decision("get_capabilities", "", Some(&[]), Decided::Allowed),
            decision("sandbox_open", "", Some(&[]), Decided::Denied),
        ]);
        let rules =
            ::policy::read_rules(&text, ::policy::Syntax::Yaml).unwrap_or_else(|flaw| panic!("{text}{flaw}"));
        let allows = |tool: &str, given: Value| {
            matches!(rules.judge(&[tool], &given), ::policy::Judgement::Allowed { .. })
        };
        assert!(allows("run", json!({"language": "python", "code": "1"})));
        assert!(allows("run", json!({"language": "bash", "code": "1", "stdin": ""})));
        assert!(allows("get_capabilities", json!({})));
        assert!(!allows("run", json!({"language": "ruby", "code": "1"})));
        assert!(!allows("run", json!({"language": "python", "code": "1", "sandbox_id": "sbx_1"})));
        assert!(!allows("sandbox_open", json!({})) && !allows("wait", json!({})));
        assert!(text.contains("# sandbox_open: 2 calls, denied by /default"), "{text}");
        assert!(::policy::read_rules(&written(&[]), ::policy::Syntax::Yaml).is_ok());
    }

    #[test]
    fn times_are_written_with_a_unit() {
        assert_eq!(time("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(time("30m"), Ok(Duration::from_secs(1800)));
        for bad in ["", "24", "h", "-1h", "1w", "1.5h", "99999999999999999999d", "18446744073709551615d"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
