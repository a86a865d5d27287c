//! Packages as callers ask for them: by tools, in the code, at the command line; and what rules and errors say.

use functional::http::{Request, Server};
use functional::policies::Policies;
use harness::mcp::Client;
use harness::{Build, Palisade, users};
use serde_json::{Value, json};

use super::environment::Supply;

fn python(code: &str, more: Value) -> Value {
    let mut call = json!({"language": "python", "code": code, "timeout_ms": 60_000});
    for (name, value) in more.as_object().into_iter().flatten() {
        call[name] = value.clone();
    }
    call
}

#[track_caller]
fn stdout(result: &Value) -> &str {
    assert_eq!(result["outcome"], "completed", "{result:#}");
    result["stdout"].as_str().unwrap_or_default()
}

/// Runs a program to its end, also if the installation before it takes longer than the tool waits.
fn run(client: &Client, arguments: Value) -> Value {
    let result = client.call("run", arguments);
    match result["outcome"] == "running" {
        true => client.call("wait", json!({"run_id": result["run_id"], "timeout_ms": 120_000})),
        false => result,
    }
}

impl Supply {
    fn client(&self) -> Client {
        Client::start(self.palisade(&["mcp"]))
    }
}

const USE: &str = "import good; print(good.VALUE)";

#[test]
fn a_run_installs_the_packages_that_it_names() {
    let Some(supply) = Supply::new("tool-run") else { return };
    let client = supply.client();
    let result = run(&client, python(USE, json!({"packages": ["good"]})));
    assert_eq!(stdout(&result), "42\n");
    let code = "console.log(require('goodjs'), require('@scope/goodjs'))";
    let call = json!({"language": "javascript", "code": code, "packages": ["goodjs", "@scope/goodjs"]});
    assert_eq!(stdout(&run(&client, call)), "42 42\n");
    let again = run(&client, python(USE, json!({})));
    assert_eq!(again["outcome"], "failed", "the next run has none: {again:#}");
}

#[test]
fn a_sandbox_is_opened_with_packages_and_gets_more_while_it_is_open() {
    let Some(supply) = Supply::new("tool-open") else { return };
    let client = supply.client();
    let id = client.open(json!({"packages": ["good", "npm:goodjs"]}));
    assert_eq!(stdout(&client.run(&id, "python", USE)), "42\n");
    assert_eq!(stdout(&client.run(&id, "javascript", "console.log(require('goodjs'))")), "42\n");
    let missing = client.run(&id, "python", "import html5 as x, good_name");
    assert_eq!(missing["outcome"], "failed", "{missing:#}");
    let call =
        json!({"language": "python", "packages": ["good-name"], "sandbox_id": id, "timeout_ms": 120_000});
    let installed = client.call("install_packages", call);
    assert_eq!(installed["status"], "installed", "{installed:#}");
    assert_eq!(stdout(&client.run(&id, "python", "import good_name; print(good_name.VALUE)")), "42\n");
}

#[test]
fn code_asks_for_packages_by_script_metadata_and_by_lines_that_install() {
    let Some(supply) = Supply::new("tool-code") else { return };
    let client = supply.client();
    for head in ["# /// script\n# dependencies = ['good']\n# ///", "%pip install good", "!pip install good"] {
        let result = run(&client, python(&format!("{head}\n{USE}"), json!({})));
        assert!(stdout(&result).ends_with("42\n"), "{head}: {result:#}");
    }
    let command = supply.palisade(&["run", "python", "--package", "good", "-c", USE]).end();
    assert_eq!((command.status.code(), command.stdout.as_str()), (Some(0), "42\n"), "{}", command.stderr);
}

#[test]
fn wait_tells_the_step_of_an_installation_and_then_its_end() {
    let Some(supply) = Supply::new("tool-wait") else { return };
    let client = supply.client();
    let begin = |packages: &str| {
        let call = json!({"language": "python", "packages": [packages], "timeout_ms": 0});
        client.call("install_packages", call)
    };
    let id_of = |begun: Value| {
        assert_eq!(begun["status"], "installing", "{begun:#}");
        begun["run_id"].as_str().unwrap().to_owned()
    };
    let id = id_of(begin("stalling"));
    let told = functional::until(functional::SOON * 6, "the file is fetched", || {
        let told = client.call("wait", json!({"run_id": id, "timeout_ms": 200}));
        assert_eq!(told["status"], "installing", "{told:#}");
        told["progress"].as_str().is_some_and(|step| step.contains("fetching stalling")).then_some(told)
    });
    assert_eq!(told["outcome"], "running");
    let id = id_of(begin("good"));
    let done = client.call("wait", json!({"run_id": id, "timeout_ms": 120_000}));
    assert_eq!(
        (&done["status"], &done["packages"][0]["name"]),
        (&json!("installed"), &json!("good")),
        "{done:#}"
    );
    // It may have failed before the answer; nothing is kept of such a one that could be waited for.
    let begun = begin("missing-package");
    let failed = match begun["status"].as_str() {
        Some("installing") => client.call("wait", json!({"run_id": id_of(begun), "timeout_ms": 120_000})),
        _ => begun,
    };
    assert_eq!(
        (&failed["status"], &failed["error"]["code"]),
        (&json!("failed"), &json!("package_not_found")),
        "{failed:#}"
    );
}

