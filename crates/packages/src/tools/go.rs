//! The host's go command, inside the builder. It chooses versions, compares modules with the checksum database and unpacks
//! them. It executes nothing of a module: only compiling does that, and never here.

use engine::packages::PackageVersion;

use super::{Job, TMP_MARK, variables};
use crate::broker;
use crate::requirement::Requirement;

const PRODUCT: &str = "product";
const INSTALL: &str = include_str!("install.sh");

/// Resolves and fetches.
pub(crate) fn install(
    go: &str,
    requirements: &[Requirement],
    present: &[PackageVersion],
    database: &str,
) -> Job {
    let mut argv: Vec<String> = ["/bin/sh", "-c", INSTALL, "go", go].map(str::to_owned).to_vec();
    argv.extend(requirements.iter().map(|wanted| query(wanted, present)));
    let lines: String = present.iter().map(|one| format!("{}@{}\n", one.name, one.version)).collect();
    let files = vec![
        ("present".to_owned(), lines.into_bytes()),
        ("program/.made".to_owned(), Vec::new()),
        (format!("{PRODUCT}/mod/cache/lock"), Vec::new()),
        (TMP_MARK.to_owned(), Vec::new()),
    ];
    let proxy = broker::base();
    let env = variables(&[
        ("GOPROXY", &proxy),
        ("GOSUMDB", database),
        // Nothing is exempt, whatever the host's own settings are.
        ("GONOSUMDB", ""),
        ("GONOPROXY", ""),
        ("GOPRIVATE", ""),
        ("GOINSECURE", ""),
        ("GOVCS", "*:off"),
        ("GO111MODULE", "on"),
        ("GOFLAGS", "-mod=mod -modcacherw"),
        ("GOTOOLCHAIN", "local"),
        ("GOWORK", "off"),
        ("CGO_ENABLED", "0"),
        ("GOMODCACHE", "/workspace/product/mod"),
        ("GOCACHE", "/workspace/cache"),
        ("TMPDIR", "/workspace/tmp"),
        ("NO_PROXY", "*"),
    ]);
    Job { language: "go", argv, env, files, layers: Vec::new(), in_use: None, product: PRODUCT }
}

/// A requirement without a version keeps the one that a sandbox has.
fn query(wanted: &Requirement, present: &[PackageVersion]) -> String {
    let covers = |module: &str| {
        wanted.name.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let module = present.iter().filter(|one| covers(&one.name)).max_by_key(|one| one.name.len());
    match module {
        Some(module) if !wanted.text.contains('@') => format!("{}@{}", wanted.name, module.version),
        _ => wanted.text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_there_is_kept_unless_another_one_is_asked_for() {
        let one =
            |name: &str, version: &str| PackageVersion { name: name.to_owned(), version: version.to_owned() };
        let present = [
            one("golang.org/x/text", "v0.3.0"),
            one("example.org/x", "v1.0.0"),
            one("example.org/x/y", "v2.0.0"),
        ];
        for (text, wanted) in [
            ("golang.org/x/text", "golang.org/x/text@v0.3.0"),
            ("golang.org/x/text/cases", "golang.org/x/text/cases@v0.3.0"),
            ("golang.org/x/text@v0.4.0", "golang.org/x/text@v0.4.0"),
            ("golang.org/x/textile", "golang.org/x/textile"),
            ("example.org/x/y/z", "example.org/x/y/z@v2.0.0"),
        ] {
            assert_eq!(query(&crate::go::check(text).unwrap(), &present), wanted);
        }
    }

    /// Takes the place of the go command: notes its arguments, and lists packages whose names are chosen to be options.
    const FAKE: &str = r#"#!/bin/sh
{ for one; do echo "$one"; done; echo; } >> WORKSPACE/calls
case "$*" in
"list -e -find "*) printf 'mod.example/a\0\nmod.example/b -toolexec=evil\0\n-exec=evil\0\nmod.example/c\n-d\0\nmod.example/x/internal/y\0\n' ;;
"list -e -deps "*) : ;;
"mod init program") : > go.mod ;;
esac
"#;

    #[test]
    fn names_of_folders_do_not_become_options_of_the_go_command() {
        let folder = harness::TestFolder::new();
        let workspace = folder.path().to_str().unwrap();
        for name in ["program", "product/mod/cache"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        folder.file("present", "");
        folder.file("fake", FAKE.replace("WORKSPACE", workspace));
        // Written by a process of its own: a file that this one has open for writing could not be executed.
        let script = format!("cp fake go; chmod 755 go; {}", INSTALL.replace("/workspace", workspace));
        let ended = std::process::Command::new("/bin/sh")
            .args([
                "-c",
                &script,
                "go",
                &format!("{workspace}/go"),
                "mod.example/a@v1.0.0",
                "mod.example/b/c",
            ])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let calls = std::fs::read_to_string(folder.path().join("calls")).unwrap();
        let calls: Vec<Vec<&str>> = calls.split("\n\n").map(|call| call.lines().collect()).collect();
        assert_eq!(calls[1], ["get", "--", "mod.example/a@v1.0.0", "mod.example/b/c"]);
        assert_eq!(calls[2][5..], ["--", "mod.example/a/...", "mod.example/b/c/..."]);
        let named = ["mod.example/a", "mod.example/b -toolexec=evil", "-exec=evil", "mod.example/c-d"];
        assert_eq!(calls[3], [&["list", "-e", "-deps", "--"], &named[..]].concat());
    }
}
