//! The server is killed at many moments while it opens, runs, writes and closes: what was acknowledged is there
//! afterwards, what was not is gone or whole, and nothing is left behind on the machine.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use functional::{
    Chance, SOON, abandoned_cgroups, is_quick, marked, marker, own_folder, until,
    wait_for_no_new_abandoned_cgroups,
};
use harness::baseline::look;
use harness::mcp::{Client, Pending};
use harness::{Build, Palisade, User, users};
use serde_json::{Value, json};

/// All kills of one user together take no longer.
const TIME_MAX: Duration = Duration::from_secs(45);
const KILLS: usize = 24;
const KILLS_QUICK: usize = 5;
/// Long enough for everything that is asked at once to be over now and then.
const DELAY_MS_MAX: usize = 400;

/// In no command line.
const NOBODY: &str = "\u{0}no process\u{0}";

/// What the server has acknowledged.
#[derive(Default)]
struct Ledger {
    /// Files with their content, by sandbox.
    open: BTreeMap<String, BTreeMap<String, String>>,
    /// Closed for good.
    closed: Vec<String>,
    /// Asked to be closed, and nobody knows.
    doubtful: Vec<String>,
    /// Runs that can be waited for.
    handed_over: Vec<String>,
}

/// What is under way when the server is killed.
enum Asked {
    Open,
    Close(String),
    Write(String, String, String),
    Run(String, String, String),
    HandOver,
}

struct Scene {
    user: User,
    state: std::path::PathBuf,
    word: String,
    chance: Chance,
    ledger: Ledger,
    number: usize,
    /// Runs of killed servers that were waited for.
    waited: usize,
}

impl Scene {
    fn client(&self) -> Client {
        let palisade = Palisade::new(Build::Real, self.user, &["mcp"]);
        Client::start(palisade.env("PALISADE_STATE_DIR", self.state.to_str().unwrap()))
    }

    /// Asks for something durable, without waiting.
    fn ask(&mut self, client: &Client) -> (Asked, Pending) {
        self.number += 1;
        let (name, text) = (format!("file-{}", self.number), format!("content {}", self.number));
        let open: Vec<&String> = self.ledger.open.keys().collect();
        let chosen = if open.is_empty() { None } else { Some(open[self.chance.below(open.len())].clone()) };
        let Some(id) = chosen else { return (Asked::Open, client.begin("sandbox_open", json!({}))) };
        match self.chance.below(10) {
            0 | 1 if open.len() < 6 => (Asked::Open, client.begin("sandbox_open", json!({}))),
            2 if open.len() > 2 => {
                let pending = client.begin("sandbox_close", json!({"sandbox_id": id}));
                // Nobody else is to use it.
                self.ledger.open.remove(&id);
                self.ledger.doubtful.push(id.clone());
                (Asked::Close(id), pending)
            }
            3..=5 => {
                let given = json!({"sandbox_id": id, "path": name, "text": text});
                (Asked::Write(id, name, text), client.begin("write_file", given))
            }
            6 => {
                let code = format!("sleep 3 # {}", self.word);
                let pending = client.begin_run(&id, "bash", &code, json!({"limits": {"wait_ms": 50}}));
                (Asked::HandOver, pending)
            }
            _ => {
                let code = format!(
                    "import subprocess\nopen('{name}', 'w').write('{text}')\np = subprocess.Popen(['bash', '-c', 'exec -a {} sleep 300'])",
                    self.word
                );
                let pending = client.begin_run(&id, "python", &code, json!({}));
                (Asked::Run(id, name, text), pending)
            }
        }
    }

    /// Notes what an answer promises.
    fn note(&mut self, asked: Asked, answer: &Value) {
        let said = &answer["result"]["structuredContent"];
        match asked {
            Asked::Open => {
                if let Some(id) = said["sandbox_id"].as_str() {
                    self.ledger.open.insert(id.to_owned(), BTreeMap::new());
                }
            }
            Asked::Close(id) if said["closed"] == true => {
                self.ledger.doubtful.retain(|other| *other != id);
                self.ledger.closed.push(id);
            }
            Asked::Write(id, name, text) if said["error"].is_null() => self.promise(&id, name, text),
            Asked::Run(id, name, text) if said["outcome"] == "completed" => self.promise(&id, name, text),
            Asked::HandOver if said["outcome"] == "running" => {
                self.ledger.handed_over.extend(said["run_id"].as_str().map(str::to_owned));
            }
            Asked::HandOver | Asked::Close(_) | Asked::Write(..) | Asked::Run(..) => {}
        }
    }

    fn promise(&mut self, id: &str, name: String, text: String) {
        if let Some(files) = self.ledger.open.get_mut(id) {
            files.insert(name, text);
        }
    }

