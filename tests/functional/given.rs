//! Environment variables that a run is given: the program and its child processes have them, warm and cold; the next run
//! does not; nothing of them is kept.

use std::fs::{self, File};
use std::path::Path;

use functional::serving::Server;
use functional::{files_beneath, marker, outcome, run_json};
use harness::mcp::Client;
use harness::warm::Warm;
use harness::{Build, Palisade, TestFolder, User, state_dir, users};
use serde_json::{Value, json};

/// For each language, a program that prints GIVEN (or `unset`) as it sees it and as a child process sees it.
const SHOW: [(&str, &str); 11] = [
    (
        "python",
        "import os, subprocess\nprint(os.environ.get('GIVEN', 'unset'), flush=True)\nsubprocess.run(['sh', '-c', 'echo ${GIVEN-unset}'])",
    ),
    ("bash", "echo ${GIVEN-unset}; sh -c 'echo ${GIVEN-unset}'"),
    (
        "javascript",
        "console.log(process.env.GIVEN ?? 'unset'); process.stdout.write(require('child_process').execSync('echo ${GIVEN-unset}'))",
    ),
    (
        "typescript",
        "const x: string = process.env.GIVEN ?? 'unset'; console.log(x); process.stdout.write(require('child_process').execSync('echo ${GIVEN-unset}'))",
    ),
    ("ruby", "puts ENV.fetch('GIVEN', 'unset'); system('echo ${GIVEN-unset}')"),
    ("perl", "print $ENV{GIVEN} // 'unset', \"\\n\"; system('echo ${GIVEN-unset}');"),
    (
        "php",
        "<?php $x = getenv('GIVEN'); echo $x === false ? 'unset' : $x, \"\\n\"; system('echo ${GIVEN-unset}');",
    ),
    (
        "tcl",
        "puts [expr {[info exists env(GIVEN)] ? $env(GIVEN) : {unset}}]\nputs [exec sh -c {echo ${GIVEN-unset}}]",
    ),
    ("r", "cat(Sys.getenv('GIVEN', 'unset'), '\\n', sep = '')\nsystem('echo ${GIVEN-unset}')"),
    (
        "awk",
        "BEGIN { print \"GIVEN\" in ENVIRON ? ENVIRON[\"GIVEN\"] : \"unset\"; system(\"echo ${GIVEN-unset}\") }",
    ),
    ("lua", "print(os.getenv('GIVEN') or 'unset'); os.execute('echo ${GIVEN-unset}')"),
];

fn here(offered: &Value) -> impl Iterator<Item = (&'static str, &'static str)> {
    let offered = offered["languages"].to_string();
    SHOW.into_iter().filter(move |(language, _)| offered.contains(&format!("\"{language}\"")))
}

fn stdout(result: &Value) -> &str {
    assert_eq!(outcome(result), "completed", "{result:#}");
    result["stdout"].as_str().unwrap_or_default()
}

#[test]
fn a_warm_interpreter_of_every_language_has_what_its_run_was_given() {
    for user in users() {
        let warm = Warm::start(user);
        for (language, code) in here(&warm.server.call("get_capabilities", json!({}))) {
            let plain = json!({"language": language, "code": code});
            let given = json!({"language": language, "code": code, "variables": {"$GIVEN": "a b"}});
            warm.warm_up(language, code);
            // Lua cannot change its environment: its interpreter starts with it.
            let result = if language == "lua" { warm.run(given) } else { warm.leased(given) };
            assert_eq!(stdout(&result), "a b\na b\n", "{language}");
            assert_eq!(stdout(&warm.leased(plain)), "unset\nunset\n", "{language}");
            // A name that is read only at start means a start, with everything in it.
            let variables = json!({"$GIVEN": "a b", "$LD_BIND_NOW": "1"});
            let before = warm.hits();
            let result = warm.run(json!({"language": language, "code": code, "variables": variables}));
            assert_eq!((stdout(&result), warm.hits()), ("a b\na b\n", before), "{language}");
        }
    }
}

