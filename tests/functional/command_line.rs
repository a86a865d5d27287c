//! What palisade says about itself and how it answers: help, versions, JSON, colours, where state is kept.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use functional::{own_folder, run_plain};
use harness::{Build, Palisade, User, users};
use serde_json::Value;

const OWN_FAILURE: Option<i32> = Some(125);

fn said(user: User, args: &[&str]) -> String {
    let ended = Palisade::new(Build::Real, user, args).end();
    assert_eq!(ended.status.code(), Some(0), "{args:?}: {}", ended.stderr);
    ended.stdout
}

fn mentions(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is not mentioned in:\n{text}");
    }
}

#[test]
fn help_names_the_commands_and_shows_examples() {
    for user in users() {
        for args in [&["--help"][..], &["help"]] {
            mentions(
                &said(user, args),
                &[
                    "run",
                    "doctor",
                    "--state-dir",
                    "PALISADE_STATE_DIR",
                    "palisade run python -c",
                    "--version",
                ],
            );
        }
        assert!(said(user, &["--version"]).starts_with("palisade "));
    }
}

#[test]
fn help_of_run_names_every_option_and_exit_status() {
    let options = [
        "LANG",
        "FILE",
        "-c",
        "ARGS",
        "--json",
        "--input",
        "--output-dir",
        "--var",
        "--timeout",
        "--memory-mb",
        "--cpus",
        "--processes",
        "--disk-mb",
        "--open-files",
        "--output-kb",
        "128+N",
        "122",
        "123",
        "124",
        "125",
        "126",
        "130",
    ];
    for user in users() {
        mentions(&said(user, &["run", "--help"]), &options);
    }
}

#[test]
fn no_command_is_a_mistake_with_help() {
    for user in users() {
        for args in [&[][..], &["nonsense"], &["run"]] {
            let ended = Palisade::new(Build::Real, user, args).end();
            assert_eq!(ended.status.code(), Some(2), "{args:?}");
            assert!(ended.stdout.is_empty());
            mentions(&ended.stderr, &["Usage", "--help"]);
        }
    }
}

#[test]
fn doctor_says_what_is_enforced_and_which_languages_work() {
    for user in users() {
        mentions(&said(user, &["doctor"]), &["python", "bash", "memory_limited", "files_hidden"]);
        let found: Value = serde_json::from_str(&said(user, &["doctor", "--json"])).unwrap();
        assert!(found.is_object(), "{found}");
    }
}

#[test]
fn json_is_one_document_with_the_fields_of_the_contract() {
    let guarantees = [
        "files_hidden",
        "files_readonly",
        "disk_limited",
        "network_none",
        "processes_hidden",
        "processes_limited",
        "memory_limited",
        "cpu_limited",
        "time_limited",
        "output_limited",
        "privileges_none",
        "syscalls_filtered",
        "tree_killed",
        "identity_hidden",
    ];
    for user in users() {
        for code in ["print(1)\n7", "1/0", "print('x' * 9)\nimport os; os.kill(os.getpid(), 9)"] {
            let ended = run_plain(user, "python", code, &["--json"]);
            assert_eq!(ended.stderr, "", "nothing beside the document");
            let mut documents = serde_json::Deserializer::from_str(&ended.stdout).into_iter::<Value>();
            let result = documents.next().unwrap().unwrap();
            assert!(documents.next().is_none(), "one document");
            for field in ["outcome", "stdout", "stderr", "usage", "isolation", "clamped", "warnings"] {
                assert!(result.get(field).is_some(), "no {field}: {result:#}");
            }
            assert!(
                result.get("exit_code").is_some() != result.get("signal").is_some(),
                "one of them: {result:#}"
            );
            for field in ["wall_ms", "cpu_ms", "memory_peak_bytes", "processes_peak", "queued_ms", "start_ms"]
            {
                assert!(result["usage"][field].is_number(), "no {field}: {result:#}");
            }
            for guarantee in guarantees {
                assert!(
                    result["isolation"]["guarantees"][guarantee]["by"].is_array(),
                    "{guarantee}: {result:#}"
                );
            }
            let known = [
                "outcome",
                "exit_code",
                "signal",
                "stdout",
                "stderr",
                "truncated",
                "value",
                "displays",
                "error",
                "artifacts",
                "usage",
                "run_id",
                "sandbox_id",
                "isolation",
                "clamped",
                "warnings",
            ];
            let unknown: Vec<&String> =
                result.as_object().unwrap().keys().filter(|key| !known.contains(&key.as_str())).collect();
            assert!(unknown.is_empty(), "not in the contract: {unknown:?}");
        }
    }
}

#[test]
fn the_exit_status_is_the_same_with_json() {
    for user in users() {
        for (code, status) in [("exit 0", 0), ("exit 9", 9), ("kill -9 $$", 137)] {
            assert_eq!(run_plain(user, "bash", code, &["--json"]).status.code(), Some(status));
        }
        assert_eq!(
            run_plain(user, "bash", "sleep 9", &["--json", "--timeout", "200ms"]).status.code(),
            Some(124)
        );
    }
}

#[test]
fn files_that_came_out_are_named_in_the_json() {
    for user in users() {
        let folder = own_folder(user, "named");
        let result = harness::run_json(
            user,
            "bash",
            "echo hi > made.txt",
            &["--output-dir", folder.to_str().unwrap()],
        );
        assert_eq!(result["artifacts"][0]["path"], "made.txt", "{result:#}");
        assert_eq!(result["artifacts"][0]["size_bytes"], 3, "{result:#}");
    }
}

