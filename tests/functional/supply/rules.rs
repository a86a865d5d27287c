//! The operator's rules: age, yanked releases, allow and deny lists, requirements that are not names.

use super::environment::{Supply, good, refusal, versions};

#[test]
fn releases_that_are_too_young_are_passed_over() {
    let Some(supply) = Supply::new("young") else { return };
    supply.refused("pypi", &["young"], "package_too_young");
    supply.refused("npm", &["youngjs"], "package_too_young");
    assert_eq!(versions(&supply.installed("pypi", &["partly-young"])), ["partly-young 1.0"]);
    assert_eq!(versions(&supply.installed("npm", &["partly-youngjs"])), ["partly-youngjs 1.0.0"]);
    supply.refused("pypi", &["partly-young==2.0"], "package_too_young");
    let set = supply.prepare("pypi", &["young"]).env("PALISADE_PACKAGES_MIN_AGE_DAYS", "0").end();
    assert_eq!(versions(&good(set)), ["young 1.0"]);
}

#[test]
fn a_release_of_unknown_age_is_too_young_unless_it_is_allowed() {
    let Some(supply) = Supply::new("ageless") else { return };
    let told = supply.refused("pypi", &["ageless"], "package_too_young");
    assert!(told.contains("does not say when"), "{told}");
    let set = supply.prepare("pypi", &["ageless"]).env("PALISADE_PACKAGES_ALLOW_UNKNOWN_AGE", "true").end();
    assert_eq!(versions(&good(set)), ["ageless 1.0"]);
    assert_eq!(versions(&supply.installed("pypi", &["legacy-age"])), ["legacy-age 1.0"]);
    supply.refused("npm", &["agelessjs"], "package_too_young");
}

#[test]
fn yanked_releases_are_passed_over() {
    let Some(supply) = Supply::new("yanked") else { return };
    supply.refused("pypi", &["withdrawn"], "package_not_found");
    assert_eq!(versions(&supply.installed("pypi", &["partly-withdrawn"])), ["partly-withdrawn 1.0"]);
    supply.refused("pypi", &["partly-withdrawn==2.0"], "package_not_found");
    supply.refused("pypi", &["html-withdrawn"], "package_not_found");
}

#[test]
fn denied_packages_are_refused_in_every_spelling_and_as_dependencies() {
    let Some(supply) = Supply::new("denied") else { return };
    for package in ["good-name", "Good_Name", "GOOD.NAME"] {
        refusal(
            supply.prepare("pypi", &[package]).env("PALISADE_PACKAGES_DENY", "good-*").end(),
            "package_denied",
        );
    }
    refusal(
        supply.prepare("pypi", &["needs-denied"]).env("PALISADE_PACKAGES_DENY", "good").end(),
        "package_denied",
    );
    refusal(
        supply.prepare("npm", &["needs-deniedjs"]).env("PALISADE_PACKAGES_DENY", "npm:goodjs").end(),
        "package_denied",
    );
    refusal(
        supply.prepare("pypi", &["good"]).env("PALISADE_PACKAGES_ALLOW", "pypi:other").end(),
        "package_denied",
    );
    assert_eq!(supply.requests("/files/good"), 0);
}

#[test]
fn a_denied_package_is_refused_inside_the_file_of_another_one() {
    let Some(supply) = Supply::new("bundled") else { return };
    let before = supply.layers();
    refusal(
        supply.prepare("npm", &["bundlejs"]).env("PALISADE_PACKAGES_DENY", "npm:hidden").end(),
        "package_denied",
    );
    assert_eq!(supply.layers(), before);
    // Also if the package does not say that it brings another one.
    refusal(
        supply.prepare("npm", &["smugglejs"]).env("PALISADE_PACKAGES_DENY", "npm:hidden").end(),
        "package_denied",
    );
    assert_eq!(supply.layers(), before);
    assert_eq!(versions(&supply.installed("npm", &["bundlejs"])), ["bundlejs 1.0.0", "hidden 1.0.0"]);
}

