//! Requests that are refused: nothing runs, the answer names the rule and what to do instead.

use std::fs;

use functional::{readable_file, run_plain};
use harness::{Build, Palisade, User, users};
use serde_json::Value;

const REFUSED: Option<i32> = Some(126);

/// Status and result of a run that must be refused, with the program given on standard input.
fn refused(user: User, code: &str, args: &[&str], program: &[u8]) {
    let ended =
        Palisade::new(Build::Real, user, &["run"]).args(args).args(&["--json", "-"]).stdin(program).end();
    assert_eq!(ended.status.code(), REFUSED, "{args:?}: {}{}", ended.stdout, ended.stderr);
    let result: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| {
        panic!("--json gave no JSON for {args:?} ({error}): {:?} {:?}", ended.stdout, ended.stderr)
    });
    assert_eq!(
        (&result["outcome"], &result["error"]["code"]),
        (&"refused".into(), &code.into()),
        "{result:#}"
    );
    assert!(result["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{result:#}");
    assert!(result["error"]["remedy"].as_str().is_some_and(|text| !text.is_empty()), "{result:#}");
    let ended = Palisade::new(Build::Real, user, &["run"]).args(args).args(&["-"]).stdin(program).end();
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (REFUSED, ""));
    assert!(ended.stderr.starts_with("palisade: refused: "), "{}", ended.stderr);
}

#[test]
fn an_unknown_language_is_refused_with_those_there_are() {
    for user in users() {
        for language in ["cobol", "", "../python", "pyton", &"x".repeat(1000)] {
            refused(user, "language_unknown", &[language], b"1");
        }
        let ended = run_plain(user, "cobol", "1", &[]);
        assert!(ended.stderr.contains("python") && ended.stderr.contains("bash"), "{}", ended.stderr);
        let near = run_plain(user, "javscript", "1", &[]);
        assert!(near.stderr.contains("did you mean javascript?"), "{}", near.stderr);
        let other_name = run_plain(user, "Py", "print(1)", &[]);
        assert_eq!(other_name.stdout, "1\n", "{}", other_name.stderr);
    }
}

#[test]
fn a_bad_variable_name_is_refused_with_the_rule() {
    for user in users() {
        for name in ["2x", "a-b", "a b", "", "ä", "__name__", "a;touch /tmp/x", "$x y", &"v".repeat(129)] {
            refused(user, "bad_variables", &["python", "--var", &format!("{name}=1")], b"1");
        }
    }
}

/// A keyword could be bound but never read.
#[test]
fn a_variable_named_like_a_keyword_is_refused() {
    for user in users() {
        for name in ["class", "None", "lambda"] {
            refused(user, "bad_variables", &["python", "--var", &format!("{name}=1")], b"1");
        }
    }
}

/// A shell's own constants cannot be bound: said before the run, not by a complaint of our driver in its output.
#[test]
fn a_variable_that_the_shell_keeps_for_itself_is_refused() {
    for user in users() {
        for name in ["UID", "PPID", "BASHOPTS", "EUID", "SHELLOPTS", "BASH_VERSINFO"] {
            refused(user, "bad_variables", &["bash", "--var", &format!("{name}=1")], b"echo ok");
        }
    }
}

#[test]
fn a_variable_that_is_no_json_is_refused() {
    for user in users() {
        for text in ["a", "a=x", "a=", "a={", "a=[1,]"] {
            let ended = run_plain(user, "python", "1", &["--var", text]);
            assert_eq!(ended.status.code(), REFUSED, "{text}: {}", ended.stderr);
            assert!(ended.stderr.contains("JSON"), "{}", ended.stderr);
        }
    }
}

/// Whoever asked for JSON reads JSON, whatever happened.
#[test]
fn a_refusal_of_the_command_line_is_json_too_when_asked_for() {
    for user in users() {
        refused(user, "bad_variables", &["python", "--var", "a=x"], b"1");
        refused(user, "bad_inputs", &["python", "--input", "/does/not/exist/file"], b"1");
        refused(user, "bad_code", &["python"], b"\xff\xfe");
    }
}

#[test]
fn variables_that_are_too_large_are_refused() {
    // One argument of a program is at most 128 kB; many make a megabyte.
    let values: Vec<String> =
        (0..11).map(|number| format!("v{number}=\"{}\"", "x".repeat(100_000))).collect();
    let mut args = vec!["python"];
    for value in &values {
        args.extend(["--var", value]);
    }
    for user in users() {
        refused(user, "bad_variables", &args, b"1");
    }
}

