//! Indexes that are hostile, damaged or down.

use std::time::{Duration, Instant};

use super::environment::{Supply, good, refusal, versions};

#[test]
fn an_index_that_never_ends_is_given_up() {
    let Some(supply) = Supply::new("endless") else { return };
    supply.refused("pypi", &["endless"], "package_refused");
}

#[test]
fn dependencies_without_an_end_are_given_up() {
    let Some(supply) = Supply::new("chain") else { return };
    let before = supply.layers();
    let ended = supply.prepare("pypi", &["chain-1"]).env("PALISADE_PACKAGES_INSTALL_TIMEOUT_S", "10").end();
    let told = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!ended.status.success(), "{told}");
    assert!(told.contains("(packages_timeout)") || told.contains("(package_refused)"), "{told}");
    assert_eq!(supply.layers(), before);
}

#[test]
fn an_index_that_cannot_be_read_is_told() {
    let Some(supply) = Supply::new("garbage") else { return };
    for package in ["nested", "garbage"] {
        supply.refused("pypi", &[package], "mirror_unreachable");
    }
}

#[test]
fn an_index_that_is_slow_is_given_up_in_time() {
    let Some(supply) = Supply::new("slow") else { return };
    let started = Instant::now();
    refusal(
        supply.prepare("pypi", &["slow"]).env("PALISADE_PACKAGES_FETCH_TIMEOUT_S", "2").end(),
        "mirror_unreachable",
    );
    assert!(started.elapsed() < harness::patience(Duration::from_secs(60)));
}

#[test]
fn an_index_that_unpacks_to_too_much_is_refused() {
    let Some(supply) = Supply::new("zipped") else { return };
    supply.refused("pypi", &["zipped"], "package_refused");
}

#[test]
fn an_index_does_not_lead_the_server_to_other_hosts() {
    let Some(supply) = Supply::new("moved") else { return };
    supply.refused("pypi", &["moved"], "package_refused");
    supply.refused("pypi", &["elsewhere"], "package_refused");
    supply.refused("pypi", &["metadata"], "package_refused");
    assert_eq!(supply.requests("/files/") + supply.requests("/simple/good/"), 0);
    supply.refused("pypi", &["circle"], "mirror_unreachable");
}

#[test]
fn the_password_of_a_mirror_is_sent_to_the_mirror_alone() {
    let Some(supply) = Supply::new("password") else { return };
    let prepare = supply.prepare("pypi", &["elsewhere"]).env("PALISADE_PACKAGES_FILE_HOSTS", "localhost");
    let set = prepare.env("PALISADE_PACKAGES_MIRRORS", &supply.mirrors("user:word@")).end();
    assert_eq!(versions(&good(set)), ["elsewhere 1.0"]);
    assert_eq!(supply.requests("/simple/elsewhere/ with a password"), 1);
    assert_eq!(supply.requests("/files/elsewhere"), 1);
    assert_eq!(supply.requests("/files/elsewhere-1.0-py3-none-any.whl with a password"), 0);
}

#[test]
fn a_resolver_that_is_not_the_pinned_one_is_never_executed() {
    let Some(supply) = Supply::new("resolver") else { return };
    let packages = supply.state_dir.join("packages");
    let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
    let pinned = std::fs::read_dir(packages.join("sets")).unwrap().map(|entry| name(entry.unwrap())).next();
    let digest = pinned.unwrap().replace("uv-", "").replace(".json", "");
    std::fs::remove_dir_all(&packages).unwrap();
    std::fs::create_dir_all(packages.join("layers")).unwrap();
    // The index has another resolver of that version.
    let told = supply.refused("pypi", &["good"], "packages_failed");
    assert!(told.contains("the mirror does not have uv"), "{told}");
    // The index says that it has the pinned one, and the file is another.
    std::fs::remove_dir_all(packages.join("index")).unwrap();
    std::fs::write(supply.beside("uv-digest"), digest).unwrap();
    supply.refused("pypi", &["good"], "package_hash_mismatch");
}

#[test]
fn a_host_that_the_operator_names_may_have_files() {
    let Some(supply) = Supply::new("file-hosts") else { return };
    let set = supply.prepare("pypi", &["elsewhere"]).env("PALISADE_PACKAGES_FILE_HOSTS", "localhost").end();
    assert_eq!(versions(&good(set)), ["elsewhere 1.0"]);
}

#[test]
fn an_html_index_serves_as_well() {
    let Some(supply) = Supply::new("html") else { return };
    assert_eq!(versions(&supply.installed("pypi", &["html"])), ["html 1.0"]);
}

#[test]
fn a_mirror_that_fails_or_is_down_is_told_as_passing() {
    let Some(mut supply) = Supply::new("down") else { return };
    supply.refused("pypi", &["failing"], "mirror_unreachable");
    supply.end_mirror();
    supply.refused("pypi", &["good"], "mirror_unreachable");
    supply.refused("npm", &["goodjs"], "mirror_unreachable");
}

#[test]
fn packages_are_installed_while_the_mirror_is_down_if_their_files_are_there() {
    let Some(mut supply) = Supply::new("offline") else { return };
    supply.installed("pypi", &["good", "good-name"]);
    supply.installed("npm", &["goodjs"]);
    supply.end_mirror();
    assert_eq!(versions(&supply.installed("pypi", &["good>=2"])), ["good 2.0"]);
    assert_eq!(versions(&supply.installed("npm", &["goodjs@2"])), ["goodjs 2.0.0"]);
}

#[test]
fn a_name_that_does_not_exist_is_told_with_near_names_and_without_asking_for_them() {
    let Some(supply) = Supply::new("missing") else { return };
    let told = supply.refused("pypi", &["pandsa"], "package_not_found");
    assert!(told.contains("did you mean pandas?"), "{told}");
    assert_eq!(supply.requests("/simple/pandas/"), 0);
    supply.refused("npm", &["lodahs"], "package_not_found");
    for (from, name) in [("pypi", "json"), ("npm", "fs")] {
        let told = supply.refused(from, &[name], "package_not_found");
        assert!(told.contains("it comes with the language"), "{told}");
    }
}

#[test]
fn versions_that_do_not_fit_together_are_told_as_a_conflict() {
    let Some(supply) = Supply::new("conflict") else { return };
    supply.refused("pypi", &["conflicting"], "packages_conflict");
    // npm tells a version that a dependency wants and that no release has.
    supply.refused("npm", &["conflictjs"], "package_not_found");
    supply.refused("pypi", &["otherplatform"], "package_no_wheel");
}

#[test]
fn a_version_that_no_release_has_is_told_with_those_that_are_there() {
    let Some(supply) = Supply::new("versions") else { return };
    for (from, wanted, there) in
        [("pypi", "good==9.9", "good has 2.0, 1.0"), ("npm", "goodjs@9", "goodjs has 2.0.0, 1.0.0")]
    {
        let told = supply.refused(from, &[wanted], "package_not_found");
        assert!(told.contains(there), "{told}");
        assert!(!told.contains("Using CPython") && !told.contains("_logs"), "{told}");
    }
}
