//! Every attack of `attacks/` in sandboxes that were built ahead: a spare is as good as one that is built for its run.

use escape::attack;
use escape::bait::{Bait, Tidy};
use escape::leased;
use harness::warm::Warm;

fn part_is_held(families: &[&str]) {
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("SKIPPED {families:?}: the attacks are written for x86_64");
        return;
    }
    let _tidy = Tidy;
    let mut problems = Vec::new();
    for user in harness::users() {
        let bait = Bait::lay(&format!("leased-{}-{user:?}", families[0].replace(' ', "-")).to_lowercase());
        let warm = Warm::start(user);
        let (mut count, mut in_spares) = (0, 0);
        for attack in attack::chosen(families) {
            let judged = leased::judge(&attack, &warm, &bait);
            count += 1;
            in_spares += usize::from(judged.is_leased);
            problems.extend(judged.problem);
        }
        let escaped = problems.iter().filter(|problem| problem.contains("ESCAPED behind")).count();
        println!("{user:?}: {count} attacks, {in_spares} in spares, {escaped} escaped ({families:?})");
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn files_of_the_host_are_out_of_reach_of_a_spare() {
    part_is_held(&["file reads", "writes", "network"]);
}

#[test]
fn processes_and_kernel_are_out_of_reach_of_a_spare() {
    part_is_held(&["process", "kernel surface"]);
}

#[test]
fn a_spare_exhausts_nothing_but_itself() {
    part_is_held(&["exhaustion"]);
}

#[test]
fn a_spare_deceives_nobody_and_leaves_nothing_to_the_next() {
    part_is_held(&["deception", "persistence", "resurrection"]);
}
