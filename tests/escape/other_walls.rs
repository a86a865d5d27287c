//! The attacks behind walls with an OCI runtime or an engine, as root: in fresh sandboxes and in persistent ones. One hole in each wall is
//! seen to be used, and to be noticed.
//!
//! One attack of each family and more by default; all of them with PALISADE_LONG. What differs by a wall's nature is in
//! `escape::nature`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use escape::attack::{self, Attack, FAMILIES, REPRESENTATIVES};
use escape::bait::{Bait, Tidy};
use escape::{lasting, nature, trial};
use harness::behind::Behind;
use harness::mcp::Client;
use harness::{Build, Palisade, TestFolder, User};
use serde_json::Value;

/// How long a server may take to remove what earlier ones left.
const SWEEP_PATIENCE: Duration = Duration::from_secs(60);

/// The wall of that name, where the attacks can be tried.
fn behind(wall: &'static str) -> Option<Behind> {
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("SKIPPED {wall}: the attacks are written for x86_64");
        return None;
    }
    Behind::new(wall)
}

fn is_long() -> bool {
    std::env::var_os("PALISADE_LONG").is_some()
}

/// The attacks of this run. `PALISADE_ATTACKS` names some of them, separated by commas.
fn attacks() -> Vec<Attack> {
    if let Ok(names) = std::env::var("PALISADE_ATTACKS") {
        return names.split(',').map(attack::named).collect();
    }
    if is_long() { attack::chosen(&FAMILIES) } else { REPRESENTATIVES.map(attack::named).into() }
}

fn judge_all(wall: &str, how: &str, judge: impl Fn(&Attack, &Bait) -> Result<(), String>) {
    let _tidy = Tidy;
    let bait = Bait::lay(&format!("{how}-{wall}"));
    let (began, attacks) = (Instant::now(), attacks());
    let problems: Vec<String> = attacks.iter().filter_map(|attack| judge(attack, &bait).err()).collect();
    let escaped = problems.iter().filter(|problem| problem.contains("ESCAPED behind")).count();
    let seconds = began.elapsed().as_secs();
    println!("{wall}, {how}: {} attacks, {escaped} escaped, {seconds} s", attacks.len());
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

fn are_held(wall: &'static str) {
    let Some(behind) = behind(wall) else { return };
    judge_all(wall, "fresh", |attack, bait| trial::judge_behind(&behind, attack, bait));
    assert_nothing_is_left(&behind);
}

/// An engine that is slow to remove a container holds up no command: what is left is removed by the next server. Only in
/// the long run: a busy Podman does not pass it yet (docs/WALLS.md).
fn assert_nothing_is_left(behind: &Behind) {
    if !is_long() || behind.left().is_empty() {
        return;
    }
    let next = Palisade::new(Build::Real, User::Root, &["mcp"]).env("PALISADE_POOL_ENABLED", "false");
    let next = Client::start(behind.make_default(next));
    let deadline = Instant::now() + SWEEP_PATIENCE;
    while !behind.left().is_empty() {
        assert!(Instant::now() < deadline, "left behind {}: {:?}", behind.wall(), behind.left());
        std::thread::sleep(Duration::from_millis(200));
    }
    next.end();
}

fn are_held_in_persistent_sandboxes(wall: &'static str) {
    let Some(behind) = behind(wall) else { return };
    let client = Client::start(behind.make_default(Palisade::new(Build::Real, User::Root, &["mcp"])));
    judge_all(wall, "persistent", |attack, bait| {
        lasting::judge(&nature::behind(wall, attack), User::Root, &client, bait)
    });
    client.end();
    assert_nothing_is_left(&behind);
}

#[test]
fn attacks_are_held_behind_runc() {
    are_held("runc");
}

#[test]
fn attacks_are_held_behind_crun() {
    are_held("crun");
}

#[test]
fn attacks_are_held_behind_gvisor() {
    are_held("gvisor");
}

#[test]
fn attacks_are_held_behind_docker() {
    are_held("docker");
}

#[test]
fn attacks_are_held_behind_podman() {
    are_held("podman");
}

#[test]
fn attacks_in_persistent_sandboxes_are_held_behind_runc() {
    are_held_in_persistent_sandboxes("runc");
}

#[test]
fn attacks_in_persistent_sandboxes_are_held_behind_crun() {
    are_held_in_persistent_sandboxes("crun");
}

#[test]
fn attacks_in_persistent_sandboxes_are_held_behind_gvisor() {
    are_held_in_persistent_sandboxes("gvisor");
}

#[test]
fn attacks_in_persistent_sandboxes_are_held_behind_docker() {
    are_held_in_persistent_sandboxes("docker");
}

#[test]
fn attacks_in_persistent_sandboxes_are_held_behind_podman() {
    are_held_in_persistent_sandboxes("podman");
}

/// A runtime that shows a directory of the host in place of the home directory. Without the examination from outside a
/// program reads it; with the examination no program is started.
fn a_hole_is_used_and_noticed(wall: &'static str, command: &str) {
    const SECRET: &str = "a word of the host";
    if Behind::new(wall).is_none() {
        return;
    }
    let _tidy = Tidy;
    let folder = TestFolder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder.file("shown/secret", SECRET);
    let liar = folder.file("liar", liar(command, &folder.path().join("shown").display().to_string()));
    fs::set_permissions(&liar, fs::Permissions::from_mode(0o755)).unwrap();
    let variable = format!("PALISADE_WALL_{}_PROGRAM", wall.to_uppercase());
    let run = |build: Build, off: &str| -> Value {
        let line = ["run", "bash", "--json", "--wall", wall, "-c", "cat /home/agent/secret"];
        let ended = Palisade::new(build, User::Root, &line)
            .env(&variable, liar.to_str().unwrap())
            .env("PALISADE_WALLS_OFF", off)
            .end();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
    };
    let used = run(Build::Breach, "verify");
    assert_eq!(used["stdout"], SECRET, "the attack does not use the hole: {used:#}");
    let noticed = run(Build::Real, "").to_string();
    assert!(!noticed.contains(SECRET) && noticed.contains("not complete: /home/agent"), "{noticed}");
}

/// The runtime, with one mount more in each configuration.
fn liar(command: &str, shown: &str) -> String {
    format!(
        "#!/usr/bin/python3\nimport json, os, sys\na = sys.argv\nif 'create' in a:\n    \
         p = os.path.join(a[a.index('--bundle') + 1], 'config.json')\n    c = json.load(open(p))\n    \
         c['mounts'].append({{'destination': '/home/agent', 'type': 'bind', 'options': ['bind', 'nosuid', 'nodev'], \
         'source': '{shown}'}})\n    json.dump(c, open(p, 'w'))\nos.execvp('{command}', a)\n"
    )
}

#[test]
fn a_hole_in_runc_is_used_and_noticed() {
    a_hole_is_used_and_noticed("runc", "runc");
}

#[test]
fn a_hole_in_crun_is_used_and_noticed() {
    a_hole_is_used_and_noticed("crun", "crun");
}

#[test]
fn a_hole_in_gvisor_is_used_and_noticed() {
    a_hole_is_used_and_noticed("gvisor", "runsc");
}
