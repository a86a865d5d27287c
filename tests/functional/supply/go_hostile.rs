//! Hostile Go modules, proxies and checksum databases, and the operator's rules for modules.

use std::path::Path;

use functional::files_beneath;

use super::environment::{Supply, files, good, refusal, versions};

#[test]
fn a_module_that_differs_from_the_checksum_database_is_refused() {
    let supply = Supply::without_resolver("go-wrong");
    supply.refused("go", &["mod.example/wrong"], "package_hash_mismatch");
    supply.refused("go", &["mod.example/needs-wrong"], "package_hash_mismatch");
    let unchecked = supply.prepare("go", &["mod.example/wrong"]).env("PALISADE_PACKAGES_GO_SUMDB", "off");
    assert_eq!(versions(&good(unchecked.end())), ["mod.example/wrong v1.0.0"], "the operator's choice");
}

#[test]
fn a_checksum_database_that_signs_with_another_key_is_refused() {
    let supply = Supply::without_resolver("go-key-of-another");
    let other = "sums.example+17c891d1+AbGGnMkBRCGuoYq0MHboWjlKL/Bly9KeNM4O/DdEHAJL";
    let before = supply.layers();
    let ended = supply.prepare("go", &["mod.example/good"]).env("PALISADE_PACKAGES_GO_SUMDB", other).end();
    refusal(ended, "package_hash_mismatch");
    assert_eq!(supply.layers(), before);
    // A database that the operator did not name is not asked.
    let asked = supply.requests("/go/sumdb/sums.example/lookup");
    let public =
        supply.prepare("go", &["mod.example/good"]).env("PALISADE_PACKAGES_GO_SUMDB", "sum.golang.org");
    assert!(!public.end().status.success());
    assert_eq!(supply.requests("/go/sumdb/sums.example/lookup"), asked);
}

#[test]
fn go_versions_that_are_too_young_are_passed_over_and_refused_as_dependencies() {
    let supply = Supply::without_resolver("go-young");
    supply.refused("go", &["mod.example/young"], "package_too_young");
    supply.refused("go", &["mod.example/ageless"], "package_too_young");
    supply.refused("go", &["mod.example/partly-young@v1.1.0"], "package_too_young");
    supply.refused("go", &["mod.example/needs-young"], "package_too_young");
    assert_eq!(supply.requests("/mod.example/young/@v/v1.0.0.zip"), 0, "no code of it was fetched");
    let set = supply.installed("go", &["mod.example/partly-young"]);
    assert_eq!(versions(&set), ["mod.example/partly-young v1.0.0"]);
    let set = supply.prepare("go", &["mod.example/young"]).env("PALISADE_PACKAGES_MIN_AGE_DAYS", "0").end();
    assert_eq!(versions(&good(set)), ["mod.example/young v1.0.0"]);
}

#[test]
fn a_denied_module_is_refused_in_every_spelling_and_as_a_dependency() {
    let supply = Supply::without_resolver("go-denied");
    let denied = |packages: &[&str], name: &str, rule: &str| {
        refusal(supply.prepare("go", packages).env(name, rule).end(), "package_denied");
    };
    denied(&["mod.example/needs"], "PALISADE_PACKAGES_DENY", "go:mod.example/good");
    denied(&["mod.example/Good"], "PALISADE_PACKAGES_DENY", "mod.example/good");
    denied(&["mod.example/good/v2"], "PALISADE_PACKAGES_DENY", "go:mod.example/good");
    denied(&["mod.example/needs"], "PALISADE_PACKAGES_ALLOW", "go:mod.example/needs");
    assert_eq!(supply.requests("/mod.example/good/@v/v1.0.0.zip"), 0, "no code of it was fetched");
    supply.installed("go", &["mod.example/needs"]);
    denied(&["mod.example/needs"], "PALISADE_PACKAGES_DENY", "go:mod.example/good");
    let allowed = supply.prepare("go", &["mod.example/good@v1.0.0"]);
    good(allowed.env("PALISADE_PACKAGES_ALLOW", "go:mod.example/*").end());
}

#[test]
fn what_is_no_path_of_a_module_is_refused_before_anything_is_asked() {
    let supply = Supply::without_resolver("go-names");
    for package in [
        "uuid",
        "encoding/json",
        "-u",
        "./x",
        "../x",
        "mod.example/../good",
        "mod.example/good/...",
        "mod.example/good@master",
        "mod.example/good@v1.0.0 -insecure",
        "https://mod.example/good",
        "mod.example/g\u{43e}od",
        "go get mod.example/good",
        "mod.example/.git/good",
        "MOD.example/good",
        "mod.example/good@none",
    ] {
        supply.refused("go", &[package], "bad_package");
    }
    assert_eq!(supply.requests("/"), 0);
}