#[test]
fn names_that_are_read_at_start_take_effect() {
    let programs = [
        ("python", "$PYTHONHASHSEED=0", "import sys; print(sys.flags.hash_randomization)", "0\n"),
        ("python", "$TZ=Asia/Tokyo", "import time; print(time.timezone)", "-32400\n"),
        ("python", "$LC_ALL=C", "import os; print(os.environ['LC_ALL'])", "C\n"),
        ("javascript", "$NODE_OPTIONS=--stack-trace-limit=3", "console.log(Error.stackTraceLimit)", "3\n"),
        ("perl", "$PERL5LIB=/nowhere", "print $INC[0], \"\\n\"", "/nowhere\n"),
        (
            "bash",
            "$LD_LIBRARY_PATH=/nowhere",
            "tr '\\0' '\\n' < /proc/$$/environ | grep LD_",
            "LD_LIBRARY_PATH=/nowhere\n",
        ),
        ("bash", "$SHELLOPTS=noglob", "echo *", "*\n"),
    ];
    for user in users() {
        for (language, variable, code, expected) in programs {
            let (name, value) = variable.split_once('=').unwrap();
            let result = run_json(user, language, code, &["--var", &format!("{name}=\"{value}\"")]);
            assert_eq!(stdout(&result), expected, "{variable}: {result:#}");
        }
    }
}

#[test]
fn a_persistent_sandbox_forgets_what_a_run_was_given() {
    for user in users() {
        let client = Client::new(user);
        let sandbox = client.open(json!({}));
        let given = |more: Value| {
            let mut arguments = json!({"variables": {"$GIVEN": "a b", "$HOME": "/tmp"}});
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            arguments
        };
        let offered = client.call("get_capabilities", json!({}));
        let live = ["python", "javascript", "typescript", "bash"];
        for (language, show) in here(&offered).filter(|(language, _)| live.contains(language)) {
            let (endless, fails, leaves, home) = match language {
                "python" => {
                    ("while True: pass", "1/0", "import sys; sys.exit(3)", "print(os.environ['HOME'])")
                }
                "bash" => ("while :; do :; done", "false", "exit 3", "echo $HOME"),
                _ => ("for (;;) {}", "throw 1", "process.exit(3)", "console.log(process.env.HOME)"),
            };
            let run = |code: &str, more: Value| client.run_with(&sandbox, language, code, more);
            assert_eq!(stdout(&run(show, given(json!({})))), "a b\na b\n");
            for (code, expected) in [(endless, "timed_out"), (fails, "failed"), (leaves, "failed")] {
                let timeout_ms = if code == endless { 500 } else { 20_000 };
                let result = run(code, given(json!({ "timeout_ms": timeout_ms })));
                assert_eq!(outcome(&result), expected, "{language}: {result:#}");
                assert_eq!(stdout(&run(show, json!({}))), "unset\nunset\n", "{language} after {code}");
                assert_eq!(stdout(&run(home, json!({}))), "/home/agent\n", "{language} after {code}");
            }
            // Refused, and the interpreter stays.
            let result = run("1", json!({"variables": {"$LD_PRELOAD": "x"}}));
            assert_eq!(
                (outcome(&result), result["error"]["code"].as_str()),
                ("refused", Some("bad_variables"))
            );
            assert!(result["error"]["remedy"].as_str().is_some_and(|text| text.contains("sandbox_id")));
        }
        if offered["languages"].to_string().contains("\"perl\"") {
            let more = json!({"variables": {"$GIVEN": "x", "$PERL5LIB": "/nowhere"}});
            let result = client.run_with(&sandbox, "perl", "print \"$ENV{GIVEN} $INC[0]\\n\"", more);
            assert_eq!(stdout(&result), "x /nowhere\n");
        }
        assert!(client.end().success());
    }
}

fn has(file: &Path, word: &str) -> bool {
    // A socket or a file of another kind has no content.
    fs::read(file).is_ok_and(|content| content.windows(word.len()).any(|part| part == word.as_bytes()))
}

