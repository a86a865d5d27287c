//! Packages whose files are hostile.

use std::path::Path;

use functional::files_beneath;

use super::environment::{Supply, files, good, refusal, versions};

#[test]
fn a_file_that_differs_from_its_digest_is_never_shown_to_the_builder() {
    let Some(supply) = Supply::new("wrong-hash") else { return };
    supply.refused("pypi", &["wrong-hash"], "package_hash_mismatch");
    // The server names the package. npm compares digests too, and names none.
    let told = supply.refused("npm", &["wrongjs"], "package_hash_mismatch");
    assert!(told.contains("a file of `wrongjs` differs"), "{told}");
}

#[test]
fn a_file_without_a_strong_digest_is_refused() {
    let Some(supply) = Supply::new("no-hash") else { return };
    supply.refused("pypi", &["no-hash"], "package_refused");
    supply.refused("npm", &["weakjs"], "package_refused");
    assert_eq!(supply.requests("/files/"), 0);
}

#[test]
fn a_wheel_with_dot_dot_writes_nothing_outside_its_layer() {
    let Some(supply) = Supply::new("dotdot") else { return };
    supply.prepare("pypi", &["dotdot"]).end();
    assert!(!Path::new("/tmp/evil.py").exists());
    for path in files_beneath(&supply.state_dir.join("packages/layers")) {
        assert!(!path.ends_with("evil.py"), "{path:?}");
    }
}

#[test]
fn a_wheel_with_absolute_names_writes_nothing_outside_its_layer() {
    let Some(supply) = Supply::new("absolute") else { return };
    supply.prepare("pypi", &["absolute"]).end();
    assert!(!Path::new("/tmp/evil.py").exists());
}

#[test]
fn a_wheel_with_links_that_leave_it_becomes_no_layer_with_links() {
    let Some(supply) = Supply::new("linked") else { return };
    supply.prepare("pypi", &["linked"]).end();
    for path in files_beneath(&supply.state_dir.join("packages/layers")) {
        let place = supply.state_dir.join("packages/layers").join(&path);
        assert!(!place.is_symlink(), "{path:?}");
    }
}

#[test]
fn a_compressed_bomb_ends_at_the_size_of_a_layer() {
    let Some(supply) = Supply::new("bomb") else { return };
    let told = supply.prepare("pypi", &["bomb"]).env("PALISADE_PACKAGES_LAYER_MB", "64").end();
    assert!(!told.status.success(), "{}", told.stdout);
    assert!(told.stderr.contains("(package_refused)"), "{}", told.stderr);
    assert_eq!(supply.layers().len(), 1, "only the resolver: {:?}", supply.layers());
}

#[test]
fn names_that_differ_in_case_only_are_refused() {
    let Some(supply) = Supply::new("casefold") else { return };
    let told = supply.refused("pypi", &["casefold"], "package_refused");
    assert!(told.contains("case"), "{told}");
}

#[test]
fn a_tree_that_is_too_deep_is_refused() {
    let Some(supply) = Supply::new("deep") else { return };
    supply.refused("pypi", &["deep"], "package_refused");
}

#[test]
fn a_wheel_that_claims_to_be_another_package_is_refused() {
    let Some(supply) = Supply::new("liar") else { return };
    supply.refused("pypi", &["liar"], "package_refused");
    supply.refused("pypi", &["misnamed"], "package_not_found");
}

#[test]
fn a_wheel_whose_record_lies_installs_its_own_files_only() {
    let Some(supply) = Supply::new("record") else { return };
    let ended = supply.prepare("pypi", &["recordlies"]).end();
    if ended.status.success() {
        let set: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(set["modules"], serde_json::json!(["recordlies"]));
        let odd: Vec<_> =
            files_beneath(&files(&set)).into_iter().filter(|path| path.ends_with("passwd")).collect();
        assert!(odd.is_empty(), "{odd:?}");
    } else {
        assert!(ended.stderr.contains("(package_refused)"), "{}", ended.stderr);
    }
}

