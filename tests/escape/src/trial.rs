//! Running one attack as one user, behind the walls and without them, and judging what it says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use harness::behind::Behind;
use harness::{Build, Palisade, User, baseline, shared_folder};
use serde_json::Value;

use crate::attack::{self, Attack, Without};
use crate::bait::Bait;
use crate::host_view::HostView;
use crate::nature;

/// The longest limit of any attack is far below.
const PATIENCE: Duration = Duration::from_secs(60);
const SPAWNER_PATIENCE: Duration = Duration::from_secs(5);

/// What one run of an attack showed.
#[derive(Debug)]
pub struct Shown {
    /// Its verdict about itself, if it came to one.
    pub line: Option<String>,
    /// The outcome that palisade reports.
    pub outcome: String,
    /// The whole result.
    pub result: Value,
}

impl Shown {
    fn escaped(&self) -> bool {
        self.result["stdout"].as_str().is_some_and(|text| text.contains("ESCAPED"))
    }
}

/// Runs an attack behind all walls, then without its own; the error says what was not as it should be.
pub fn judge(attack: &Attack, user: User, bait: &Bait) -> Result<(), String> {
    let real = run(attack, Build::Real, user, bait);
    let behind = judge_real(attack, &real, bait);
    let without = match attack.without {
        Without::Never(_) => Ok(()),
        _ => judge_breach(attack, &real, &run(attack, Build::Breach, user, bait)),
    };
    let problems: Vec<String> = [behind, without].into_iter().filter_map(Result::err).collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(format!("{} as {user:?}: {}", attack.name, problems.join("; and ")))
    }
}

/// Runs an attack behind all walls in a run that may reach a host; the error says what was not as it should be.
pub fn judge_with_access(attack: &Attack, user: User, bait: &Bait) -> Result<(), String> {
    let shown = run_on(attack, Ground { reach: Reach::AHost, ..Ground::of(Build::Real) }, user, bait);
    judge_real(attack, &shown, bait).map_err(|problem| format!("{} as {user:?}: {problem}", attack.name))
}

/// Runs an attack as root behind that wall, in a fresh sandbox; the error says what was not as it should be.
pub fn judge_behind(behind: &Behind, attack: &Attack, bait: &Bait) -> Result<(), String> {
    let wall = behind.wall();
    let attack = nature::behind(wall, attack);
    let view = HostView::begin();
    let shown = run_on(&attack, Ground { wall: Some(behind), ..Ground::of(Build::Real) }, User::Root, bait);
    let seen = view.end();
    if shown.result["isolation"]["backend"] != wall {
        return Err(format!("{}: it ran elsewhere: {}", attack.name, shown.result));
    }
    let judged = judge_real(&attack, &shown, bait).and_then(|()| seen.judge(&attack));
    judged.map_err(|problem| format!("{} behind {wall}: {problem}", attack.name))
}

/// Where and how an attack runs.
#[derive(Debug, Clone, Copy)]
struct Ground<'a> {
    build: Build,
    reach: Reach,
    /// `None`: the native one.
    wall: Option<&'a Behind>,
}

impl Ground<'_> {
    fn of(build: Build) -> Self {
        Self { build, reach: Reach::Nothing, wall: None }
    }
}

/// What the run of an attack may reach outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Nothing,
    /// A host that does not exist, through the gate.
    AHost,
}

/// A configuration with an access.
fn configuration() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = shared_folder().join("config-of-access");
        fs::create_dir_all(folder.join("palisade")).unwrap();
        // The resolver is a port of this machine on which nothing listens.
        let text = "[egress]\nresolver = \"127.0.0.1:9\"\n[access.web]\negress = [\"host.example:443\"]\n";
        fs::write(folder.join("palisade/palisade.toml"), text).unwrap();
        folder
    })
}

fn judge_real(attack: &Attack, shown: &Shown, bait: &Bait) -> Result<(), String> {
    if attack.escaped_by(shown.result["stdout"].as_str().unwrap_or_default()) {
        return Err(format!("ESCAPED behind all walls: {:?}", shown.line));
    }
    let expected =
        if attack.outcomes.is_empty() { vec!["completed".to_owned()] } else { attack.outcomes.clone() };
    if !expected.contains(&shown.outcome) {
        return Err(format!("outcome {} instead of {expected:?}: {}", shown.outcome, shown.result));
    }
    let speaks = matches!(shown.outcome.as_str(), "completed") || attack.family == "deception";
    let speaks = speaks && !attack.silent.contains(&shown.outcome);
    if speaks && shown.line.is_none() {
        return Err(format!("no verdict: {}", shown.result));
    }
    let (alive, own): (Vec<_>, Vec<_>) =
        baseline::look(&bait.marker).processes.into_iter().partition(|line| is_daemon(line));
    if !alive.is_empty() {
        return Err(format!("alive after the answer: {alive:?}"));
    }
    // The marker is in palisade's own arguments too; its spawner ends a moment after it.
    let none = baseline::Left {
        mounts: usize::MAX,
        cgroups: baseline::look("").cgroups,
        ..baseline::Left::default()
    };
    let gone = baseline::wait_until_back(&none, &bait.marker, harness::patience(SPAWNER_PATIENCE));
    if own.is_empty() { Ok(()) } else { gone }
}

