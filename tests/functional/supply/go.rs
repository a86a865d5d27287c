//! Go modules as callers ask for them: by tools and at the command line, in fresh runs and in persistent sandboxes.
//!
//! The compiler of Go compiles its library for each program, so the programs import little: they write with `println`.

use std::fs;

use harness::mcp::Client;
use serde_json::{Value, json};

use super::environment::{Supply, files, good, versions};

/// A program that says what a module says.
fn program(imports: &[&str], said: &str) -> String {
    let imports: String = imports.iter().map(|path| format!("import \"mod.example/{path}\"\n")).collect();
    format!("package main\n\n{imports}\nfunc main() {{ println({said}) }}\n")
}

/// Runs a program to its end.
fn run(client: &Client, code: &str, more: Value) -> Value {
    let mut call = json!({"language": "go", "code": code, "timeout_ms": 60_000});
    for (name, value) in more.as_object().into_iter().flatten() {
        call[name] = value.clone();
    }
    let result = client.call("run", call);
    match result["outcome"] == "running" {
        true => client.call("wait", json!({"run_id": result["run_id"], "timeout_ms": 240_000})),
        false => result,
    }
}

#[track_caller]
fn says(result: &Value, wanted: &str) {
    assert_eq!((&result["outcome"], &result["stderr"]), (&json!("completed"), &json!(wanted)), "{result:#}");
}

#[test]
fn a_go_program_is_compiled_with_the_modules_that_it_names() {
    let supply = Supply::without_resolver("go-run");
    let client = Client::start(supply.palisade(&["mcp"]));
    let code = program(&["needs", "Upper/Case"], "needs.Value(), uppercase.Value()");
    let named = json!({"packages": ["mod.example/needs", "mod.example/Upper/Case@v1.0.0"]});
    let result = run(&client, &code, named.clone());
    says(&result, "42 42\n");
    assert_eq!(
        versions(&result),
        ["mod.example/Upper/Case v1.0.0", "mod.example/good v1.0.0", "mod.example/needs v1.0.0"]
    );
    let asked = supply.requests("/go/");
    let again = run(&client, &code, named);
    says(&again, "42 42\n");
    assert_eq!(again["compile"]["cached"], true, "{again:#}");
    assert_eq!(supply.requests("/go/"), asked, "the layer was there");
}

#[test]
fn another_version_of_a_module_compiles_the_program_again() {
    let supply = Supply::without_resolver("go-key");
    let client = Client::start(supply.palisade(&["mcp"]));
    let code = program(&["good"], "good.Version");
    for version in ["v1.0.0", "v1.1.0", "v1.0.0"] {
        let named = json!({"packages": [format!("mod.example/good@{version}")]});
        says(&run(&client, &code, named), &format!("{version}\n"));
    }
}

#[test]
fn a_go_program_that_misses_a_module_is_told_the_call_that_brings_it() {
    let supply = Supply::without_resolver("go-missing");
    let client = Client::start(supply.palisade(&["mcp"]));
    let code = program(&["good", "Upper/Case"], "good.Value(), uppercase.Value()");
    let told = |more: Value| {
        let failed = run(&client, &code, more);
        assert_eq!(failed["outcome"], "compile_failed", "{failed:#}");
        failed["error"]["remedy"].as_str().unwrap_or_default().to_owned()
    };
    let both = "run it again with \"packages\": [\"mod.example/Upper/Case\", \"mod.example/good\"]";
    assert_eq!(told(json!({})), both);
    let other = "run it again with \"packages\": [\"mod.example/good\", \"mod.example/Upper/Case\"]";
    assert_eq!(told(json!({"packages": ["mod.example/good"]})), other, "that which it had is named, too");
    let checked = client.call("validate_code", json!({"language": "go", "code": code}));
    let missing = &checked["missing_imports"][0];
    let first = "run it again with \"packages\": [\"mod.example/Upper/Case\"]";
    assert_eq!(
        (&missing["module"], &missing["remedy"]),
        (&json!("mod.example/Upper/Case"), &json!(first)),
        "{checked:#}"
    );
    let id = client.open(json!({}));
    let call = format!(
        "call install_packages {{\"sandbox_id\": \"{id}\", \"language\": \"go\", \"packages\": \
         [\"mod.example/Upper/Case\", \"mod.example/good\"]}}, then run it again"
    );
    assert_eq!(told(json!({"sandbox_id": id})), call);
}

