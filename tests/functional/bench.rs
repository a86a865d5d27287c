//! `palisade bench`: that it ends, writes what it promises and judges by its budgets. Never how fast anything is.

use std::fs;

use functional::own_folder;
use harness::{Build, Palisade, User, users};
use serde_json::Value;

const KEPT: &str = "[[budget]]\nname = 'bash has samples'\nfigure = 'fresh/bash/palisade:n'\nmin = 1\n";
const BROKEN: &str = "[[budget]]\nname = 'bash has none'\nfigure = 'fresh/bash/palisade:n'\nmax = 0\n";

/// Checks that tags are closed in the order in which they were opened: what a viewer of SVG insists on.
fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("an unfinished tag: {part}"));
        assert!(!text.contains('>'), "a stray bracket: {text}");
        let name = tag.split_whitespace().next().unwrap_or_default().trim_end_matches('/');
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed.trim()));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}

#[test]
fn a_quick_benchmark_writes_samples_and_a_plot() {
    for user in users() {
        let folder = own_folder(user, "bench");
        let budgets = folder.join("budgets.toml");
        fs::write(&budgets, KEPT).unwrap();
        let out = folder.join("out");
        let args = ["bench", "--quick", "--only", "fresh", "--check", "--budgets", budgets.to_str().unwrap()];
        let ended = Palisade::new(Build::Real, user, &args).args(&["--out", out.to_str().unwrap()]).end();
        assert_eq!(ended.status.code(), Some(0), "{} {}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains("kept"), "{}", ended.stdout);
        let results: Value =
            serde_json::from_str(&fs::read_to_string(out.join("results.json")).unwrap()).unwrap();
        let series = results["series"].as_array().unwrap();
        let bash = series.iter().find(|one| one["name"] == "bash").expect("bash is measured everywhere");
        assert_eq!(bash["failures"], 0, "{bash}");
        assert_eq!(bash["samples"].as_array().unwrap().len() as u64, bash["summary"]["n"].as_u64().unwrap());
        assert!(results["machine"]["cores"].as_u64().unwrap() >= 1);
        assert_well_formed(&fs::read_to_string(out.join("fresh.svg")).unwrap());
    }
}

#[test]
fn a_budget_that_is_not_kept_fails_the_benchmark() {
    let user = users()[0];
    let budgets = own_folder(user, "bench-broken").join("budgets.toml");
    fs::write(&budgets, format!("{KEPT}{BROKEN}")).unwrap();
    let args = ["bench", "--quick", "--only", "fresh", "--json", "--check", "--budgets"];
    let ended = Palisade::new(Build::Real, user, &args).args(&[budgets.to_str().unwrap()]).end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
    let kept: Vec<&Value> = printed["budgets"].as_array().unwrap().iter().map(|one| &one["kept"]).collect();
    assert_eq!(kept, [&Value::Bool(true), &Value::Bool(false)]);
}

#[test]
fn an_unknown_scenario_is_named_with_the_known_ones() {
    let ended = Palisade::new(Build::Real, users()[0], &["bench", "--only", "fresh,speed"]).end();
    assert_eq!(ended.status.code(), Some(2));
    for word in ["speed", "fresh", "rivals", "throughput", "growth"] {
        assert!(ended.stderr.contains(word), "{word} is not in: {}", ended.stderr);
    }
}

#[test]
fn budgets_that_cannot_be_read_are_told_before_anything_is_measured() {
    let user: User = users()[0];
    let budgets = own_folder(user, "bench-bad").join("budgets.toml");
    fs::write(&budgets, "[[budget]]\nname = 'no bound'\nfigure = 'fresh/bash/palisade:n'\n").unwrap();
    let args = ["bench", "--check", "--budgets", budgets.to_str().unwrap()];
    let ended = Palisade::new(Build::Real, user, &args).end();
    assert_eq!(ended.status.code(), Some(125));
    assert!(ended.stderr.contains("no bound") && ended.stdout.is_empty(), "{}", ended.stderr);
}
