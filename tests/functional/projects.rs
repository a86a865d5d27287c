//! Projects in Bash: the toolchains of the languages, and their tests without a network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use functional::{completed, own_folder, run_json};
use harness::{Build, Palisade, SEARCH_PATH, User, users};

/// Enough for a compiler on a busy machine.
const ROOMY: &[&str] =
    &["--timeout", "300s", "--memory-mb", "2048", "--disk-mb", "1024", "--processes", "256", "--cpus", "2"];

fn shell(user: User, code: &str) -> String {
    completed(user, "bash", code, ROOMY)
}

#[test]
fn the_shell_has_the_interpreters_of_the_languages() {
    for user in users() {
        let real = "import os, sys; print(os.path.realpath(sys.executable), sys.version, sorted(p for p in sys.path[1:] if os.path.isdir(p)))";
        let own = completed(user, "python", real, &[]);
        for name in ["python", "python3"] {
            assert_eq!(completed(user, "bash", &format!("{name} -c '{real}'"), &[]), own, "as {user:?}");
        }
        let through = format!(
            "import subprocess; print(subprocess.check_output(['python', '-c', '''{real}'''], text=True), end='')"
        );
        assert_eq!(completed(user, "python", &through, &[]), own);
        let own = completed(user, "javascript", "console.log(process.execPath, process.version)", &[]);
        let code = "node -p 'process.execPath + \" \" + process.version'";
        assert_eq!(completed(user, "bash", code, &[]), own);
    }
}

#[test]
fn nothing_else_of_a_home_is_shown() {
    for user in users() {
        let code = "for home in /root /home/*; do [ $home = /home/agent ] || find $home -maxdepth 3 \\( -name .ssh -o -name '.npmrc' \
                    -o -name 'credentials*' -o -name .gitconfig -o -name .bashrc -o -name .cache \\) 2>/dev/null; done; echo end";
        assert_eq!(completed(user, "bash", code, &[]), "end\n", "as {user:?}");
    }
}

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn toolchains_in_a_home_are_found_and_the_home_is_not_shown() {
    for user in users() {
        let home = own_folder(user, "home-of-toolchains");
        let toolchain = home.join(".rustup/toolchains/made-up");
        let rustc = format!(
            "#!/bin/sh\ncase \"$*\" in '--print sysroot') echo {} ;; *) echo 'rustc 1.90.0' ;; esac\n",
            toolchain.display()
        );
        program(&toolchain.join("bin/rustc"), &rustc);
        program(&toolchain.join("bin/cargo"), "#!/bin/sh\necho cargo of the home\n");
        program(&toolchain.join("lib/x"), "");
        program(&home.join(".cargo/credentials.toml"), "secret");
        let venv = home.join("venv");
        let made = Command::new("/usr/bin/python3")
            .args(["-m", "venv", "--without-pip"])
            .arg(&venv)
            .status()
            .unwrap();
        assert!(made.success());
        let bins = [venv.join("bin"), toolchain.join("bin")].map(|bin| bin.display().to_string());
        let path = format!("{}:{SEARCH_PATH}", bins.join(":"));
        let home = home.display().to_string();
        let code = format!(
            "cargo; rustc --version; python -c 'import sys; print(sys.prefix)'; ls -A {home} {home}/.rustup"
        );
        let ended = Palisade::new(Build::Real, user, &["run", "bash", "-c", &code])
            .env("PATH", &path)
            .env("HOME", &home)
            .end();
        let expected = format!(
            "cargo of the home\nrustc 1.90.0\n{home}/venv\n{home}:\n.rustup\nvenv\n\n{home}/.rustup:\ntoolchains\n"
        );
        assert_eq!(ended.stdout, expected, "as {user:?}: {}", ended.stderr);
    }
}

#[test]
fn git_commits_and_shows_history() {
    for user in users() {
        let code = "git init -q p && cd p && echo a > f && git add f && git commit -qm one && echo b >> f && git diff --stat \
                    && git log --format=%s && git config user.name me && git commit -qam two && git log -1 --format=%an";
        let out = shell(user, code);
        assert!(out.contains("1 file changed") && out.ends_with("one\nme\n"), "{out}");
    }
}

#[test]
fn tests_of_a_cargo_project_run_offline() {
    // The toolchain may be in the home of the user who runs the tests, where another user cannot look.
    for user in users().into_iter().take(1) {
        let code = "command -v cargo > /dev/null || { echo absent; exit; }; cargo init -q --lib --vcs none --name p . \
                    && cargo test --offline 2>&1 | grep 'test result' | head -1";
        let [path, home] = ["PATH", "HOME"].map(|name| std::env::var(name).unwrap_or_default());
        let ended = Palisade::new(Build::Real, user, &["run", "bash"])
            .args(ROOMY)
            .args(&["-c", code])
            .env("PATH", &format!("{path}:{SEARCH_PATH}"))
            .env("HOME", &home)
            .end();
        if ended.stdout == "absent\n" {
            eprintln!("SKIPPED as {user:?}: no Rust");
        } else {
            assert!(ended.stdout.starts_with("test result: ok. 1 passed"), "as {user:?}: {ended:?}");
        }
    }
}

#[test]
fn tests_of_a_go_module_run_offline() {
    // One user is enough: the standard library is compiled each time.
    let Some(user) = users().into_iter().next() else { return };
    let code = "command -v go > /dev/null || { echo absent; exit; }; go mod init example.com/p 2>/dev/null; \
                printf 'package p\\nimport \"testing\"\\nfunc TestA(t *testing.T) {}\\n' > a_test.go; go test ./... | cut -f 1,2";
    let out = shell(user, code);
    if out == "absent\n" {
        let result = run_json(user, "go", "package main\nfunc main() {}", &[]);
        assert!(
            result["error"]["code"].as_str().is_some_and(|code| code.starts_with("language_")),
            "{result:#}"
        );
    } else {
        assert_eq!(out, "ok  \texample.com/p\n", "as {user:?}");
    }
}

#[test]
fn tests_of_an_npm_package_and_a_makefile_run() {
    for user in users() {
        let code = "echo '{\"name\":\"p\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"node -p 6*7\"}}' > package.json; \
                    command -v npm > /dev/null || { echo 42; exit; }; npm test --silent";
        assert_eq!(shell(user, code), "42\n", "as {user:?}");
        let code = "printf 'all: f\\n\\tcat f\\nf:\\n\\techo made > f\\n' > Makefile; command -v make > /dev/null || { echo made; exit; }; make -s";
        assert_eq!(shell(user, code), "made\n", "as {user:?}");
    }
}
