//! Reading attack files: the program and what its header says about it.
//!
//! A header is comment lines `name: value` at the top of the file: `attack`, `family`, `walls`, `limits`,
//! `outcome`, `without`. What is missing or unknown fails the suite, so that no attack is skipped by a typo.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bait::Bait;

/// The families of attacks; each has a test of its own.
pub const FAMILIES: [&str; 9] = [
    "file reads",
    "writes",
    "network",
    "process",
    "kernel surface",
    "exhaustion",
    "deception",
    "persistence",
    "resurrection",
];

/// At least one attack of each family, with those on control groups: for machines on which the whole suite takes too long.
pub const REPRESENTATIVES: [&str; 12] = [
    "read_absolute.py",
    "write_absolute.py",
    "network_loopback_v4.py",
    "process_list.py",
    "kernel_unshare.py",
    "kernel_cgroup_write.py",
    "exhaust_memory.py",
    "exhaust_processes.py",
    "exhaust_processor.py",
    "deception_frames.py",
    "persistence_files.py",
    "resurrection_daemon.py",
];

/// Walls that the test build can switch off, as `jail::Wall` spells them.
const WALLS: [&str; 17] = [
    "seccomp",
    "landlock",
    "network",
    "pid",
    "ipc",
    "uts",
    "root",
    "readonly",
    "masks",
    "rlimits",
    "cgroup",
    "scratch",
    "dumpable",
    "capabilities",
    "descriptors",
    "verify",
    "watchdog",
];

/// What the test build shows with the walls off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Without {
    /// The attack succeeds.
    Escaped,
    /// The kernel itself still stops it, but with other words.
    Differs,
    /// It is not tried, for this reason.
    Never(String),
}

/// One attack.
#[derive(Debug, Clone)]
pub struct Attack {
    /// File name.
    pub name: String,
    /// The program.
    pub code: String,
    /// Where it is.
    pub path: PathBuf,
    /// One of [`FAMILIES`].
    pub family: String,
    /// Walls that must all be off for it to succeed.
    pub walls: Vec<String>,
    /// Options of the run.
    pub limits: Vec<String>,
    /// Outcomes of the real run; empty means `completed`.
    pub outcomes: Vec<String>,
    /// What taking the walls away shows.
    pub without: Without,
    /// Words of its verdict that tell of nothing of the host, behind the wall that it is judged for.
    pub excused: Vec<String>,
    /// Outcomes with which it comes to no verdict there.
    pub silent: Vec<String>,
}

impl Attack {
    /// What it is told about the host, and which successes are of a kernel that belongs to its sandbox.
    pub fn told(&self, bait: &Bait) -> Value {
        let mut host = bait.host.clone();
        host["own"] = json!(self.excused);
        host
    }

    /// A number of its limits, or the server's default.
    pub fn limit(&self, option: &str, default: u64) -> u64 {
        let pair = self.limits.chunks(2).find(|pair| pair[0] == option);
        pair.and_then(|pair| pair.get(1)?.parse().ok()).unwrap_or(default)
    }

    /// Whether its output says that it got out.
    pub fn escaped_by(&self, stdout: &str) -> bool {
        let is_excused = |line: &str| self.excused.iter().any(|words| line.contains(words.as_str()));
        stdout.lines().any(|line| line.contains("ESCAPED") && !is_excused(line))
    }
}

/// The folder of this package.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every attack, by name.
pub fn all() -> Vec<Attack> {
    let entries = fs::read_dir(folder().join("attacks")).unwrap();
    let mut attacks: Vec<Attack> = entries.map(|entry| read(&entry.unwrap().path())).collect();
    attacks.sort_by(|one, other| one.name.cmp(&other.name));
    attacks
}

/// The attacks of these families. The variable `PALISADE_ATTACKS` narrows them down: `representatives`, or parts of
/// file names with commas between.
pub fn chosen(families: &[&str]) -> Vec<Attack> {
    let wanted = std::env::var("PALISADE_ATTACKS").unwrap_or_default();
    let is_wanted = |name: &str| match wanted.as_str() {
        "representatives" => REPRESENTATIVES.contains(&name),
        parts => parts.split(',').any(|part| name.contains(part)),
    };
    let of_families = all().into_iter().filter(|attack| families.contains(&attack.family.as_str()));
    of_families.filter(|attack| is_wanted(&attack.name)).collect()
}

/// One attack by file name.
pub fn named(name: &str) -> Attack {
    read(&folder().join("attacks").join(name))
}

fn read(path: &Path) -> Attack {
    let code = fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut attack = Attack {
        name: name.clone(),
        path: path.to_owned(),
        family: String::new(),
        walls: Vec::new(),
        limits: Vec::new(),
        outcomes: Vec::new(),
        without: Without::Never(String::new()),
        excused: Vec::new(),
        silent: Vec::new(),
        code: code.clone(),
    };
    for line in code.lines().take_while(|line| line.starts_with('#') || line.starts_with("//")) {
        let Some((key, value)) = line.trim_start_matches(['#', '/', ' ']).split_once(": ") else { break };
        match key {
            "attack" => {}
            "family" => value.clone_into(&mut attack.family),
            "walls" => attack.walls = value.split(", ").map(str::to_owned).collect(),
            "limits" => attack.limits = value.split_whitespace().map(str::to_owned).collect(),
            "outcome" => attack.outcomes = value.split('|').map(str::to_owned).collect(),
            "without" => attack.without = without(&name, value),
            _ => panic!("{name}: the header has an unknown line: {line}"),
        }
    }
    check(&attack);
    attack
}

fn without(name: &str, value: &str) -> Without {
    match value.split_once(": ") {
        None if value == "escaped" => Without::Escaped,
        None if value == "differs" => Without::Differs,
        Some(("never", reason)) => Without::Never(reason.to_owned()),
        _ => panic!("{name}: `without` is `{value}`"),
    }
}

fn check(attack: &Attack) {
    let name = &attack.name;
    assert!(FAMILIES.contains(&attack.family.as_str()), "{name}: no family `{}`", attack.family);
    assert!(!attack.walls.is_empty(), "{name}: names no wall");
    for wall in &attack.walls {
        assert!(WALLS.contains(&wall.as_str()), "{name}: no wall `{wall}`");
    }
    assert_ne!(
        attack.without,
        Without::Never(String::new()),
        "{name}: does not say what happens without the walls"
    );
}
