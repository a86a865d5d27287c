//! How long the gatekeeper takes to admit a call with 4 kB of arguments: without a policy, with the record of decisions
//! off and on, with rules, with a limit that is counted in the ledger, and
//! with the audit, whose entry is written before the call is admitted.
//!
//! ```console
//! $ cargo bench -p engine --bench admit            # prints the figures
//! $ cargo bench -p engine --bench admit -- FILE    # keeps every sample, in nanoseconds
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

use std::time::Instant;

use engine::{Caller, Gatekeeper, JudgedCall};
use policy::{Binding, Book, Syntax};
use serde_json::{Value, json};

const SAMPLES: usize = 20_000;
const WARM_UP: usize = 2_000;

fn gatekeeper(folder: &std::path::Path, rules: Option<Value>) -> Gatekeeper {
    let binding = Binding { callers: "*".to_owned(), policy: "p".to_owned() };
    let book = rules
        .map(|rules| Book::new(&[("p".to_owned(), rules.to_string(), Syntax::Json)], vec![binding]).unwrap());
    Gatekeeper::new(folder, book.unwrap_or_default())
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = harness::TestFolder::new();
    let arguments = json!({"language": "python", "code": "x".repeat(4000), "timeout_ms": 5000, "stdin": "y"});
    let caller = Caller::local();
    let rules = json!({"version": "1", "default": "deny", "tools": {"run": {
        "require": [{"args.language": {"in": ["python", "bash"]}}, {"args.sandbox_id": {"exists": false}}],
        "deny_if": [{"args.timeout_ms": {"gt": 60000}}]}}});
    let mut limited = rules.clone();
    limited["tools"]["run"]["limits"] = json!([{"window": "day", "max": 1_000_000_000}]);
    let cases = [
        ("no policy, record off", None, false),
        ("no policy, record on", None, true),
        ("three rules, record on", Some(rules.clone()), true),
        ("three rules and a limit, record on", Some(limited), true),
        ("no policy, record and audit on", None, true),
        ("three rules, record and audit on", Some(rules), true),
    ];
    let mut kept = serde_json::Map::new();
    for (name, rules, has_record) in cases {
        let keeper = gatekeeper(folder.path(), rules);
        if has_record {
            keeper.record().begin();
        }
        if name.contains("audit") {
            keeper.audit().begin("bench", engine::audit::AuditConfig::default()).unwrap();
        }
        let mut samples = Vec::with_capacity(SAMPLES);
        runtime.block_on(async {
            for number in 0..WARM_UP + SAMPLES {
                let begun = Instant::now();
                let call = JudgedCall { caller: &caller, names: &["run"], arguments: &arguments };
                let admitted = keeper.admit(call).await;
                let taken = begun.elapsed();
                admitted.unwrap().settle(None).await;
                if number >= WARM_UP {
                    samples.push(u64::try_from(taken.as_nanos()).unwrap());
                }
            }
        });
        keeper.record().write().unwrap();
        let as_taken = samples.clone();
        samples.sort_unstable();
        let at = |share: f64| samples[((SAMPLES as f64 * share) as usize).min(SAMPLES - 1)];
        println!("{name}: p50 {} ns, p90 {} ns, p99 {} ns", at(0.5), at(0.9), at(0.99));
        let figures =
            json!({"p50_ns": at(0.5), "p90_ns": at(0.9), "p99_ns": at(0.99), "samples_ns": as_taken});
        kept.insert(name.to_owned(), figures);
    }
    if let Some(path) = std::env::args().skip(1).find(|argument| !argument.starts_with("--")) {
        std::fs::write(path, Value::Object(kept).to_string() + "\n").unwrap();
    }
}
