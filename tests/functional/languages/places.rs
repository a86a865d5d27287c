//! What a program finds in the places that it may write to: only what its caller or itself put there. Whatever Palisade
//! needs to run a program (drivers, prepared code, standard input, products of a compiler) is elsewhere or gone. One
//! file is there on purpose: the program itself, where an interpreter reads it from the workspace.

use functional::languages::{Language, Run, languages};
use harness::mcp::Client;
use harness::{Build, Palisade, User, users};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

/// Lists the workspace, the home and the folder of temporary files.
const LIST: &str = r#"find . $HOME /tmp -mindepth 1"#;

/// How each language executes a shell command. `LIST` stands for the command.
const PROGRAMS: [(&str, &str); 17] = [
    ("awk", r#"BEGIN { system("LIST") }"#),
    ("bash", "LIST"),
    ("c", "#include <stdlib.h>\nint main(void) { return system(\"LIST\"); }"),
    ("cpp", "#include <cstdlib>\nint main() { return std::system(\"LIST\"); }"),
    (
        "csharp",
        r#"using System.Diagnostics; class P { static void Main() {
            var how = new ProcessStartInfo("/bin/sh", "-c \"LIST\"") { UseShellExecute = false };
            Process.Start(how).WaitForExit(); } }"#,
    ),
    (
        "go",
        "package main\nimport (\"fmt\"; \"os/exec\")\nfunc main() { out, _ := exec.Command(\"sh\", \"-c\", \"LIST\").Output(); fmt.Print(string(out)) }",
    ),
    (
        "java",
        r#"class P { public static void main(String[] a) throws Exception {
            new ProcessBuilder("sh", "-c", "LIST").inheritIO().start().waitFor(); } }"#,
    ),
    ("javascript", r#"process.stdout.write(require("child_process").execSync("LIST"))"#),
    ("lua", r#"os.execute("LIST")"#),
    ("perl", r#"system('LIST');"#),
    ("php", r#"<?php passthru('LIST');"#),
    ("python", r#"import os; os.system("LIST")"#),
    ("r", r#"system("LIST")"#),
    ("ruby", r#"system("LIST")"#),
    ("rust", r#"fn main() { std::process::Command::new("sh").args(["-c", "LIST"]).status().unwrap(); }"#),
    ("tcl", "puts [exec sh -c {LIST}]"),
    ("typescript", r#"process.stdout.write(require("child_process").execSync("LIST") as Buffer)"#),
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test("every_language_lists_its_places", every_language_is_here)];
    for language in languages() {
        let user = users()[0];
        trials.push(language.trial("finds_nothing_but_its_own_files", user, finds_nothing_but_its_own_files));
        trials.push(language.trial(
            "shows_no_file_of_ours_when_it_fails",
            user,
            shows_no_file_of_ours_when_it_fails,
        ));
    }
    trials
}

fn every_language_is_here() -> Result<(), Failed> {
    let without = |language: &Language| !PROGRAMS.iter().any(|(name, _)| *name == language.name);
    match languages().into_iter().find(without) {
        Some(language) => Err(format!("no program for {}", language.name).into()),
        None => Ok(()),
    }
}

fn finds_nothing_but_its_own_files(language: &Language, user: User) -> Result<(), Failed> {
    let (_, program) = PROGRAMS.into_iter().find(|(name, _)| *name == language.name).ok_or("no program")?;
    let code = program.replace("LIST", LIST);
    let itself = format!("./{}", language.source);
    let fresh = if language.has_compiler { Vec::new() } else { vec![itself.clone()] };
    let lasting = if language.is_live { Vec::new() } else { fresh.clone() };

    let result = Run { code: code.clone(), ..Run::default() }.result(user, &language.name);
    expect("fresh", &result, &fresh)?;

    let client = client(language, user);
    let sandbox = client.open(json!({}));
    // The second run finds nothing of the first one.
    for number in 1..=2 {
        let more = json!({"stdin": "words", "timeout_ms": 60_000, "limits": {"wait_ms": 60_000}});
        let result = client.run_with(&sandbox, &language.name, &code, more);
        expect(&format!("run {number} of a persistent sandbox"), &result, &lasting)?;
        if result["artifacts"] != json!([]) {
            return Err(format!("artifacts: {result:#}").into());
        }
    }
    let left = client.call("list_files", json!({"sandbox_id": sandbox}));
    if left["entries"] != json!([]) {
        return Err(format!("left in the workspace: {left:#}").into());
    }
    // A file of the caller that has the usual name of a program stays, and stays as it is.
    let own = json!({"sandbox_id": sandbox, "path": language.source, "text": "the caller's"});
    client.call("write_file", own);
    let result = client.run(&sandbox, &language.name, &code);
    let beside = language.source.replacen("main.", "main-2.", 1).replacen("Main.", "Main-2.", 1);
    let mut lasting: Vec<String> = lasting.iter().map(|_| format!("./{beside}")).collect();
    lasting.push(itself);
    expect("beside a file of the caller", &result, &lasting)?;
    let kept = client.call("read_file", json!({"sandbox_id": sandbox, "path": language.source}));
    if kept["text"] != "the caller's" {
        return Err(format!("the caller's file: {kept:#}").into());
    }

    Ok(())
}

/// The failure of `cases/failure.toml`, in a persistent sandbox.
fn shows_no_file_of_ours_when_it_fails(language: &Language, user: User) -> Result<(), Failed> {
    let text = std::fs::read_to_string(language.folder.join("cases/failure.toml"))?;
    let case: toml::Value = toml::from_str(&text)?;
    let code = case.get("code").and_then(toml::Value::as_str).ok_or("no code")?;
    let client = client(language, user);
    let sandbox = client.open(json!({}));
    for number in 1..=2 {
        let more = json!({"stdin": "words", "limits": {"wait_ms": 60_000}});
        let result = client.run_with(&sandbox, &language.name, code, more);
        if result["outcome"] != "failed" || result.to_string().contains(".palisade") {
            return Err(format!("run {number}: {result:#}").into());
        }
    }

    Ok(())
}

fn client(language: &Language, user: User) -> Client {
    Client::start(Palisade::new(Build::Real, user, &["mcp"]).env("PATH", &language.search_path(user)))
}

fn expect(what: &str, result: &Value, wanted: &[String]) -> Result<(), Failed> {
    let stdout = result["stdout"].as_str().unwrap_or_default();
    // R makes a folder for its session itself.
    let mut found: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("/tmp/Rtmp")).collect();
    found.sort_unstable();
    let mut wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    wanted.sort_unstable();
    if found == wanted && result["outcome"] == "completed" {
        return Ok(());
    }
    Err(format!("{what}: found {found:?} instead of {wanted:?}\n{result:#}").into())
}