#[test]
fn an_archive_of_a_module_that_cannot_be_used_is_refused() {
    let supply = Supply::without_resolver("go-archives");
    for module in ["dotdot", "casefold", "liar", "broken"] {
        supply.refused("go", &[&format!("mod.example/{module}")], "package_refused");
    }
    assert!(!Path::new("/tmp/evil.go").exists());
    supply.refused("go", &["mod.example/pathlies"], "package_not_found");
    supply.refused("go", &["mod.example/misnamed"], "mirror_unreachable");
}

#[test]
fn a_bomb_and_an_archive_without_an_end_are_given_up_at_the_size_of_a_layer() {
    let supply = Supply::without_resolver("go-bomb");
    let before = supply.layers();
    for module in ["mod.example/bomb", "mod.example/endlessfile"] {
        let ended = supply.prepare("go", &[module]).env("PALISADE_PACKAGES_LAYER_MB", "8").end();
        refusal(ended, "package_refused");
    }
    assert_eq!(supply.layers(), before);
}

#[test]
fn a_list_of_versions_without_an_end_is_given_up() {
    let supply = Supply::without_resolver("go-endless");
    supply.refused("go", &["mod.example/endless"], "package_refused");
}

#[test]
fn modules_that_need_others_without_an_end_are_given_up() {
    let supply = Supply::without_resolver("go-chain");
    let before = supply.layers();
    let prepare = supply.prepare("go", &["mod.example/chain-1"]).env("PALISADE_PACKAGES_GO_SUMDB", "off");
    let ended = prepare.env("PALISADE_PACKAGES_INSTALL_TIMEOUT_S", "15").end();
    let told = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!ended.status.success(), "{told}");
    assert!(told.contains("(packages_timeout)") || told.contains("(package_refused)"), "{told}");
    assert_eq!(supply.layers(), before);
}

#[test]
fn a_proxy_of_modules_does_not_lead_the_server_to_other_hosts() {
    let supply = Supply::without_resolver("go-moved");
    supply.refused("go", &["mod.example/moved"], "package_refused");
    supply.refused("go", &["mod.example/failing"], "mirror_unreachable");
    assert_eq!(supply.requests("/simple/good/"), 0);
}

#[test]
fn a_proxy_that_answered_wrongly_once_is_asked_again() {
    let supply = Supply::without_resolver("go-hiccup");
    // Wrong once: the documents of the version, its archive, and what the checksum database says.
    let failed =
        (0..4).take_while(|_| !supply.prepare("go", &["mod.example/hiccup"]).end().status.success()).count();
    assert!(failed > 0, "the first answers are wrong");
    assert_eq!(versions(&supply.installed("go", &["mod.example/hiccup"])), ["mod.example/hiccup v1.0.0"]);
}

#[test]
fn nothing_of_a_module_is_executed_when_it_is_installed() {
    let supply = Supply::without_resolver("go-runs");
    let set = supply.installed("go", &["mod.example/runs", "mod.example/cgo"]);
    let ran: Vec<_> = files_beneath(&files(&set)).into_iter().filter(|path| path.ends_with("ran")).collect();
    assert!(ran.is_empty(), "{ran:?}");
    let code = "package main\n\nimport \"mod.example/cgo\"\n\nfunc main() { println(cgo.Value()) }\n";
    let run = supply.palisade(&["run", "go", "--json", "--package", "mod.example/cgo", "-c", code]).end();
    let result: serde_json::Value = serde_json::from_str(&run.stdout).expect(&run.stderr);
    assert_eq!(result["outcome"], "compile_failed", "a module with C is no Go alone: {result:#}");
}

#[test]
fn modules_that_are_not_there_or_need_a_newer_go_are_told_as_such() {
    let supply = Supply::without_resolver("go-missing-ones");
    supply.refused("go", &["mod.example/nothing-here"], "package_not_found");
    supply.refused("go", &["mod.example/good@v9.9.9"], "package_not_found");
    supply.refused("go", &["mod.example/newer"], "packages_conflict");
    let told = supply.refused("go", &["github.com/google/uiid"], "package_not_found");
    assert!(told.contains("github.com/google/uuid"), "a near name: {told}");
    for unlisted in ["mod.example/unlisted", "mod.example/unlisted@v1.0.0"] {
        let told = supply.refused("go", &[unlisted], "package_refused");
        assert!(told.contains("packages.go_sumdb"), "{told}");
    }
    let unchecked = supply.prepare("go", &["mod.example/unlisted"]).env("PALISADE_PACKAGES_GO_SUMDB", "off");
    assert_eq!(versions(&good(unchecked.end())), ["mod.example/unlisted v1.0.0"]);
}