#[test]
fn there_are_no_colours_where_nobody_looks() {
    // `doctor` tries every language on the PATH: minutes where all are installed and the machine is busy.
    let languages = harness::shared_folder().join("bash-only");
    fs::create_dir_all(&languages).unwrap();
    std::os::unix::fs::symlink("/bin/bash", languages.join("bash")).unwrap();
    let bash_only = languages.to_string_lossy().into_owned();
    for user in users() {
        for args in [
            &["--help"][..],
            &["run", "--help"],
            &["doctor"],
            &["run", "cobol", "-c", "1"],
            &["nonsense"],
            &["run", "bash", "--timeout", "100ms", "-c", "sleep 9"],
        ] {
            let palisade = Palisade::new(Build::Real, user, args).env("TERM", "xterm-256color");
            let ended = palisade.env("PATH", &bash_only).end();
            assert!(!ended.stdout.contains('\x1b') && !ended.stderr.contains('\x1b'), "{args:?}: {ended:?}");
        }
    }
}

#[test]
fn a_state_directory_that_cannot_be_used_is_told() {
    let foreign = harness::shared_folder().join("foreign");
    fs::create_dir_all(&foreign).unwrap();
    for user in users() {
        let open_to_all = own_folder(user, "open");
        fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).unwrap();
        let file = own_folder(user, "file").join("file");
        fs::write(&file, "").unwrap();
        let mut bad = vec![open_to_all, file, "/proc/nothing".into(), "/dev/null".into()];
        if user == User::Ordinary && rustix::process::geteuid().is_root() {
            bad.push(foreign.clone());
        }
        for path in bad {
            let ended = Palisade::new(
                Build::Real,
                user,
                &["--state-dir", path.to_str().unwrap(), "run", "bash", "-c", "echo ran"],
            )
            .end();
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (OWN_FAILURE, ""), "{}", path.display());
            assert!(ended.stderr.contains("state directory"), "{}", ended.stderr);
        }
    }
}

#[test]
fn a_state_directory_without_write_permission_is_told() {
    for user in users().into_iter().filter(|user| *user == User::Ordinary) {
        let folder = own_folder(user, "read-only");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
        let ended = Palisade::new(
            Build::Real,
            user,
            &["--state-dir", folder.to_str().unwrap(), "run", "bash", "-c", "echo ran"],
        )
        .end();
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (OWN_FAILURE, ""));
        assert!(ended.stderr.contains("state directory"), "{}", ended.stderr);
    }
}

/// A file system that is read-only for root too, in a mount namespace of its own.
#[test]
fn a_state_directory_on_a_read_only_disk_is_told() {
    for user in users().into_iter().filter(|user| *user == User::Root) {
        let folder = own_folder(user, "read-only-disk");
        let script =
            "mount -t tmpfs -o ro none \"$1\" && exec \"$2\" --state-dir \"$1\" run bash -c 'echo ran'";
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .args([folder.as_path(), harness::binary(Build::Real)])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), OWN_FAILURE, "{stderr}");
        assert!(stderr.contains("state directory"), "{stderr}");
    }
}

#[test]
fn no_home_is_no_problem() {
    for user in users() {
        for home in ["", "/does/not/exist", "relative"] {
            let mut command =
                Palisade::new(Build::Real, user, &["run", "python", "-c", "print(6*7)"]).into_command();
            command.env_remove("PALISADE_STATE_DIR").env("TMPDIR", own_folder(user, "no-home"));
            if !home.is_empty() {
                command.env("HOME", home);
            }
            // Root without HOME has one in the password file; its state must not be touched by a test.
            if user == User::Root {
                command.env("XDG_STATE_HOME", own_folder(user, "xdg"));
            }
            let output = command.output().unwrap();
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                "42\n",
                "{home}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

#[test]
fn a_damaged_answer_in_the_state_directory_is_asked_for_again() {
    for user in users() {
        let state = own_folder(user, "damaged");
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        let run = || {
            Palisade::new(
                Build::Real,
                user,
                &["--state-dir", state.to_str().unwrap(), "run", "python", "-c", "print(6*7)"],
            )
            .end()
        };
        assert_eq!(run().stdout, "42\n");
        for damage in [
            &b""[..],
            b"{",
            b"\xff\xff",
            b"{\"version\":\"3\",\"executable\":\"/does/not/exist\",\"binds\":[]}",
        ] {
            for entry in fs::read_dir(state.join("runtimes")).unwrap().flatten() {
                if entry.path().extension().is_some_and(|end| end == "json") {
                    fs::write(entry.path(), damage).unwrap();
                }
            }
            let ended = run();
            assert_eq!(ended.stdout, "42\n", "{}", ended.stderr);
        }
    }
}

#[test]
fn an_interpreter_that_is_missing_or_broken_is_told() {
    for user in users() {
        let bin = own_folder(user, "bin");
        // The harness looks for it on the same PATH.
        std::os::unix::fs::symlink("/usr/bin/setpriv", bin.join("setpriv")).unwrap();
        let run = || {
            let ended = Palisade::new(Build::Real, user, &["run", "python", "-c", "1"])
                .env("PATH", bin.to_str().unwrap())
                .end();
            assert_eq!(ended.status.code(), Some(126), "{}", ended.stderr);
            ended.stderr
        };
        mentions(&run(), &["not installed", "python3", "palisade doctor"]);
        let fake = bin.join("python3");
        fs::write(&fake, "#!/bin/sh\necho nonsense\n").unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
        mentions(&run(), &["does not work"]);
        fs::write(&fake, "#!/bin/sh\necho broken library >&2; exit 3\n").unwrap();
        mentions(&run(), &["does not work", "broken library"]);
    }
}