/// Attacks name their daemons `sleep-MARKER`; the line begins with the process number.
fn is_daemon(line: &str) -> bool {
    line.split(' ').nth(1).is_some_and(|word| word.starts_with("sleep-"))
}

fn judge_breach(attack: &Attack, real: &Shown, breach: &Shown) -> Result<(), String> {
    let off = attack.walls.join(", ");
    match attack.without {
        Without::Escaped if !breach.escaped() => {
            Err(format!("did not get out with {off} off: {:?} {}", breach.line, breach.result))
        }
        Without::Differs if breach.line.is_none() || breach.line == real.line => {
            Err(format!("the same with {off} off: {:?}", breach.line))
        }
        _ => Ok(()),
    }
}

/// One run; attacks on the next run are run twice, and the second tells.
pub fn run(attack: &Attack, build: Build, user: User, bait: &Bait) -> Shown {
    run_on(attack, Ground::of(build), user, bait)
}

fn run_on(attack: &Attack, ground: Ground<'_>, user: User, bait: &Bait) -> Shown {
    if attack.family == "persistence" {
        once(attack, ground, user, bait);
    }
    once(attack, ground, user, bait)
}

fn once(attack: &Attack, ground: Ground<'_>, user: User, bait: &Bait) -> Shown {
    let Ground { build, reach, wall } = ground;
    let module = support();
    let host = format!("HOST={}", attack.told(bait));
    let limits: Vec<&str> = attack.limits.iter().map(String::as_str).collect();
    let access: &[&str] = if reach == Reach::AHost { &["--access", "web"] } else { &[] };
    let start = |language: &str, input: String, code: &str| {
        Palisade::new(build, user, &["run", language, "--json", "--var", &host, "--input", &input])
            .args(access)
            .args(&wall.map_or_else(Vec::new, |wall| vec!["--wall", wall.wall()]))
            .args(&limits)
            .args(&["-c", code])
    };
    let mut palisade = match attack.path.extension().and_then(|extension| extension.to_str()) {
        Some("py") => start("python", format!("{}=attack.py", module.display()), &attack.code),
        Some("sh") => start("bash", format!("{}=attack.py", module.display()), &attack.code),
        // What palisade itself compiles.
        Some(language @ ("c" | "go")) if attack.name.starts_with("compiled_") => {
            start(language, format!("{}=attack.py", module.display()), &attack.code)
        }
        Some("c") => {
            start("bash", format!("{}=attack", compiled(attack).display()), "chmod +x attack; exec ./attack")
        }
        other => panic!("{}: no way to start {other:?}", attack.name),
    };
    if let Some(wall) = wall {
        palisade = wall.set(palisade);
    }
    if reach == Reach::AHost {
        palisade = palisade.env("XDG_CONFIG_HOME", configuration().to_str().unwrap_or_default());
    }
    if build == Build::Breach {
        palisade = palisade.env("PALISADE_WALLS_OFF", &format!("{},verify", attack.walls.join(",")));
    }
    let ended = palisade.within(harness::patience(PATIENCE)).end();
    let result: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| {
        panic!("{}: no JSON ({error}): {} {}", attack.name, ended.stdout, ended.stderr)
    });
    let stdout = result["stdout"].as_str().unwrap_or_default();
    let line =
        stdout.lines().find(|line| line.contains("ESCAPED: ") || line.contains("HELD: ")).map(str::to_owned);
    Shown { line, outcome: result["outcome"].as_str().unwrap_or_default().to_owned(), result }
}

/// What attacks in Python share, where every user can read it. Written once: tests of one process run at the same time.
fn support() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        let module = shared_folder().join("attack.py");
        fs::copy(attack::folder().join("support/attack.py"), &module).unwrap();
        module
    })
}

/// The binary of a C attack, compiled once per test process; the sandbox shows the libraries of the host.
pub(crate) fn compiled(attack: &Attack) -> PathBuf {
    static DONE: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(binary) = done.get(&attack.name) {
        return binary.clone();
    }
    let binary = shared_folder().join(attack.name.replace('.', "-"));
    let status = Command::new("gcc").args(["-O1", "-s", "-w", "-o"]).arg(&binary).arg(&attack.path).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{}: a C compiler is needed (apt-get install gcc)",
        attack.name
    );
    done.insert(attack.name.clone(), binary.clone());
    binary
}