    /// Keeps a server busy and kills it.
    fn crash(&mut self) {
        let mut client = self.client();
        let mut asked = Vec::new();
        // One thing is acknowledged for sure, the others as it comes.
        let (what, pending) = self.ask(&client);
        let answer = pending.answer().expect("it answers");
        self.note(what, &answer);
        for _ in 0..4 {
            asked.push(self.ask(&client));
        }
        let delay = self.chance.below(DELAY_MS_MAX);
        std::thread::sleep(Duration::from_millis(delay as u64));
        client.kill();
        for (what, pending) in asked {
            if let Some(answer) = pending.answer() {
                self.note(what, &answer);
            }
        }
        until(SOON, "nothing of a killed server lives", || marked(&self.word).is_empty().then_some(()));
    }

    /// A new server knows everything that was promised.
    fn check(&mut self) {
        let client = self.client();
        let list = client.call("sandbox_list", json!({}));
        let listed: Vec<&str> = list["sandboxes"]
            .as_array()
            .unwrap_or_else(|| panic!("{list:#}"))
            .iter()
            .filter_map(|entry| entry["sandbox_id"].as_str())
            .collect();
        for id in &self.ledger.closed {
            assert!(!listed.contains(&id.as_str()), "{id} was closed");
        }
        for (id, files) in &self.ledger.open {
            assert!(listed.contains(&id.as_str()), "{id} was opened");
            for (name, text) in files {
                let found = client.call("read_file", json!({"sandbox_id": id, "path": name}));
                assert_eq!(found["text"], *text, "{name} was acknowledged: {found:#}");
            }
        }
        for id in std::mem::take(&mut self.ledger.handed_over) {
            let waited = client.call("wait", json!({"run_id": id}));
            let is_known = waited["run_id"] == *id && waited["error"]["code"] != "unknown_run";
            assert!(is_known && waited["outcome"] != "running", "{waited:#}");
            self.waited += 1;
        }
        // Those that were being closed are whole, or gone.
        for id in std::mem::take(&mut self.ledger.doubtful) {
            let closed = client.call("sandbox_close", json!({"sandbox_id": id}));
            assert!(closed["closed"] == true || closed["error"]["code"] == "unknown_sandbox", "{closed:#}");
        }
        // Opened, but nobody was told: it can be used and closed like any other.
        let told: Vec<String> = self.ledger.open.keys().cloned().collect();
        for id in listed.iter().filter(|id| !told.contains(&(**id).to_owned())) {
            let closed = client.call("sandbox_close", json!({"sandbox_id": id}));
            assert!(closed["closed"] == true || closed["error"]["code"] == "unknown_sandbox", "{closed:#}");
        }
        if let Some(id) = told.first() {
            let result = client.run(id, "python", "print(6 * 7)");
            assert_eq!(result["stdout"], "42\n", "{result:#}");
        }
        assert!(client.end().success());
    }

    /// Folders on disk are those of open sandboxes; a draft or a folder in removal is gone within seconds.
    fn check_folders(&self) {
        let client = self.client();
        assert!(client.call("sandbox_list", json!({}))["sandboxes"].is_array());
        until(SOON, "no folder in removal is left", || {
            let entries = fs::read_dir(self.state.join("sandboxes")).unwrap().flatten();
            let names: Vec<String> =
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            let is_tidy = names.iter().all(|name| !name.ends_with(".removed"));
            let all_there = self.ledger.open.keys().all(|id| names.contains(id));
            (is_tidy && all_there).then_some(())
        });
    }
}

#[test]
fn a_server_killed_at_any_moment_loses_nothing_that_it_acknowledged() {
    for user in users() {
        let (before, mounts) = (abandoned_cgroups(), look(NOBODY).mounts);
        let state = own_folder(user, "crash-state");
        let scene_word = marker("crashing");
        let mut scene = Scene {
            user,
            state,
            word: scene_word,
            chance: Chance::new(0x5eed + u64::from(user == User::Root)),
            ledger: Ledger::default(),
            number: 0,
            waited: 0,
        };
        let began = Instant::now();
        let mut kills = 0;
        while kills < if is_quick() { KILLS_QUICK } else { KILLS } && began.elapsed() < TIME_MAX {
            scene.crash();
            kills += 1;
            if kills % 4 == 0 {
                scene.check();
            }
        }
        scene.check();
        scene.check_folders();
        let Scene { number, waited, .. } = scene;
        println!(
            "{user:?}: {kills} kills in {:?} during {number} requests, {waited} runs handed over",
            began.elapsed()
        );
        wait_for_no_new_abandoned_cgroups(&before);
        until(SOON, "no mount is left", || (look(NOBODY).mounts <= mounts).then_some(()));
        fs::remove_dir_all(&scene.state).ok();
    }
}
