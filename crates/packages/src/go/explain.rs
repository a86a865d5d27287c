//! Why the go command failed, from its words.

use engine::RunError;
use engine::packages::Ecosystem;

use crate::errors;
use crate::index::Withheld;
use crate::nearest;
use crate::requirement::Requirement;
use crate::session::{Note, Session};

/// How the go command says that a module differs from the checksum database, or from what it saw before.
const DIFFERS: [&str; 4] =
    ["SECURITY ERROR", "checksum mismatch", "invalid signature", "no verifiable signatures"];
/// The same of an archive, or a `go.mod` file, that cannot be used.
const UNUSABLE: [&str; 9] = [
    "zip: ",
    "unzip ",
    "has unexpected file",
    "malformed",
    "errors parsing",
    "parsing go.mod",
    "module source tree too large",
    "go.mod has ",
    "malformed file path",
];
/// The same of a version that is not there.
const NO_VERSION: [&str; 5] = [
    "no matching versions for query",
    "unknown revision",
    "invalid version",
    "does not contain package",
    "invalid: should be",
];
/// The same of a module that is not there.
const NO_MODULE: [&str; 4] =
    ["404 Not Found", "410 Gone", "cannot find module providing package", "unrecognized import path"];

/// The error of a build whose notes name no failure of the mirror and no rule.
pub(crate) fn by_words(session: &Session, requirements: &[Requirement], said: &str) -> RunError {
    let said = said.replace(&crate::broker::base(), "mirror");
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let named = || {
        let is_named = |wanted: &&Requirement| said.contains(wanted.name.as_str());
        requirements.iter().find(is_named).map_or("a module", |wanted| wanted.name.as_str())
    };
    let mut error = if has(&DIFFERS) {
        RunError::new("package_hash_mismatch", "a module differs from the checksum database")
            .remedy("choose another version, and tell the operator: the mirror is damaged or hostile")
    } else if let Some(error) = too_young(session) {
        error
    } else if has(&["GOTOOLCHAIN=local", "requires go >="]) {
        RunError::new("packages_conflict", "a module needs a newer Go than this server has")
            .remedy("ask for an older version of it, such as PATH@v1.2.3")
    } else if has(&["No space left", "disk quota"]) {
        return errors::disk("the builder's disk is full");
    } else if has(&["module declares its path as"]) {
        RunError::new("package_not_found", format!("`{}` is not the path of the module", named()))
            .remedy("ask for it by the path that the cause says it declares")
    } else if has(&UNUSABLE) {
        RunError::new("package_refused", "a file of a module cannot be used")
            .remedy("choose another version or another module")
    } else if is_unlisted(&said) {
        RunError::new("package_refused", "the checksum database does not have a module")
            .remedy(
                "ask for a public module; those of private repositories are in no public database, and the operator decides by \
                 packages.go_sumdb which database counts",
            )
    } else if has(&NO_MODULE)
        && !has(&["unknown revision", "invalid version: unknown"])
        && !is_versioned(requirements, &said)
    {
        not_found(named())
    } else if has(&NO_VERSION) || has(&NO_MODULE) {
        RunError::new("package_not_found", format!("no version of `{}` is what was asked for", named()))
            .remedy("ask for another version, or for the path without one")
    } else if has(&["requires", "ambiguous import", "conflict"]) {
        RunError::new("packages_conflict", "no versions of the modules fit together")
            .remedy("loosen or remove version limits, or name the modules in separate runs")
    } else {
        RunError::new("packages_failed", "the installation did not work")
            .remedy("try again; if it persists ask the operator to run `palisade doctor`")
    };
    error.cause = error.cause.or(Some(said));
    error
}

/// Whether the proxy has a module that the checksum database does not have: the go command tells the address of its request.
fn is_unlisted(said: &str) -> bool {
    let is_missing = |line: &str| line.contains("404 Not Found") || line.contains("410 Gone");
    said.lines().any(|line| line.contains("/sumdb/") && line.contains("/lookup/") && is_missing(line))
}

fn not_found(name: &str) -> RunError {
    let error = RunError::new("package_not_found", format!("there is no Go module `{name}`"));
    let near = nearest::names(Ecosystem::Go, name, &[]);
    match near.is_empty() {
        true => error.remedy(
            "check the path: it is that of the import line, such as `github.com/google/uuid`; modules of private repositories \
             need a mirror that has them",
        ),
        false => error.remedy(format!("did you mean {}?", near.join(", "))),
    }
}

/// Whether the path in an error is one for which a version was named.
fn is_versioned(requirements: &[Requirement], said: &str) -> bool {
    requirements.iter().any(|wanted| wanted.text.contains('@') && said.contains(&wanted.text))
}

/// The error of a version, asked for or needed by another module, that is too young.
fn too_young(session: &Session) -> Option<RunError> {
    session.notes().iter().find_map(|note| match note {
        Note::Withheld { name, version, why: why @ Withheld::TooYoung { .. } } => {
            Some(crate::explain::too_young(name, version, why))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_mirror::{NOTHING, session};

    #[test]
    fn a_module_that_the_checksum_database_does_not_have_is_told_as_such() {
        let folder = harness::TestFolder::new();
        let session = session(&folder, Ecosystem::Go, NOTHING, |_| {});
        let wanted = [crate::go::check("mod.example/unlisted@v1.0.0").unwrap()];
        let error = |said: &str| by_words(&session, &wanted, said);
        let base = crate::broker::base();
        for end in ["404 Not Found", "410 Gone"] {
            let unlisted = error(&format!(
                "go: downloading mod.example/unlisted v1.0.0\ngo: mod.example/unlisted@v1.0.0: \
                 verifying module: mod.example/unlisted@v1.0.0: \
                 reading {base}/sumdb/sums.example/lookup/mod.example/unlisted@v1.0.0: {end}"
            ));
            assert_eq!(unlisted.code, "package_refused");
            assert!(unlisted.remedy.unwrap().contains("packages.go_sumdb"));
        }
        let missing = error(&format!(
            "go: mod.example/unlisted: reading {base}/mod.example/unlisted/@v/list: 404 Not Found"
        ));
        assert_eq!(missing.code, "package_not_found");
    }
}
