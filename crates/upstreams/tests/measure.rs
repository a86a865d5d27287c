//! Measures: 10,000 tools loaded and searched, and calls of a real server. `UPSTREAMS_OUT=FILE` runs it, in a release build.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use upstreams::ToolHost;

use crate::stage::{Folder, arguments, call_with, host, query, spec};

const TOOLS: usize = 10_000;
const SEARCHES: usize = 500;
const CALLS: usize = 1000;

const VERBS: [&str; 12] = [
    "list", "create", "update", "delete", "search", "get", "merge", "export", "import", "sync", "render",
    "watch",
];
const NOUNS: [&str; 12] = [
    "issue",
    "repository",
    "invoice",
    "calendar",
    "message",
    "dashboard",
    "customer",
    "deployment",
    "image",
    "document",
    "ticket",
    "pipeline",
];

fn definition(number: usize) -> Value {
    let (verb, noun) = (VERBS[number % 12], NOUNS[number / 12 % 12]);
    let about = format!(
        "{verb}s a {noun} of the account number {number}. Takes filters, sorts by date and returns pages with a cursor."
    );
    let text = |about: &str| json!({"type": "string", "description": about});
    json!({
        "name": format!("{verb}_{noun}_{number}"),
        "description": about,
        "annotations": {"readOnlyHint": number.is_multiple_of(2)},
        "inputSchema": {"type": "object", "required": ["id"], "properties": {
            "id": text("The identifier of the object"), "cursor": text("Where the last page ended"),
            "limit": {"type": "integer", "description": "The most results"}, format!("{noun}_filter"): text("A filter")}},
    })
}

/// Resident memory, in kilobytes.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn percentile(samples: &mut [Duration], percent: usize) -> f64 {
    samples.sort();
    samples[(samples.len() - 1) * percent / 100].as_secs_f64() * 1000.0
}

/// Writes the figures to a file.
pub(crate) async fn measure(out: &Path) {
    let mut told = String::new();
    let folder = Folder::new();
    let definitions: Vec<Value> = (0..TOOLS).map(definition).collect();
    upstreams::fill_catalogue(&folder.0, "s", definitions).unwrap();
    let before = resident_kb();
    let begun = Instant::now();
    let searched = host(&folder, spec("plain", &folder));
    assert!(searched.find(query("warm up", 10)).await.total < TOOLS);
    writeln!(told, "tools {TOOLS}").unwrap();
    writeln!(told, "load_and_index_ms {:.1}", begun.elapsed().as_secs_f64() * 1000.0).unwrap();
    writeln!(told, "memory_kb {}", resident_kb() - before).unwrap();
    let mut samples = Vec::new();
    for number in 0..SEARCHES {
        let words = format!("{} the {} with a filter", VERBS[number % 12], NOUNS[number / 7 % 12]);
        let begun = Instant::now();
        assert!(!searched.find(query(&words, 10)).await.tools.is_empty());
        samples.push(begun.elapsed());
    }
    writeln!(told, "search_p50_ms {:.3}", percentile(&mut samples, 50)).unwrap();
    writeln!(told, "search_p95_ms {:.3}", percentile(&mut samples, 95)).unwrap();
    let folder = Folder::new();
    let called = host(&folder, spec("plain", &folder));
    let mut samples = Vec::new();
    for _ in 0..CALLS {
        let begun = Instant::now();
        call_with(&called, "echo", arguments(json!({"text": "x"}))).await.unwrap();
        samples.push(begun.elapsed());
    }
    writeln!(told, "call_p50_ms {:.3}", percentile(&mut samples, 50)).unwrap();
    writeln!(told, "call_p95_ms {:.3}", percentile(&mut samples, 95)).unwrap();
    called.close().await;
    std::fs::write(out, &told).unwrap();
    print!("{told}");
}