#[test]
fn a_sandbox_compiles_with_the_modules_that_it_was_opened_with_and_gets_more() {
    let supply = Supply::without_resolver("go-open");
    let client = Client::start(supply.palisade(&["mcp"]));
    let opened = client.call("sandbox_open", json!({"packages": ["go:mod.example/good@v1.0.0"]}));
    if opened["status"] == "installing" {
        client.call("wait", json!({"run_id": opened["run_id"], "timeout_ms": 240_000}));
    }
    let id = opened["sandbox_id"].as_str().expect("the sandbox is open");
    let in_sandbox = json!({"sandbox_id": id});
    says(&run(&client, &program(&["good"], "good.Version"), in_sandbox.clone()), "v1.0.0\n");
    let call = json!({"language": "go", "packages": ["mod.example/Upper/Case", "mod.example/good"], "sandbox_id": id, "timeout_ms": 120_000});
    let installed = client.call("install_packages", call);
    assert_eq!(installed["status"], "installed", "{installed:#}");
    let both = program(&["good", "Upper/Case"], "good.Version, uppercase.Value()");
    // The version that the sandbox has is kept, although there is a newer one.
    says(&run(&client, &both, in_sandbox), "v1.0.0 42\n");
}

#[test]
fn a_program_with_its_own_go_mod_chooses_among_the_modules() {
    let supply = Supply::without_resolver("go-own");
    let client = Client::start(supply.palisade(&["mcp"]));
    let code = "package main\n\nimport (\n\t\"mod.example/good\"\n\t\"own/part\"\n)\n\nfunc main() { println(good.Value(), part.Half()) }\n";
    let inputs = json!([
        {"path": "go.mod", "text": "module own\n\ngo 1.18\n"},
        {"path": "part/part.go", "text": "package part\n\nimport \"mod.example/good\"\n\nfunc Half() int { return good.Value() / 2 }\n"},
    ]);
    says(&run(&client, code, json!({"packages": ["mod.example/good"], "inputs": inputs})), "42 21\n");
}

#[test]
fn go_modules_are_named_in_the_inventory_and_carried_to_a_machine_without_a_network() {
    let mut supply = Supply::without_resolver("go-air-gap");
    let set = supply.installed("go", &["mod.example/Upper/Case", "mod.example/needs"]);
    assert_eq!(set["target"], "/palisade/packages/go");
    let inventory = fs::read(files(&set).parent().unwrap().join("bom.json")).unwrap();
    let inventory: Value = serde_json::from_slice(&inventory).unwrap();
    assert_eq!(inventory["components"][0]["purl"], "pkg:golang/mod.example/upper/case@v1.0.0");
    assert_eq!(inventory["components"][0]["hashes"][0]["alg"], "SHA-256");
    let archive = supply.beside("packages.tar");
    let path = archive.to_str().unwrap();
    assert!(supply.palisade(&["packages", "export", path]).end().status.success());
    fs::remove_dir_all(supply.state_dir.join("packages")).unwrap();
    let imported = supply.palisade(&["packages", "import", path]).end();
    assert!(imported.status.success(), "{}", imported.stderr);
    supply.end_mirror();
    let again = supply.installed("go", &["mod.example/Upper/Case", "mod.example/needs"]);
    assert_eq!((&again["digest"], &again["was_cached"]), (&set["digest"], &json!(true)));
    let other = supply.installed("go", &["mod.example/needs"]);
    assert_eq!(
        versions(&other),
        ["mod.example/good v1.0.0", "mod.example/needs v1.0.0"],
        "from what came along"
    );
}

#[test]
fn go_versions_are_chosen_by_the_go_command() {
    let supply = Supply::without_resolver("go-versions");
    for (asked, wanted) in [
        ("mod.example/good", "mod.example/good v1.1.0"),
        ("mod.example/good@1.0.0", "mod.example/good v1.0.0"),
        ("mod.example/good@<v1.1", "mod.example/good v1.0.0"),
        ("mod.example/untagged", "mod.example/untagged v0.0.0-20200101000000-000000000000"),
        ("mod.example/suffixed@v2.0.0", "mod.example/suffixed v2.0.0+incompatible"),
    ] {
        assert_eq!(versions(&supply.installed("go", &[asked])), [wanted], "{asked}");
    }
    // The go command also looks for the package in the module above, and keeps what it fetched.
    let both = versions(&supply.installed("go", &["mod.example/good/v2"]));
    assert_eq!(both.last().map(String::as_str), Some("mod.example/good/v2 v2.0.0"), "{both:?}");
    let listed = good(supply.palisade(&["packages", "list", "--json"]).end());
    assert_eq!(listed.as_array().unwrap().len(), 5, "{listed:#}");
}