#[test]
fn names_that_look_like_another_one_are_refused_before_anything_is_asked() {
    let Some(supply) = Supply::new("look-alike") else { return };
    for name in ["g\u{43e}od", "\u{261}ood", "g\u{200b}ood", "\u{ff47}ood", "goo\u{64}\u{307}"] {
        let told = supply.refused("pypi", &[name], "bad_package");
        assert!(told.contains("U+"), "the character is named: {told}");
        supply.refused("npm", &[&format!("{name}js")], "bad_package");
    }
    assert_eq!(supply.requests("/"), 0);
}

#[test]
fn a_deny_rule_holds_for_layers_that_are_there() {
    let Some(supply) = Supply::new("deny-later") else { return };
    supply.installed("pypi", &["needs-denied"]);
    let run = || supply.palisade(&["run", "python", "--package", "needs-denied", "-c", "import good"]);
    assert!(run().end().status.success());
    let ended = run().env("PALISADE_PACKAGES_DENY", "good").end();
    assert!(!ended.status.success() && ended.stderr.contains("does not install `good`"), "{}", ended.stderr);
    refusal(
        supply.prepare("pypi", &["needs-denied"]).env("PALISADE_PACKAGES_DENY", "good").end(),
        "package_denied",
    );
}

#[test]
fn requirements_that_inject_anything_are_refused_before_anything_is_asked() {
    let Some(supply) = Supply::new("injection") else { return };
    for package in [
        "good --index-url http://127.0.0.1:9/",
        "-e .",
        "good @ file:///etc",
        "g\u{43e}od",
        "good\n-r x",
        "./good",
    ] {
        supply.refused("pypi", &[package], "bad_package");
    }
    for package in
        ["goodjs@http://127.0.0.1:9/x.tgz", "goodjs@npm:postinstall", "file:/etc", "../x", "--global"]
    {
        supply.refused("npm", &[package], "bad_package");
    }
    assert_eq!(supply.requests("/"), 0);
}

#[test]
fn packages_are_off_if_the_operator_says_so() {
    let Some(supply) = Supply::new("off") else { return };
    refusal(
        supply.prepare("pypi", &["good"]).env("PALISADE_PACKAGES_ENABLED", "false").end(),
        "packages_off",
    );
}

#[test]
fn a_registry_of_the_user_that_is_not_asked_is_replaced_by_no_other_one() {
    let Some(supply) = Supply::new("registries") else { return };
    let settings = supply.beside("npmrc");
    std::fs::write(&settings, "@scope:registry=http://127.0.0.1:9/\n").unwrap();
    // Without a mirror of npm in the configuration, the settings of the user count.
    let of_user = |package: &str| {
        let mirrors = supply.mirrors("").split(',').next().unwrap().to_owned();
        let prepare = supply.prepare("npm", &[package]).env("PALISADE_PACKAGES_MIRRORS", &mirrors);
        prepare.env("NPM_CONFIG_USERCONFIG", settings.to_str().unwrap())
    };
    good(of_user("goodjs").end());
    assert!(refusal(of_user("@scope/goodjs").end(), "packages_off").contains("packages.mirrors"));
    let unreadable = of_user("linkjs").env("npm_config_registry", "http://${NPM_HOST}/npm");
    // The public registry would be asked through a proxy that is not there.
    let unreadable = unreadable.env("HTTPS_PROXY", "http://127.0.0.1:9").end();
    assert!(refusal(unreadable, "packages_off").contains("packages.mirrors"));
    assert_eq!((supply.requests("/npm/@scope"), supply.requests("/npm/linkjs")), (0, 0));
    let named = supply.prepare("npm", &["@scope/goodjs"]);
    good(named.env("NPM_CONFIG_USERCONFIG", settings.to_str().unwrap()).end());
}
