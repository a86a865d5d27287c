//! The same attacks inside a sandbox that lasts, over MCP: in a live interpreter that ran something before, among
//! neighbours on the same server.

use std::fs;
use std::time::Duration;

use harness::mcp::Client;
use harness::{User, baseline};
use serde_json::{Map, Value, json};

use crate::attack::{self, Attack};
use crate::bait::Bait;
use crate::trial;

const PATIENCE: Duration = Duration::from_secs(5);
/// Calls of `wait` for one run.
const WAITS_MAX: usize = 4;
/// A live interpreter of every kind has to fit.
const FLOOR: [(&str, u64); 3] = [("memory_mb", 96), ("processes", 48), ("open_files", 32)];
/// How many processes attacks try where they have 16, and try here where they have 48.
const MANY: (&str, &str) = ("40", "90");

/// Runs an attack in a sandbox of its own on that server; the error says what was not as it should be.
pub fn judge(attack: &Attack, user: User, client: &Client, bait: &Bait) -> Result<(), String> {
    // What one run leaves for the next is meant to be there in one sandbox, and must not be in another.
    let rounds = if attack.family == "persistence" { 2 } else { 1 };
    let mut last = Value::Null;
    for _ in 0..rounds {
        let (of_sandbox, of_run) = limits(attack);
        let sandbox = client.open(json!({"limits": of_sandbox}));
        // Something lives in it already.
        let before = client.run(&sandbox, "python", "x = 1\nprint(x)");
        if before["outcome"] != "completed" {
            return Err(format!("{} as {user:?}: nothing runs: {before}", attack.name));
        }
        last = client.begin("run", run_arguments(attack, bait, &sandbox, of_run)).result();
        // A compiler may need longer than one call waits.
        for _ in 0..WAITS_MAX {
            if last["outcome"] != "running" {
                break;
            }
            last = client.call("wait", json!({"run_id": last["run_id"]}));
        }
        let closed = client.call("sandbox_close", json!({"sandbox_id": sandbox}));
        if closed["closed"] != true {
            return Err(format!("{} as {user:?}: not closed: {closed}", attack.name));
        }
    }
    let told =
        |problem: String| Err(format!("{} as {user:?}, in a sandbox that lasts: {problem}", attack.name));
    let stdout = last["stdout"].as_str().unwrap_or_default();
    if attack.escaped_by(stdout) {
        return told(format!("ESCAPED behind all walls: {stdout}"));
    }
    let outcome = last["outcome"].as_str().unwrap_or_default();
    let expected = expected_in_lasting(attack);
    if !expected.iter().any(|word| word == outcome) {
        let words = [stdout, last["stderr"].as_str().unwrap_or_default()].join(" ");
        return told(format!("outcome {outcome} instead of {expected:?}: {} {words}", last["error"]));
    }
    if outcome == "completed" && !stdout.contains("HELD: ") && !stdout.contains("ESCAPED: ") {
        return told(format!("no verdict: {stdout} {}", last["stderr"]));
    }
    let deadline = std::time::Instant::now() + PATIENCE;
    while !baseline::look(&format!("sleep-{}", bait.marker)).processes.is_empty() {
        if std::time::Instant::now() > deadline {
            return told("a process lives after the sandbox was closed".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

pub(crate) fn expected(attack: &Attack) -> Vec<String> {
    if attack.outcomes.is_empty() { vec!["completed".to_owned()] } else { attack.outcomes.clone() }
}

/// Files that last are watched, not limited: who fills them slowly is stopped before the end, who is quick is not.
fn expected_in_lasting(attack: &Attack) -> Vec<String> {
    let mut words = expected(attack);
    if attack.limits.iter().any(|option| option == "--disk-mb") {
        words.push("disk_full".to_owned());
    }
    words
}

/// The options of the command line, as limits of a sandbox and of a run.
fn limits(attack: &Attack) -> (Map<String, Value>, Map<String, Value>) {
    let (mut of_sandbox, mut of_run) = (Map::new(), Map::new());
    for pair in attack.limits.chunks(2) {
        let [name, value] = pair else { panic!("{}: limits are pairs", attack.name) };
        let number: u64 = value.trim_end_matches('s').parse().unwrap();
        match name.as_str() {
            "--timeout" => of_run.insert("timeout_ms".to_owned(), json!(number * 1000)),
            "--output-kb" => of_run.insert("limits".to_owned(), json!({"output_kb": number})),
            name => of_sandbox.insert(name.trim_start_matches("--").replace('-', "_"), json!(number)),
        };
    }
    for (name, least) in FLOOR {
        if let Some(value) = of_sandbox.get_mut(name) {
            *value = json!(value.as_u64().unwrap_or(least).max(least));
        }
    }
    (of_sandbox, of_run)
}

fn run_arguments(attack: &Attack, bait: &Bait, sandbox: &str, of_run: Map<String, Value>) -> Value {
    let mut arguments = program(attack, bait, true);
    arguments["sandbox_id"] = json!(sandbox);
    for (name, value) in of_run {
        arguments[name] = value;
    }
    arguments
}

/// The attack as arguments of `run`; `has_more_processes` where it has more of them than its header says.
pub(crate) fn program(attack: &Attack, bait: &Bait, has_more_processes: bool) -> Value {
    let module = fs::read_to_string(attack::folder().join("support/attack.py")).unwrap();
    let mut inputs = vec![json!({"path": "attack.py", "text": module})];
    let (language, code) = match attack.path.extension().and_then(|extension| extension.to_str()) {
        Some("py") if has_more_processes && attack.limits.iter().any(|option| option == "--processes") => {
            ("python", attack.code.replace(MANY.0, MANY.1))
        }
        Some("py") => ("python", attack.code.clone()),
        Some("sh") => ("bash", attack.code.clone()),
        Some("c") if attack.name.starts_with("compiled_") => ("c", attack.code.clone()),
        Some("go") => ("go", attack.code.clone()),
        Some("c") => {
            let binary = fs::read(trial::compiled(attack)).unwrap();
            inputs = vec![json!({"path": "attack", "base64": base64(&binary)})];
            ("bash", "chmod +x attack; ./attack".to_owned())
        }
        other => panic!("{}: no way to start {other:?}", attack.name),
    };
    json!({"language": language, "code": code, "inputs": inputs, "variables": {"HOST": attack.told(bait)}})
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let whole =
            three.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let is_there = place <= three.len();
            let index = (whole >> (18 - 6 * place)) as usize & 63;
            text.push(if is_there { char::from(ALPHABET[index]) } else { '=' });
        }
    }
    text
}
