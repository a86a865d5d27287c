//! Every attack of `attacks/`, one test per family, for each user: held behind the walls, seen to succeed without.
//!
//! System-call numbers in the attacks are those of x86_64.

use escape::attack::{self, Attack, FAMILIES, REPRESENTATIVES, Without};
use escape::bait::{Bait, Tidy};
use escape::trial;

fn family_is_held(family: &str) {
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("SKIPPED {family}: the attacks are written for x86_64");
        return;
    }
    let _tidy = Tidy;
    let attacks = attack::chosen(&[family]);
    let mut problems = Vec::new();
    for user in harness::users() {
        let bait = Bait::lay(&format!("{}-{user:?}", family.replace(' ', "-")).to_lowercase());
        let found: Vec<String> =
            attacks.iter().filter_map(|attack| trial::judge(attack, user, &bait).err()).collect();
        let escaped = found.iter().filter(|problem| problem.contains("ESCAPED behind")).count();
        println!("{user:?}: {} attacks, {escaped} escaped ({family})", attacks.len());
        problems.extend(found);
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn no_file_of_the_host_can_be_read() {
    family_is_held("file reads");
}

#[test]
fn nothing_of_the_host_can_be_written() {
    family_is_held("writes");
}

#[test]
fn no_network_can_be_reached() {
    family_is_held("network");
}

#[test]
fn no_other_process_can_be_touched() {
    family_is_held("process");
}

#[test]
fn the_kernel_offers_no_way_out() {
    family_is_held("kernel surface");
}

#[test]
fn no_resource_can_be_exhausted() {
    family_is_held("exhaustion");
}

#[test]
fn nothing_a_program_says_is_believed() {
    family_is_held("deception");
}

#[test]
fn nothing_is_left_for_the_next_run() {
    family_is_held("persistence");
}

#[test]
fn nothing_is_alive_after_the_answer() {
    family_is_held("resurrection");
}

/// Runs these attacks with the gate open. `--long` (PALISADE_LONG) runs all of them.
fn are_held_with_access(name: &str, attacks: &[Attack]) {
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("SKIPPED {name}: the attacks are written for x86_64");
        return;
    }
    let _tidy = Tidy;
    let mut problems = Vec::new();
    for user in harness::users() {
        let bait = Bait::lay(&format!("{name}-{user:?}").to_lowercase());
        problems
            .extend(attacks.iter().filter_map(|attack| trial::judge_with_access(attack, user, &bait).err()));
        println!("{user:?}: {} attacks with access", attacks.len());
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn no_network_can_be_reached_with_access_but_through_the_gate() {
    are_held_with_access("gate-network", &attack::chosen(&["network"]));
}

#[test]
fn access_opens_no_other_wall() {
    let is_long = std::env::var_os("PALISADE_LONG").is_some();
    let attacks = if is_long { attack::chosen(&FAMILIES) } else { REPRESENTATIVES.map(attack::named).into() };
    are_held_with_access("gate-others", &attacks);
}

#[test]
fn every_family_has_attacks_and_most_are_seen_to_succeed() {
    const ATTACKS_MIN: usize = 50;
    let attacks = attack::all();
    for family in FAMILIES {
        assert!(attacks.iter().any(|attack| attack.family == family), "{family}");
        let is_representative = |name| attack::named(name).family == family;
        assert!(REPRESENTATIVES.into_iter().any(is_representative), "{family} has no representative");
    }
    let never = attacks.iter().filter(|attack| matches!(attack.without, Without::Never(_))).count();
    println!("{} attacks, {never} of them never tried without walls", attacks.len());
    assert!(attacks.len() >= ATTACKS_MIN && never * 2 < attacks.len());
}
