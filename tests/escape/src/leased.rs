//! The same attacks as fresh runs that take a spare: a sandbox that was built, examined and started before anybody
//! asked, and was given the limits of the attack when it was taken.

use std::time::{Duration, Instant};

use harness::User;
use harness::baseline;
use harness::warm::{Warm, trivial};
use serde_json::{Map, Value, json};

use crate::attack::Attack;
use crate::bait::Bait;
use crate::lasting;

const PATIENCE: Duration = Duration::from_secs(5);

/// What came of one attack.
pub struct Judged {
    /// Whether it ran in a spare; what palisade compiles does not, nor what asks an ordinary user for another disk.
    pub is_leased: bool,
    /// What was not as it should be.
    pub problem: Option<String>,
}

/// Runs an attack on that server, in a spare wherever there is one for it.
pub fn judge(attack: &Attack, warm: &Warm, bait: &Bait) -> Judged {
    let arguments = arguments(attack, bait);
    let language = arguments["language"].as_str().unwrap().to_owned();
    let has_spares = !attack.name.starts_with("compiled_");
    let has_other_disk = attack.limits.iter().any(|option| option == "--disk-mb");
    let must_lease = has_spares && !(has_other_disk && warm.user == User::Ordinary);
    let rounds = if attack.family == "persistence" { 2 } else { 1 };
    let (mut last, mut is_leased) = (Value::Null, true);
    for _ in 0..rounds {
        if has_spares {
            warm.warm_up(&language, trivial(&language));
        }
        let before = warm.hits();
        last = warm.run(arguments.clone());
        is_leased &= warm.hits() == before + 1;
    }
    let problem = if must_lease && !is_leased {
        Some("no spare was taken".to_owned())
    } else {
        problem(attack, &last).or_else(|| survivors(bait))
    };
    let told = |problem| format!("{} as {:?}, in a spare: {problem}", attack.name, warm.user);
    Judged { is_leased, problem: problem.map(told) }
}

fn problem(attack: &Attack, result: &Value) -> Option<String> {
    let stdout = result["stdout"].as_str().unwrap_or_default();
    if stdout.contains("ESCAPED") {
        return Some(format!("ESCAPED behind all walls: {stdout}"));
    }
    let (outcome, expected) = (result["outcome"].as_str().unwrap_or_default(), lasting::expected(attack));
    if !expected.iter().any(|word| word == outcome) {
        return Some(format!("outcome {outcome} instead of {expected:?}: {result}"));
    }
    (outcome == "completed" && !stdout.contains("HELD: ")).then(|| format!("no verdict: {result}"))
}

fn survivors(bait: &Bait) -> Option<String> {
    let deadline = Instant::now() + PATIENCE;
    while !baseline::look(&format!("sleep-{}", bait.marker)).processes.is_empty() {
        if Instant::now() > deadline {
            return Some("a process lives after the answer".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// The options of the command line, as arguments of `run`.
fn arguments(attack: &Attack, bait: &Bait) -> Value {
    let mut arguments = lasting::program(attack, bait, false);
    let mut limits = Map::new();
    for pair in attack.limits.chunks(2) {
        let [name, value] = pair else { panic!("{}: limits are pairs", attack.name) };
        let number: u64 = value.trim_end_matches('s').parse().unwrap();
        match name.as_str() {
            "--timeout" => arguments["timeout_ms"] = json!(number * 1000),
            name => drop(limits.insert(name.trim_start_matches("--").replace('-', "_"), json!(number))),
        }
    }
    arguments["limits"] = Value::Object(limits);
    arguments
}