#[test]
fn a_file_that_is_no_archive_is_refused() {
    let Some(supply) = Supply::new("broken") else { return };
    supply.refused("pypi", &["broken"], "package_refused");
}

#[test]
fn a_source_package_runs_no_code() {
    let Some(supply) = Supply::new("source") else { return };
    let told = supply.refused("pypi", &["sourceonly"], "package_no_wheel");
    assert!(told.contains("source_builds"), "{told}");
    assert_eq!(supply.requests("/files/"), 0, "its file is not even fetched");
}

#[test]
fn install_scripts_do_not_run() {
    let Some(supply) = Supply::new("postinstall") else { return };
    let set = supply.installed("npm", &["postinstall"]);
    assert!(files(&set).join("postinstall/index.js").is_file());
    let ran: Vec<_> =
        files_beneath(&files(&set)).into_iter().filter(|path| path.ends_with("ran.txt")).collect();
    assert!(ran.is_empty(), "{ran:?}");
}

#[test]
fn an_npm_archive_with_dot_dot_or_links_stays_in_its_folder() {
    let Some(supply) = Supply::new("dotdotjs") else { return };
    for name in ["dotdotjs", "linkjs"] {
        supply.prepare("npm", &[name]).end();
    }
    assert!(!Path::new("/tmp/evil.js").exists());
    for path in files_beneath(&supply.state_dir.join("packages/layers")) {
        assert!(!supply.state_dir.join("packages/layers").join(&path).is_symlink(), "{path:?}");
    }
}

#[test]
fn dependencies_by_address_or_path_are_not_installed() {
    let Some(supply) = Supply::new("urldep") else { return };
    for (from, name) in [("pypi", "urldep"), ("npm", "gitdepjs"), ("npm", "filedepjs")] {
        let ended = supply.prepare(from, &[name]).end();
        assert!(!ended.status.success(), "{name}: {}", ended.stdout);
    }
    assert_eq!(supply.layers().len(), 1);
}

#[test]
fn a_file_that_never_ends_is_given_up_at_the_size_of_a_layer() {
    let Some(supply) = Supply::new("endless-file") else { return };
    let before = supply.layers();
    let ended = supply.prepare("pypi", &["endlessfile"]).env("PALISADE_PACKAGES_LAYER_MB", "16").end();
    refusal(ended, "package_refused");
    assert_eq!(supply.layers(), before);
}

#[test]
fn a_compressed_bomb_of_npm_ends_at_the_size_of_a_layer() {
    let Some(supply) = Supply::new("bombjs") else { return };
    let before = supply.layers();
    let ended = supply.prepare("npm", &["bombjs"]).env("PALISADE_PACKAGES_LAYER_MB", "32").end();
    refusal(ended, "package_refused");
    assert_eq!(supply.layers(), before);
}

#[test]
fn metadata_that_differ_from_their_digest_are_refused() {
    let Some(supply) = Supply::new("metalies") else { return };
    let told = supply.refused("pypi", &["metalies"], "package_hash_mismatch");
    assert!(told.contains("a file of `metalies` differs"), "the server noticed it: {told}");
}

#[test]
fn names_of_commands_do_not_lead_out_of_the_layer() {
    let Some(supply) = Supply::new("script-names") else { return };
    let before = supply.layers();
    for (from, name) in [("pypi", "scriptpath"), ("npm", "binjs")] {
        let ended = supply.prepare(from, &[name]).end();
        for place in ["/tmp/evil-script", "/tmp/evil", "/evil", "/escaped"] {
            assert!(!Path::new(place).exists(), "{name}: {place}");
        }
        if ended.status.success() {
            let set: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
            let odd = |path: &std::path::PathBuf| {
                ["evil", "evil-script", "escaped"].iter().any(|end| path.ends_with(end))
                    && !path.starts_with("bin")
                    && !path.starts_with(".bin")
            };
            let odd: Vec<_> = files_beneath(&files(&set)).into_iter().filter(odd).collect();
            assert!(odd.is_empty(), "{odd:?}");
        } else {
            assert!(ended.stderr.contains("(package_refused)"), "{}", ended.stderr);
            assert_eq!(supply.layers(), before);
        }
    }
}

