//! What is on standard error of a server: readable, and nothing of what callers send or programs write, at any level.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use functional::{SOON, marker, until};
use harness::mcp::Client;
use harness::{Build, Palisade, TestFolder, User, users};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

/// Starting a zygote and cloning from it takes a few runs.
const TRIES_MAX: usize = 400;

struct Logged {
    client: Client,
    log: PathBuf,
    _folder: TestFolder,
}

impl Logged {
    fn start(user: User, arguments: &[&str]) -> Self {
        let folder = TestFolder::new();
        let log = folder.path().join("log");
        let palisade = Palisade::new(Build::Real, user, &["mcp"]).args(arguments);
        let client = Client::start_logging(palisade, File::create(&log).unwrap());
        Self { client, log, _folder: folder }
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.log).unwrap().lines().map(str::to_owned).collect()
    }

    /// Lines of that event, as JSON.
    fn events(&self, name: &str) -> Vec<Value> {
        let parsed = self.lines().into_iter().map(|line| serde_json::from_str::<Value>(&line).expect(&line));
        parsed.filter(|line| line["event"] == name).collect()
    }

    /// Everything that a caller can send, with the word in it.
    fn send_everything(&self, word: &str) {
        let echo =
            format!("import sys, os\nprint('{word}', sys.argv, sys.stdin.read(), open('{word}').read())\n");
        let client = &self.client;
        let inputs = json!([{ "path": word, "text": word }]);
        let ran = client.call(
            "run",
            json!({ "language": "python", "code": echo, "args": [word], "stdin": word, "inputs": inputs }),
        );
        assert!(ran["stdout"].as_str().is_some_and(|out| out.matches(word).count() >= 4), "{ran:#}");
        let failing = format!("raise SystemError('{word}')");
        client.call("run", json!({ "language": "python", "code": failing }));
        client.call("validate_code", json!({ "language": "python", "code": format!("'{word}' (") }));
        client.begin("run", json!({ "language": "python", word: word })).answer();
        client.begin(word, json!({ word: word })).answer();
        let sandbox = client.open(json!({ "name": word }));
        client.call("write_file", json!({ "sandbox_id": sandbox, "path": word, "text": word }));
        client.run(&sandbox, "python", &format!("x = '{word}'; print(open('{word}').read())"));
        client.run(&sandbox, "bash", &format!("echo {word}; cat {word}"));
        client.call("read_file", json!({ "sandbox_id": sandbox, "path": word }));
        client.call("sandbox_close", json!({ "sandbox_id": sandbox }));
    }
}

#[test]
fn nothing_that_callers_send_or_programs_write_is_logged_at_any_level() {
    for user in users() {
        for (level, format) in [("info", "json"), ("trace", "json"), ("trace", "pretty")] {
            let logged = Logged::start(user, &["--log-level", level, "--log-format", format]);
            let word = marker("log");
            logged.send_everything(&word);
            let lines = logged.lines();
            assert!(lines.iter().any(|line| line.contains("run_ended")), "{lines:#?}");
            let told = lines.iter().find(|line| line.contains(&word));
            assert_eq!(told, None, "as {user:?} at {level}");
        }
    }
}

#[test]
fn lines_for_people_begin_with_time_level_and_event_and_have_no_colours_in_a_file() {
    let logged = Logged::start(users()[0], &["--log-level", "debug", "--log-format", "pretty"]);
    logged.client.call("run", json!({ "language": "bash", "code": "exit 3" }));
    let ended = until(SOON, "the end is logged", || {
        logged.lines().into_iter().find(|line| line.contains(" run_ended "))
    });
    let words: Vec<&str> = ended.split_whitespace().collect();
    assert!(words[0].len() == "12:44:01.123Z".len() && words[0].ends_with('Z'), "{ended}");
    assert_eq!(words[1..3], ["INFO", "run_ended"], "{ended}");
    for field in ["run_id=run_", "principal=local", "language=bash", "outcome="] {
        assert!(ended.contains(field), "{field} in {ended}");
    }
    assert!(!logged.lines().concat().contains('\u{1b}'));
}

#[test]
fn what_is_not_a_terminal_gets_json_unless_it_asks_otherwise() {
    let logged = Logged::start(users()[0], &[]);
    logged.client.call("run", json!({ "language": "bash", "code": ":" }));
    until(SOON, "the end is logged", || logged.events("run_ended").pop());
    let unknown = Palisade::new(Build::Real, users()[0], &["mcp", "--log-format", "xml"]).end();
    assert!(unknown.stderr.contains("auto, json, pretty"), "{}", unknown.stderr);
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// The zygotes of a server: children of its spawner that were started as such.
fn zygotes(server: u32) -> Vec<u32> {
    let is_zygote = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.windows(8).any(|part| part == b"\0zygote\0"))
    };
    children(server).into_iter().flat_map(children).filter(is_zygote).collect()
}

