//! `palisade check` says what is wrong with a program without running it.

use functional::languages::languages;
use functional::readable_file;
use harness::{Build, Palisade, User, users};
use serde_json::{Value, json};

fn check(user: User, language: &str, code: &str) -> Value {
    let ended = Palisade::new(Build::Real, user, &["check", language, "--json", "-c", code]).end();
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", ended.stdout, ended.stderr))
}

/// Whether it is installed; says loudly if not.
fn is_installed(user: User, language: &str) -> bool {
    let found = languages().into_iter().find(|it| it.name == language).unwrap();
    if !found.is_installed(user) {
        eprintln!("SKIPPED: {language} is not installed");
    }
    found.is_installed(user)
}

#[test]
fn sound_programs_are_valid_in_every_language() {
    for user in users() {
        for (language, code) in [
            ("python", "import os, json\nasync def f(): await g()\nawait f()"),
            ("bash", "if true; then echo ok; fi"),
            (
                "javascript",
                "import fs from 'node:fs'; const x = await import('fs/promises'); require('path')",
            ),
            ("javascript", "return 5; with (a) {}"),
            ("typescript", "enum E { A }\nconst x: E = E.A; import type { T } from 'nope'"),
            ("ruby", "require 'json'\nputs given.map { |x| x * 2 }\n__END__\n((("),
            ("php", "<?php\nnamespace A;\nuse B\\C;\nfunction f(int|string $x): never { exit(1); }"),
            ("perl", "use strict;\nuse List::Util qw(sum);\nprint sum(@ARGV), <DATA>;\n__END__\n((("),
            ("lua", "local x <const> = 5\ngoto done\n::done::\nprint(x // 2)"),
            ("r", "library(stats)\nx <- c(1, 2) |> sum()\nutils::head(x)"),
            ("tcl", "proc f {a} {\n  return [expr {$a + 1}]\n}\nputs [f 1]"),
        ] {
            if !is_installed(user, language) {
                continue;
            }
            let found = check(user, language, code);
            assert_eq!(
                (&found["valid"], &found["missing_imports"]),
                (&json!(true), &json!([])),
                "{language} {found}"
            );
        }
    }
}

#[test]
fn mistakes_are_told_with_their_places() {
    for user in users() {
        for (language, code, line, column) in [
            ("python", "x = 1\nif x\n  pass", json!(2), json!(5)),
            ("bash", "echo a\nif true; then\necho b)\n", json!(3), Value::Null),
            ("javascript", "let a = 1;\n  let b = ;", json!(2), json!(11)),
            ("javascript", "let a;\nlet a;", json!(2), json!(5)),
            ("typescript", "const x: number = ;", json!(1), json!(19)),
            ("typescript", "class A { @d m() {} }", json!(1), json!(11)),
            ("ruby", "puts 1\nx = = 2\n", json!(2), Value::Null),
            ("php", "<?php\necho 1;\n$x = ;", json!(3), Value::Null),
            ("php", "<?php\nfunction f() {}\nfunction f() {}", json!(3), Value::Null),
            ("perl", "use strict;\nmy $x = ;", json!(2), Value::Null),
            ("lua", "print(1)\nx = = 2", json!(2), Value::Null),
            ("r", "x <- 1\ny <- (2 3)", json!(2), json!(9)),
            ("tcl", "puts 1\nproc f {} {\n", json!(2), Value::Null),
        ] {
            if !is_installed(user, language) {
                continue;
            }
            let found = check(user, language, code);
            let error = &found["errors"][0];
            assert_eq!(found["valid"], false, "{language}");
            assert_eq!((&error["line"], &error["column"]), (&line, &column), "{language} {found}");
            assert!(!error["message"].as_str().unwrap().is_empty());
        }
    }
}

#[test]
fn modules_that_are_not_there_are_named() {
    for user in users() {
        for (language, code, module, line) in [
            ("python", "import os\nimport nosuch.part\n", "nosuch", 2),
            ("python", "def f():\n  from nosuch2 import x\n", "nosuch2", 2),
            ("javascript", "const x = 1\nimport pad from 'left-pad'", "left-pad", 2),
            ("javascript", "require('@scope/pkg/sub')", "@scope/pkg", 1),
            ("typescript", "\n\nawait import('nosuch/x')", "nosuch", 3),
            ("perl", "use strict;\nuse No::Such;\n", "No::Such", 2),
            ("r", "x <- 1\nlibrary(nosuch)", "nosuch", 2),
        ] {
            if !is_installed(user, language) {
                continue;
            }
            let found = check(user, language, code);
            let missing = &found["missing_imports"][0];
            assert_eq!(
                (&missing["module"], &missing["line"]),
                (&json!(module), &json!(line)),
                "{language} {found}"
            );
            assert!(!missing["remedy"].as_str().unwrap().is_empty());
            assert_eq!(found["valid"], true);
        }
    }
}

#[test]
fn an_import_whose_absence_is_expected_is_a_note() {
    let user = users().pop().unwrap();
    let found = check(user, "python", "try:\n  import nosuch\nexcept ImportError:\n  nosuch = None");
    assert_eq!(found["missing_imports"], json!([]));
    assert!(found["notes"][0].as_str().unwrap().contains("nosuch"), "{found}");
}

#[test]
fn nothing_is_run() {
    let user = users().pop().unwrap();
    for (language, code) in [
        ("python", "while True: pass"),
        ("bash", "while :; do :; done"),
        ("javascript", "for (;;) {}"),
        ("typescript", "for (;;) {}"),
        ("python", "import sys; sys.exit(9)"),
        ("bash", "exit 9"),
        ("ruby", "BEGIN { exit 9 }\nloop {}"),
        ("php", "<?php while (true) {}"),
        ("perl", "1 while 1;"),
        ("lua", "while true do end"),
        ("r", "repeat {}"),
        ("tcl", "while 1 {}"),
    ] {
        if !is_installed(user, language) {
            continue;
        }
        assert_eq!(check(user, language, code)["valid"], true, "{language}");
    }
}

#[test]
fn deep_nesting_is_an_answer_and_not_a_crash() {
    for user in users() {
        for language in ["python", "javascript", "typescript"] {
            let deep = readable_file(&format!("validate-deep-{language}"), "[".repeat(100_000).as_bytes());
            let args = ["check", language, "--json", deep.to_str().unwrap()];
            let ended = Palisade::new(Build::Real, user, &args).end();
            let found: Value =
                serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
            assert_eq!(found["valid"], false, "{language} {found}");
        }
    }
}

#[test]
fn the_status_and_text_suit_people() {
    let user = users().pop().unwrap();
    let run = |args: &[&str]| Palisade::new(Build::Real, user, &["check"]).args(args).stdin(b"x = (").end();
    let ended = run(&["python", "-"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stdout.contains("1:5: SyntaxError"), "{}", ended.stdout);
    assert_eq!(run(&["bash", "-c", "true"]).status.code(), Some(0));
    assert_eq!(run(&["cobol", "-c", "x"]).status.code(), Some(126));
    assert_eq!(run(&["python", "/nope/nope"]).status.code(), Some(125));
}