#[test]
fn a_missing_import_names_the_call_that_repairs_it_before_and_after_the_run() {
    let Some(supply) = Supply::new("tool-repair") else { return };
    let client = supply.client();
    let repair = "run it again with \"packages\": [\"good\"]";
    let checked = client.call("validate_code", json!({"language": "python", "code": USE}));
    assert!(checked.to_string().contains(&repair.replace('"', "\\\"")), "{checked:#}");
    let failed = run(&client, python(USE, json!({})));
    assert_eq!(failed["error"]["remedy"], repair, "{failed:#}");
    let id = client.open(json!({}));
    let failed = client.run(&id, "python", USE);
    let call = format!(
        "call install_packages {{\"sandbox_id\": \"{id}\", \"language\": \"python\", \"packages\": [\"good\"]}}, then run it again"
    );
    assert_eq!(failed["error"]["remedy"], call, "{failed:#}");
    let script = json!({"language": "javascript", "code": "require('goodjs')"});
    let failed = run(&client, script);
    assert_eq!(failed["error"]["remedy"], "run it again with \"packages\": [\"goodjs\"]", "{failed:#}");
}

/// The packages that a program asks for itself count as those of the call.
#[test]
fn a_policy_denies_packages_or_asks_for_them() {
    let Some(supply) = Supply::new("tool-policy") else { return };
    let user = users()[0];
    let denied = json!({"deny_if": [{"path": "args.packages", "op": "exists", "value": true, "on_deny": "no packages"}]});
    let asked =
        json!({"require_approval": {"reason": "ask first", "when": {"args.packages": {"exists": true}}}});
    for (rule, code) in [(denied, "policy_denied"), (asked, "approval_required")] {
        let rules =
            json!({"version": "1", "default": "allow", "tools": {"run": rule, "install_packages": rule}});
        let policies = Policies::new(user, code, &rules);
        let client = Client::start(supply.with_mirror(policies.palisade(user, &["mcp"])));
        let calls = [
            ("install_packages", json!({"language": "python", "packages": ["good"]})),
            ("run", python(USE, json!({"packages": ["good"]}))),
            ("run", python(&format!("%pip install good\n{USE}"), json!({}))),
        ];
        // A call that waits for its approval takes long, so one stands for all.
        let count = if code == "policy_denied" { calls.len() } else { 1 };
        for (tool, arguments) in calls.into_iter().rev().take(count) {
            let refused = client.call(tool, arguments);
            assert_eq!(refused["error"]["code"], code, "{tool}: {refused:#}");
        }
        assert_eq!(stdout(&run(&client, python("print(1)", json!({})))), "1\n");
    }
    assert_eq!(supply.requests("/"), 0);
}

#[test]
fn packages_are_on_for_one_user_and_off_for_a_server_until_it_is_configured() {
    let user = users()[0];
    let has = |list: &Value| list.to_string().contains("\"install_packages\"");
    let by_default = |args: &[&str]| {
        Palisade::new(Build::Real, user, args)
            .without_env("PALISADE_PACKAGES_ENABLED")
            .env("PALISADE_LOG", "info")
    };
    let client = Client::start(by_default(&["mcp"]));
    assert!(has(&client.send("tools/list", json!({})).answer().unwrap()));
    let listed = |command: Palisade| {
        let server = Server::start_command(user, command.into_command());
        server.ask(&Request::modern("tools/list", json!({}))).result()
    };
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    assert!(!has(&listed(by_default(&serve))));
    assert!(has(&listed(by_default(&serve).env("PALISADE_PACKAGES_ENABLED", "true"))));
}

#[test]
fn doctor_says_which_mirrors_answer() {
    let Some(mut supply) = Supply::new("doctor") else { return };
    let answers = |supply: &Supply| {
        let ended = supply.palisade(&["doctor", "--json"]).end();
        let told: Value = serde_json::from_str(&ended.stdout).expect(&ended.stderr);
        let mirrors = found(&told, "mirrors").expect("mirrors are told").as_array().unwrap().clone();
        mirrors.iter().map(|one| one["answers"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(answers(&supply), [json!(true), json!(true), json!(true)]);
    supply.end_mirror();
    assert_eq!(answers(&supply), [json!(false), json!(false), json!(false)]);
}

/// The first value of that name.
fn found<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(name).or_else(|| map.values().find_map(|value| found(value, name))),
        Value::Array(list) => list.iter().find_map(|value| found(value, name)),
        _ => None,
    }
}

/// Languages whose packages are not installed, with a program that misses one. See docs/PACKAGES.md, "Languages".
const OTHERS: [(&str, &str); 5] = [
    ("ruby", "require 'nokogiri'"),
    ("r", "library(dplyr)"),
    ("perl", "use JSON::Missing;"),
    ("php", "require 'vendor/autoload.php';"),
    ("rust", "use serde::Serialize;\nfn main() {}"),
];

#[test]
fn packages_of_other_languages_are_refused_with_what_to_do_instead() {
    let Some(supply) = Supply::new("others") else { return };
    let client = supply.client();
    for (language, _) in OTHERS {
        let call = json!({"language": language, "packages": ["anything"]});
        let refused = client.call("install_packages", call);
        assert_eq!(refused["error"]["code"], "bad_package", "{language}: {refused:#}");
        let remedy = refused["error"]["remedy"].as_str().unwrap();
        assert!(remedy.contains("Python, JavaScript or Go"), "{language}: {remedy}");
    }
    assert_eq!(supply.requests("/"), 0);
}

#[test]
fn a_missing_package_of_another_language_is_told_as_one_that_cannot_be_installed() {
    let Some(supply) = Supply::new("others-missing") else { return };
    let client = supply.client();
    for (language, code) in OTHERS {
        let result = run(&client, json!({"language": language, "code": code}));
        let error = &result["error"];
        if error["code"] == "language_missing" {
            eprintln!("SKIPPED: no {language}");
            continue;
        }
        let remedy = error["remedy"].as_str().unwrap_or_default();
        assert!(
            remedy.contains("packages of this language cannot be installed here"),
            "{language}: {result:#}"
        );
    }
}
