//! The audit of servers: what is recorded, receipts of runs, and the commands that read and verify both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use functional::{own_folder, policies::Policies};
use harness::mcp::Client;
use harness::{Build, Ended, Palisade, User, users};
use serde_json::{Value, json};

/// SHA-256 of `print(6*7)` and of what it prints.
const CODE_SHA256: &str = "cd3af9ab64293a6125a6da8ec338eed3869ab92ba950a4d09ce150114746cd90";
const STDOUT_SHA256: &str = "084c799cd551dd1d8d5c5f9a5d593b2e931f5e36122ee5c793c1d08a19839cc0";

/// A state directory of one test.
struct Scene {
    user: User,
    folder: PathBuf,
    state: PathBuf,
}

impl Scene {
    fn new(name: &str) -> Self {
        let user = users()[0];
        let folder = own_folder(user, name);
        let state = folder.join("state");
        Self { user, folder, state }
    }

    fn palisade(&self, args: &[&str]) -> Palisade {
        Palisade::new(Build::Real, self.user, args).env("PALISADE_STATE_DIR", self.state.to_str().unwrap())
    }

    fn client(&self) -> Client {
        Client::start(self.palisade(&["mcp"]))
    }

    fn audit(&self, args: &[&str]) -> Ended {
        self.palisade(&["audit"]).args(args).end()
    }

    fn key(&self) -> String {
        let ended = self.audit(&["key"]);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        ended.stdout.trim().to_owned()
    }

    /// The status and words of a verification of that folder.
    fn verify(&self, folder: &Path, more: &[&str]) -> (Option<i32>, String) {
        let key = self.key();
        let ended =
            self.palisade(&["audit", "verify", folder.to_str().unwrap(), "--key", &key]).args(more).end();
        (ended.status.code(), ended.stdout + &ended.stderr)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A copy of the audit without its keys, as an auditor has it.
    fn copy(&self) -> PathBuf {
        let copy = self.folder.join("copy");
        fs::remove_dir_all(&copy).ok();
        let status = Command::new("cp").arg("-r").arg(self.state.join("audit")).arg(&copy).status().unwrap();
        assert!(status.success());
        fs::remove_dir_all(copy.join("keys")).unwrap();
        copy
    }

    fn entries(&self, kind: &str) -> Vec<Value> {
        let ended = self.audit(&["export"]);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        let all = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|entry| entry["kind"] == kind).collect()
    }
}