#[test]
fn a_zygote_that_dies_is_told_once_with_its_cause_and_no_run_fails() {
    let logged = Logged::start(users()[0], &["--log-format", "json"]);
    let run = || {
        let ran = logged.client.call("run", json!({ "language": "python", "code": "print(6*7)" }));
        assert_eq!(ran["stdout"], "42\n", "{ran:#}");
    };
    let zygote = until(Duration::from_secs(60), "there is a zygote", || {
        run();
        zygotes(logged.client.pid()).pop()
    });
    rustix::process::kill_process(Pid::from_raw(zygote as i32).unwrap(), Signal::KILL).unwrap();
    for _ in 0..TRIES_MAX {
        run();
        if !logged.events("zygote_failed").is_empty() {
            break;
        }
    }
    (0..10).for_each(|_| run());
    let told = logged.events("zygote_failed");
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!((&told[0]["level"], &told[0]["count"]), (&json!("warn"), &json!(1)));
    let subject = told[0]["subject"].as_str().unwrap();
    assert!(subject.starts_with("python") && !subject.contains('/'), "{subject}");
    assert!(told[0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{told:#?}");
}

/// Hears every request and answers each with 200.
fn collector() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let heard = Arc::<Mutex<String>>::default();
    let kept = Arc::clone(&heard);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
            loop {
                let count = stream.read(&mut piece).unwrap_or(0);
                bytes.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let length = text.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next());
                let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                if count == 0 || length.is_some_and(|length| body.len() >= length.parse::<usize>().unwrap()) {
                    kept.lock().unwrap().push_str(body);
                    kept.lock().unwrap().push('\n');
                    break;
                }
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").ok();
        }
    });
    (endpoint, heard)
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let attributes = span["attributes"].as_array()?;
    attributes.iter().find(|attribute| attribute["key"] == key)?["value"]["stringValue"].as_str()
}

#[test]
fn a_collector_gets_the_span_of_a_run_and_nothing_of_the_caller() {
    for user in users() {
        let (endpoint, heard) = collector();
        let logged = Logged::start(user, &["--log-level", "error", "--otlp-endpoint", &endpoint]);
        let word = marker("otlp");
        logged.send_everything(&word);
        let Logged { client, log, _folder } = logged;
        assert!(client.end().success());
        let heard = heard.lock().unwrap().clone();
        assert!(!heard.contains(&word), "as {user:?}: {heard}");
        let batches = heard.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let spans: Vec<Value> = batches
            .flat_map(|batch| batch["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone())
            .collect();
        let runs: Vec<&Value> = spans.iter().filter(|span| span["name"] == "run").collect();
        assert!(runs.len() >= 4, "{spans:#?}");
        let completed = runs.iter().find(|run| attribute(run, "outcome") == Some("completed")).unwrap();
        assert!(attribute(completed, "run_id").is_some_and(|id| id.starts_with("run_")), "{completed:#}");
        let nanos = |key: &str| completed[key].as_str().unwrap().parse::<u128>().unwrap();
        assert!(nanos("endTimeUnixNano") > nanos("startTimeUnixNano"));
        let is_within =
            |span: &&Value| span["traceId"] == completed["traceId"] && span["name"] == "conversation";
        assert!(spans.iter().any(|span| is_within(&span)), "{spans:#?}");
        assert_eq!(fs::read_to_string(&log).unwrap(), "", "spans are sent whatever is logged");
    }
}

#[test]
fn a_collector_that_is_not_there_holds_up_no_run_and_is_told_once() {
    // Bound and not listened on by anybody once this is dropped.
    let endpoint = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let logged = Logged::start(users()[0], &["--otlp-endpoint", &endpoint]);
    for _ in 0..3 {
        let ran = logged.client.call("run", json!({ "language": "bash", "code": "echo 42" }));
        assert_eq!(ran["stdout"], "42\n");
    }
    let told = until(SOON, "it is told", || logged.events("export_failed").pop());
    assert_eq!((&told["subject"], &told["count"]), (&json!("collector"), &json!(1)));
    let Logged { client, log, _folder } = logged;
    assert!(client.end().success());
    assert_eq!(fs::read_to_string(&log).unwrap().matches("export_failed").count(), 1);
}
