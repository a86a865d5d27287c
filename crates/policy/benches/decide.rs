//! How long a decision takes: a policy of 1,000 tools, 200 rules that all apply, and arguments of 4 kB.
//!
//! ```console
//! $ cargo bench -p policy --bench decide            # prints the figures
//! $ cargo bench -p policy --bench decide -- FILE    # keeps every sample, in nanoseconds
//! ```
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a measurement")]

use std::hint::black_box;
use std::time::Instant;

use policy::{Judgement, Rules, Syntax, read_rules};
use serde_json::{Map, Value, json};

const TOOLS: usize = 1000;
const RULES: usize = 200;
const ARGUMENT_BYTES: usize = 4096;
const SAMPLES: usize = 20_000;
const WARM_UP: usize = 20_000;

/// A rule that these arguments pass; half of the rules are the tool's, half are those of all tools.
fn predicate(number: usize) -> Value {
    match number % 20 {
        0..=6 => {
            json!({"path": format!("args.limits.n{}", number % 10), "op": "lte", "value": 1000 + number})
        }
        7..=9 => json!({"path": "args.language", "op": "in", "value": ["bash", "javascript", "python"]}),
        10..=12 => json!({"path": "args.mode", "op": "eq", "value": "safe"}),
        13..=15 => json!({"path": "args.reason", "op": "exists", "value": true}),
        16 | 17 => json!({"path": "args.branch", "op": "regex", "value": "^(feat|fix)/[a-z0-9-]+$"}),
        18 => json!({"path": "args.labels", "op": "contains", "value": "reviewed"}),
        _ => json!({"path": "args.amount", "op": "neq", "value": number}),
    }
}

fn rules() -> Rules {
    let some = |from: usize| (from..from + RULES / 2).map(predicate).collect::<Vec<_>>();
    let mut tools: Map<String, Value> = (0..TOOLS - 1)
        .map(|number| (format!("tool_{number}"), json!({"deny_if": {"args.x": {"gt": number}}})))
        .collect();
    tools.insert("run".to_owned(), json!({"require": some(0)}));
    let all = json!({"require": some(RULES / 2), "limits": [{"window": "minute", "max": 60}]});
    let file =
        json!({"version": "1", "default": "deny", "hide": ["other"], "tools": tools, "all_tools": all});
    read_rules(&file.to_string(), Syntax::Json).unwrap()
}

fn arguments() -> Value {
    let limits: Map<String, Value> =
        (0..10).map(|number| (format!("n{number}"), json!(number * 10))).collect();
    let mut arguments = json!({
        "language": "python", "mode": "safe", "reason": "a test", "branch": "feat/gate-1", "amount": 12.5,
        "labels": ["new", "checked", "reviewed"], "limits": limits, "code": "",
    });
    let room = ARGUMENT_BYTES - arguments.to_string().len();
    arguments["code"] = json!("x".repeat(room));
    arguments
}

fn main() {
    let (rules, arguments) = (rules(), arguments());
    assert_eq!(arguments.to_string().len(), ARGUMENT_BYTES);
    let decide = || match rules.judge(black_box(&["run"]), black_box(&arguments)) {
        Judgement::Allowed { reserve, .. } => reserve.len(),
        Judgement::Denied(denied) => panic!("{denied:?}"),
    };
    for _ in 0..WARM_UP {
        black_box(decide());
    }
    let mut samples: Vec<u64> = (0..SAMPLES)
        .map(|_| {
            let begun = Instant::now();
            black_box(decide());
            u64::try_from(begun.elapsed().as_nanos()).unwrap()
        })
        .collect();
    let as_taken = samples.clone();
    samples.sort_unstable();
    let at = |share: f64| samples[((SAMPLES as f64 * share) as usize).min(SAMPLES - 1)];
    let figures = json!({
        "what": "decision: 1,000 tools, 200 rules that all apply, 4,096 bytes of arguments",
        "samples": SAMPLES,
        "p50_ns": at(0.5), "p90_ns": at(0.9), "p99_ns": at(0.99), "p999_ns": at(0.999), "max_ns": samples[SAMPLES - 1],
    });
    println!("{}", serde_json::to_string_pretty(&figures).unwrap());
    if let Some(path) = std::env::args().skip(1).find(|argument| !argument.starts_with("--")) {
        let mut kept = figures;
        kept["samples_ns"] = json!(as_taken);
        std::fs::write(path, kept.to_string() + "\n").unwrap();
    }
}