fn receipt_of(client: &Client, run_id: &Value) -> String {
    let uri = format!("palisade://runs/{}/receipt", run_id.as_str().unwrap());
    let answer = client.send("resources/read", json!({ "uri": uri })).answer().expect("an answer");
    let text = answer["result"]["contents"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer:#}")).to_owned()
}

/// What a receipt claims.
fn claims(receipt: &str) -> Value {
    let body = receipt.split_once('\n').unwrap().1;
    let body = body.rsplit_once("\n\n").unwrap().0;
    serde_json::from_str::<Value>(body).unwrap()["claims"].clone()
}

#[test]
fn a_receipt_is_verified_offline_with_the_public_key_alone() {
    let scene = Scene::new("receipts");
    let client = scene.client();
    let arguments =
        json!({"language": "python", "code": "print(6*7)", "inputs": [{"path": "a.txt", "text": "42\n"}]});
    let result = client.call("run", arguments);
    assert_eq!(result["outcome"], "completed", "{result:#}");
    let receipt = receipt_of(&client, &result["run_id"]);
    let claims = claims(&receipt);
    assert_eq!(claims["run_id"], result["run_id"]);
    assert_eq!(claims["digests"]["code"]["sha256"], CODE_SHA256, "{claims:#}");
    assert_eq!(claims["digests"]["stdout"]["sha256"], STDOUT_SHA256);
    assert_eq!(claims["digests"]["inputs"][0], json!({"path": "a.txt", "bytes": 3, "sha256": STDOUT_SHA256}));
    assert_eq!((&claims["policy"], &claims["hosts_reached"]), (&json!(""), &json!([])));
    assert!(claims["isolation"]["network_none"].is_object(), "{claims:#}");
    client.end();
    let copy = scene.copy();
    let file = scene.file("run.receipt", &receipt);
    let (status, text) = scene.verify(&copy, &["--receipt", &file]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("is in the chain") && text.contains("integrity:    holds"), "{text}");
    // The same receipt from the command line.
    let printed = scene.audit(&["receipt", result["run_id"].as_str().unwrap()]);
    assert_eq!(printed.stdout, receipt, "{}", printed.stderr);
    let edited = scene.file("edited.receipt", &receipt.replace("completed", "cancelled"));
    let (status, text) = scene.verify(&copy, &["--receipt", &edited]);
    assert_eq!(status, Some(1), "{text}");
    // The chain of the audit does not contain the digests.
    let lines = scene.audit(&["export"]).stdout;
    assert!(
        !lines.contains(CODE_SHA256) && !lines.contains(STDOUT_SHA256) && !lines.contains("print"),
        "{lines}"
    );
}

#[test]
fn a_run_in_a_persistent_sandbox_has_a_receipt_with_the_files_that_it_made() {
    let scene = Scene::new("kept-receipts");
    let client = scene.client();
    let sandbox = client.open(json!({}));
    let result = client.run(&sandbox, "bash", "printf '42\\n' > out.txt");
    assert_eq!(result["outcome"], "completed", "{result:#}");
    let claims = claims(&receipt_of(&client, &result["run_id"]));
    assert_eq!(claims["sandbox_id"], sandbox.as_str());
    let artifact = json!({"path": "out.txt", "bytes": 3, "sha256": STDOUT_SHA256});
    assert_eq!(claims["digests"]["artifacts"], json!([artifact]), "{claims:#}");
}

#[test]
fn a_receipt_is_behind_the_door_of_the_log() {
    let user = users()[0];
    let policies =
        Policies::new(user, "receipt-door", &json!({"version": "1", "default": "allow", "hide": ["wait"]}));
    let client = policies.client(user);
    let result = client.call("run", json!({"language": "bash", "code": "echo hi"}));
    let uri = format!("palisade://runs/{}/receipt", result["run_id"].as_str().unwrap());
    let answer = client.send("resources/read", json!({ "uri": uri })).answer().expect("an answer");
    assert!(
        answer["error"]["message"].as_str().is_some_and(|text| text.contains("no such resource")),
        "{answer:#}"
    );
}

#[test]
fn changes_of_the_files_are_found_and_told_apart_from_what_is_missing() {
    let scene = Scene::new("audit-changes");
    let client = scene.client();
    for _ in 0..3 {
        client.call("validate_code", json!({"language": "bash", "code": "echo hi"}));
    }
    client.end();
    assert_eq!(scene.verify(&scene.copy(), &[]).0, Some(0));
    let change = |change: &dyn Fn(Vec<String>) -> Vec<String>| {
        let copy = scene.copy();
        let chain =
            fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
        let segment = chain.unwrap().join("000001.jsonl");
        let lines = fs::read_to_string(&segment).unwrap().lines().map(str::to_owned).collect();
        fs::write(&segment, change(lines).join("\n") + "\n").unwrap();
        scene.verify(&copy, &[])
    };
    let (status, text) =
        change(&|lines| lines.iter().map(|line| line.replace("allowed", "denied")).collect());
    assert!(status == Some(1) && text.contains("integrity:    BROKEN"), "{text}");
    let (status, text) = change(&|mut lines| {
        lines.remove(2);
        lines
    });
    assert_eq!(status, Some(1), "{text}");
    let (status, text) = change(&|mut lines| {
        lines.truncate(3);
        lines
    });
    assert!(status == Some(3) && text.contains("integrity:    holds"), "{text}");
    // Another server's key does not verify it.
    let stranger = Scene::new("audit-stranger");
    let ended = scene.audit(&["verify", scene.copy().to_str().unwrap(), "--key", &stranger.key()]);
    assert!(ended.status.code() == Some(1) && ended.stdout.contains("not trusted"), "{}", ended.stdout);
}

#[test]
fn one_run_of_the_command_line_is_not_recorded_and_an_audit_can_be_switched_off() {
    let scene = Scene::new("audit-off");
    let ended = scene.palisade(&["run", "bash", "-c", "echo hi"]).end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let client = Client::start(scene.palisade(&["mcp"]).env("PALISADE_AUDIT_ENABLED", "false"));
    let result = client.call("run", json!({"language": "bash", "code": "echo hi"}));
    assert_eq!(result["outcome"], "completed", "{result:#}");
    client.end();
    assert!(!scene.state.join("audit").exists());
}

#[test]
fn keys_that_a_command_makes_and_revokes_are_recorded() {
    let scene = Scene::new("audit-keys");
    for args in
        [&["keys", "create", "ci", "--scope", "run", "--policy", "open"][..], &["keys", "revoke", "ci"]]
    {
        let ended = scene.palisade(args).end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    }
    let made = scene.entries("key_created");
    assert_eq!((made.len(), &made[0]["data"]["name"]), (1, &json!("ci")));
    assert_eq!(scene.entries("key_revoked").len(), 1);
    assert!(!scene.audit(&["export"]).stdout.contains("plsk_"));
    assert_eq!(scene.verify(&scene.state.join("audit"), &[]).0, Some(0));
}

/// To see it fail, set `PALISADE_AUDIT_ENABLED=false`: the run completes.
#[test]
fn a_server_that_cannot_write_its_audit_runs_nothing() {
    let scene = Scene::new("audit-unwritable");
    fs::create_dir(&scene.state).unwrap();
    let status = Command::new("chmod").arg("700").arg(&scene.state).status().unwrap();
    assert!(status.success());
    // A file where the folder belongs cannot be written by any user.
    fs::write(scene.state.join("audit"), "").unwrap();
    if scene.user == User::Ordinary && rustix::process::geteuid().is_root() {
        let chown =
            Command::new("chown").arg("-R").arg(harness::ORDINARY_USER).arg(&scene.state).status().unwrap();
        assert!(chown.success());
    }
    let client = scene.client();
    let result = client.call("run", json!({"language": "bash", "code": "echo ran"}));
    assert_eq!(
        (&result["outcome"], &result["error"]["code"]),
        (&json!("unavailable"), &json!("audit_unavailable"))
    );
    assert!(result["error"]["retryable"] == true && result["error"]["remedy"].is_string(), "{result:#}");
    assert!(result.get("run_id").is_none_or(Value::is_null), "{result:#}");
}