#[test]
fn a_bad_limit_is_refused() {
    for user in users() {
        for limit in ["--memory-mb", "--processes", "--disk-mb", "--open-files", "--output-kb", "--cpus"] {
            refused(user, "bad_limit", &["python", limit, "0"], b"1");
        }
        for cpus in ["--cpus=-1", "--cpus=nan", "--cpus=inf"] {
            refused(user, "bad_limit", &["python", cpus], b"1");
        }
    }
}

#[test]
fn a_limit_that_is_no_number_is_a_mistake_on_the_command_line() {
    for user in users() {
        for option in [
            "--timeout=0",
            "--timeout=-1s",
            "--timeout=soon",
            "--memory-mb=much",
            "--processes=1.5",
            "--nonsense",
        ] {
            let ended = run_plain(user, "python", "print(1)", &[option]);
            assert!(matches!(ended.status.code(), Some(2 | 126)), "{option}: {:?}", ended.status);
            assert!(ended.stdout.is_empty() && !ended.stderr.is_empty());
        }
    }
}

#[test]
fn a_program_over_a_megabyte_is_refused_and_one_of_a_megabyte_runs() {
    let largest = |bytes: usize| {
        let mut code = b"print('ran')\n#".to_vec();
        code.resize(bytes, b'x');
        code
    };
    for user in users() {
        refused(user, "bad_code", &["python"], &largest((1 << 20) + 1));
        refused(user, "bad_code", &["python"], &largest(8 << 20));
        let ended = Palisade::new(Build::Real, user, &["run", "python", "-"]).stdin(&largest(1 << 20)).end();
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "ran\n"), "{}", ended.stderr);
        let file = readable_file("large.py", &largest((1 << 20) + 1));
        let ended = Palisade::new(Build::Real, user, &["run", "python", file.to_str().unwrap()]).end();
        assert_eq!(ended.status.code(), REFUSED);
    }
}

#[test]
fn a_program_with_nul_is_refused() {
    for user in users() {
        for (language, code) in [("python", &b"print(1)\0"[..]), ("bash", b"echo 1\0\n"), ("python", b"\0")] {
            refused(user, "bad_code", &[language], code);
        }
    }
}

#[test]
fn an_input_outside_the_workspace_is_refused() {
    let file = readable_file("input.txt", b"content");
    for user in users() {
        for name in ["/etc/passwd", "../x", "a/../../x", "a/..", "./../x"] {
            refused(user, "bad_inputs", &["python", "--input", &format!("{}={name}", file.display())], b"1");
        }
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let file = readable_file("too-large.bin", &vec![7; 12 << 20]);
    let input = format!("{}=a", file.display());
    let second = format!("{}=b", file.display());
    for user in users() {
        refused(user, "inputs_do_not_fit", &["python", "--disk-mb", "4", "--input", &input], b"1");
        refused(user, "bad_inputs", &["python", "--input", &input, "--input", &second], b"1");
    }
}

#[test]
fn a_file_that_is_not_there_and_no_program_at_all_are_refused() {
    for user in users() {
        for args in [
            &["run", "python", "/does/not/exist/program.py"][..],
            &["run", "python"],
            &["run", "python", "/"],
        ] {
            let ended = Palisade::new(Build::Real, user, args).end();
            assert_eq!(
                (ended.status.code(), ended.stdout.as_str()),
                (REFUSED, ""),
                "{args:?}: {}",
                ended.stderr
            );
        }
    }
    let secret = harness::shared_folder().join("secret.py");
    fs::write(&secret, "print(1)").unwrap();
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for user in
        users().into_iter().filter(|user| *user == User::Ordinary && rustix::process::geteuid().is_root())
    {
        let ended = Palisade::new(Build::Real, user, &["run", "python", secret.to_str().unwrap()]).end();
        assert_eq!(ended.status.code(), REFUSED);
    }
}

#[test]
fn an_unknown_guarantee_cannot_be_waived() {
    for user in users() {
        let ended =
            Palisade::new(Build::Real, user, &["--allow-missing", "everything", "run", "python", "-c", "1"])
                .end();
        assert!(matches!(ended.status.code(), Some(125 | 126)), "{:?}", ended.status);
        assert!(ended.stderr.contains("files_hidden"), "the known ones are named: {}", ended.stderr);
    }
}
