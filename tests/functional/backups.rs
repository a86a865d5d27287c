//! Backups of a state directory whose server runs, and what counts after a restore.

use std::path::{Path, PathBuf};

use functional::admin::AdminClient;
use functional::http::{Request, Server};
use functional::keys::{call, create, showing, time_until};
use functional::own_folder;
use harness::{Build, Ended, Palisade, User, state_dir, users};
use serde_json::{Value, json};

/// A command of a state directory.
fn palisade(user: User, state_dir: &Path, args: &[&str]) -> Palisade {
    Palisade::new(Build::Real, user, args).env("PALISADE_STATE_DIR", state_dir.to_str().unwrap())
}

fn serve(user: User, state_dir: &Path) -> Server {
    let serve = palisade(user, state_dir, &["serve", "--listen", "127.0.0.1:0"]).env("PALISADE_LOG", "info");
    Server::start_command(user, serve.into_command())
}

fn ended(palisade: Palisade, status: i32) -> Ended {
    let ended = palisade.end();
    assert_eq!(ended.status.code(), Some(status), "{}{}", ended.stdout, ended.stderr);
    ended
}

/// The run of a call with an idempotency key.
fn keyed_run(server: &Server, key: &str) -> Value {
    let run = json!({"name": "run", "arguments": {"language": "bash", "code": "echo once"}});
    let request = Request::modern("tools/call", run).header("Idempotency-Key", "the-key");
    let answer = server.ask(&showing(request, key));
    let result = answer.result()["structuredContent"].clone();
    assert_eq!(result["stdout"], "once\n", "{answer:?}");
    result["run_id"].clone()
}

struct Places {
    user: User,
    backup: PathBuf,
    restored: PathBuf,
}

impl Places {
    fn new() -> Self {
        let user = users()[0];
        let folder = own_folder(user, "backups");
        Self { user, backup: folder.join("backup"), restored: folder.join("restored") }
    }

    fn back_up(&self) {
        let backup = palisade(self.user, &state_dir(self.user), &["backup", self.backup.to_str().unwrap()]);
        let told = ended(backup, 0).stderr;
        assert!(told.contains("Backed up"), "{told}");
    }

    fn restore(&self, status: i32) -> String {
        ended(palisade(self.user, &self.restored, &["restore", self.backup.to_str().unwrap()]), status).stderr
    }
}

#[test]
fn a_backup_of_a_running_server_comes_back_with_its_keys_and_runs() {
    let places = Places::new();
    let server = serve(places.user, &state_dir(places.user));
    let key = create("ci", "run,sandbox");
    time_until(&server, &key, 200);
    let run_id = keyed_run(&server, &key);
    assert_eq!(keyed_run(&server, &key), run_id, "the same call is carried out once");
    call(&server, &key, "sandbox_open", json!({"name": "gone"}));
    places.back_up();
    drop(server);

    let told = places.restore(0);
    assert!(
        told.contains("1 keys are in force") && told.contains("1 persistent sandboxes are gone"),
        "{told}"
    );
    let server = serve(places.user, &places.restored);
    let client = AdminClient::owner(&server);
    let runs = client.read("/runs");
    assert!(runs["items"].as_array().unwrap().iter().any(|run| run["run_id"] == run_id), "{runs:#}");
    assert_eq!(client.read("/sandboxes")["items"], json!([]));
    assert_ne!(keyed_run(&server, &key), run_id, "an idempotency record of before does not count");
    let report = client.post("/audit/verify", &json!({})).message();
    assert_ne!(report["verdict"], "broken", "{report:#}");
}

#[test]
fn a_restore_goes_nowhere_where_a_server_may_be() {
    let places = Places::new();
    let server = serve(places.user, &state_dir(places.user));
    server.is_well();
    places.back_up();
    let twice = palisade(places.user, &state_dir(places.user), &["backup", places.backup.to_str().unwrap()]);
    assert!(ended(twice, 2).stderr.contains("never overwrites"));
    let into = palisade(places.user, &state_dir(places.user), &["restore", places.backup.to_str().unwrap()]);
    assert!(ended(into, 2).stderr.contains("is not empty"));
    server.is_well();
    places.restore(0);
    assert!(places.restore(2).contains("is not empty"));
}