#[test]
fn nothing_of_a_value_is_kept_in_the_state_directory_or_in_the_log() {
    for user in users() {
        let word = marker("given");
        let folder = TestFolder::new();
        let log = folder.path().join("log");
        let palisade = Palisade::new(Build::Real, user, &["mcp"]).env("PALISADE_LOG", "trace");
        let client = Client::start_logging(palisade, File::create(&log).unwrap());
        let variables = json!({"$GIVEN": word, "$LD_GIVEN": word});
        let count = |code: &str, variables: &Value| {
            let arguments = json!({"language": "python", "code": code, "variables": variables});
            assert_eq!(stdout(&client.call("run", arguments)).trim(), word.len().to_string());
        };
        let code = "import os; print(len(os.environ['GIVEN']))";
        for _ in 0..3 {
            count(code, &json!({"$GIVEN": word}));
            count(code, &variables);
        }
        let sandbox = client.open(json!({}));
        let result = client.run_with(&sandbox, "python", code, json!({"variables": {"$GIVEN": word}}));
        assert_eq!(stdout(&result).trim(), word.len().to_string());
        client.run(&sandbox, "python", "open('here', 'w').write(os.environ.get('GIVEN', 'unset'))");
        let state = state_dir(user);
        let files = files_beneath(&state);
        assert!(files.iter().any(|file| has(&state.join(file), "unset")), "{files:?}");
        let with: Vec<_> = files.iter().filter(|file| has(&state.join(file), &word)).collect();
        assert!(with.is_empty() && !has(&log, &word), "{with:?}");
        assert!(client.end().success());
    }
}

#[test]
fn a_compiler_gets_nothing_and_its_product_serves_every_environment() {
    let code = "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(getenv(\"GIVEN\")); }";
    for user in users() {
        for (number, value) in ["one", "two"].into_iter().enumerate() {
            let options = [
                "--env",
                &format!("GIVEN={value}"),
                "--env",
                "CPATH=/nowhere",
                "--env",
                "GCC_EXEC_PREFIX=/x/",
            ];
            let result = run_json(user, "c", code, &options);
            if result["error"]["code"] == "language_missing" {
                return;
            }
            assert_eq!(stdout(&result).trim(), value);
            assert_eq!(result["compile"]["cached"], number > 0, "{result:#}");
        }
    }
}

#[test]
fn bad_names_and_values_are_refused_with_a_remedy_and_without_the_value() {
    let long = format!("${}", "x".repeat(129));
    let bad = [
        ("$", json!("hidden")),
        ("$1A", json!("hidden")),
        ("$A-B", json!("hidden")),
        ("$A B", json!("hidden")),
        ("$$A", json!("hidden")),
        ("$PALISADE_STATE_DIR", json!("hidden")),
        (&long, json!("hidden")),
        ("$A", json!(null)),
        ("$A", json!(["hidden"])),
        ("$A", json!({"hidden": 1})),
        ("$A", json!("hidden\0")),
        ("$A", json!("hidden".repeat(20_000))),
    ];
    let client = Client::new(User::Root);
    for (name, value) in bad {
        let variables = json!({ name: value });
        let result = client.call("run", json!({"language": "python", "code": "1", "variables": variables}));
        assert_eq!((outcome(&result), result["error"]["code"].as_str()), ("refused", Some("bad_variables")));
        assert!(result["error"]["remedy"].as_str().is_some_and(|text| !text.is_empty()), "{result:#}");
        assert!(!result.to_string().contains("hidden"), "{result:#}");
    }
    let awk = json!({"language": "awk", "code": "BEGIN {}", "variables": {"$POSIXLY_CORRECT": "1"}});
    assert_eq!(client.call("run", awk)["error"]["code"], "bad_variables");
    assert!(client.end().success());
}

#[test]
fn the_command_line_sets_the_environment() {
    for user in users() {
        let options = ["--env", "GIVEN=a=b c", "--env", "EMPTY="];
        let result = run_json(user, "bash", "echo \"$GIVEN ${EMPTY-unset}\"; printenv GIVEN", &options);
        assert_eq!(stdout(&result), "a=b c \na=b c\n");
        let result = run_json(user, "bash", "echo", &["--env", "GIVEN"]);
        assert_eq!(result["error"]["code"], "bad_variables");
        let server = Server::start(user, "given");
        let id = server.open();
        let exec = ["sandbox", "exec", "--env", "GIVEN=a=b c", &id, "bash", "-c", "printenv GIVEN"];
        assert_eq!(server.said_by(&exec), "a=b c");
        let exec = ["sandbox", "exec", &id, "bash", "-c", "echo ${GIVEN-unset}"];
        assert_eq!(server.said_by(&exec), "unset");
    }
}