#[test]
fn a_wheel_with_the_metadata_of_a_second_package_is_refused() {
    let Some(supply) = Supply::new("twin") else { return };
    supply.refused("pypi", &["twin"], "package_refused");
}

#[test]
fn lines_of_path_files_are_not_executed() {
    let Some(supply) = Supply::new("pathlines") else { return };
    let code = "import os, subprocess, sys, pathlines\nprint(os.environ.get('PATHLINES'))\n\
                print(subprocess.run([sys.executable, '-c', 'import os; print(os.environ.get(\"PATHLINES\"))'], capture_output=True, text=True).stdout.strip())";
    let ran = supply.palisade(&["run", "python", "--package", "pathlines", "-c", code]).end();
    assert_eq!((ran.status.code(), ran.stdout.as_str()), (Some(0), "None\nNone\n"), "{}", ran.stderr);
}

#[test]
fn a_package_does_not_replace_the_standard_library() {
    let Some(supply) = Supply::new("shadow") else { return };
    let code =
        "import json, os, shadow\nprint(hasattr(json, 'SHADOW'), hasattr(os, 'SHADOW'), json.dumps([1]))";
    let ran = supply.palisade(&["run", "python", "--package", "shadow", "-c", code]).end();
    assert_eq!((ran.status.code(), ran.stdout.as_str()), (Some(0), "False False [1]\n"), "{}", ran.stderr);
}

/// The back end of the source package notes whether it reaches the mirror, which listens on the host's loopback, and
/// whether it sees the state directory.
#[test]
fn a_source_build_that_is_allowed_runs_behind_the_wall() {
    let Some(supply) = Supply::new("source-build") else { return };
    let prepare = supply.prepare("pypi", &["built"]).env("PALISADE_PACKAGES_SOURCE_BUILDS", "true");
    let set = good(prepare.end());
    let seen = std::fs::read_to_string(files(&set).join("built.py")).unwrap();
    assert_eq!(seen, "SEEN = {'net': 'closed', 'state': False}\n");
}

#[test]
fn install_scripts_that_are_allowed_run_behind_the_wall() {
    let Some(supply) = Supply::new("script-allowed") else { return };
    let prepare = supply.prepare("npm", &["looksjs"]).env("PALISADE_PACKAGES_INSTALL_SCRIPTS", "true");
    let set = good(prepare.end());
    let seen = std::fs::read_to_string(files(&set).join("looksjs/seen.json")).unwrap();
    assert_eq!(seen, r#"{"net":"closed","state":false}"#);
}

#[test]
fn good_packages_of_both_ecosystems_are_installed_with_what_they_need() {
    let Some(supply) = Supply::new("good") else { return };
    let set = supply.installed("pypi", &["Good_Name", "good"]);
    assert_eq!(versions(&set), ["good 2.0", "good-name 1.0"]);
    assert_eq!(set["modules"], serde_json::json!(["good", "good_name"]));
    assert_eq!(set["target"], "/palisade/packages/python");
    assert_eq!(set["was_cached"], false);
    assert_eq!(supply.installed("pypi", &["Good_Name", "good"])["was_cached"], true);
    let set = supply.installed("npm", &["dependsjs", "@scope/goodjs"]);
    assert_eq!(versions(&set), ["@scope/goodjs 1.0.0", "dependsjs 1.0.0", "goodjs 1.0.0"]);
    assert_eq!(set["target"], "/node_modules");
    let inventory = std::fs::read(files(&set).parent().unwrap().join("bom.json")).unwrap();
    let inventory: serde_json::Value = serde_json::from_slice(&inventory).unwrap();
    assert_eq!(inventory["bomFormat"], "CycloneDX");
    assert_eq!(inventory["components"][0]["purl"], "pkg:npm/%40scope/goodjs@1.0.0");
    assert_eq!(inventory["components"][0]["hashes"][0]["alg"], "SHA-512");
}
