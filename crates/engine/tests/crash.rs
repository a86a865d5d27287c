//! A server that is killed at any moment loses no acknowledged data, and leaves no run recorded as running.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::support::{Folder, PATIENCE, find_finished, program, runs};
use engine::{Caller, Durability, RunId};
use sandbox::Outcome;

const FOLDER: &str = "PALISADE_TEST_CRASH_FOLDER";
const KILLS: u32 = 8;

fn tell(word: &str, id: &RunId) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "\n{word} {id}").unwrap();
    stdout.flush().unwrap();
}

/// The server that is killed: the parent starts this test again with a folder to write to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(FOLDER) else { return };
    let folder = Folder::at(path.into());
    let runs = runs(&folder, Durability::BeforeReply);
    let me = Caller::local();
    let mut left_running = Vec::new();
    for number in 0_u32.. {
        let code = format!("out {number}\nerr e\n{}", if number % 5 == 0 { "wait" } else { "exit 0" });
        let mut started = runs.start(&me, program(&code)).unwrap();
        if number % 5 == 0 {
            started.hand_over().await.unwrap();
            tell("handed", started.id());
            left_running.push(started);
            if left_running.len() > 8 {
                left_running.remove(0).stop(engine::Stop::Killed);
            }
        } else {
            let run = started.finished().await;
            assert_eq!(run.result.warnings, Vec::<String>::new());
            tell("finished", &run.id);
        }
    }
}

fn child(folder: &Folder) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::writes_until_it_is_killed", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn killed_at_any_moment_nothing_acknowledged_is_lost() {
    let folder = Folder::new();
    let me = Caller::local();
    let mut told: Vec<(String, RunId)> = Vec::new();
    for _ in 0..KILLS {
        let mut child = child(&folder);
        let output = BufReader::new(child.stdout.take().unwrap());
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(150 + u64::from(nanos % 350)));
            child.kill().unwrap();
            child.wait().unwrap();
        });
        for line in output.lines().map_while(Result::ok) {
            if let Some((word @ ("handed" | "finished"), id)) = line.split_once(' ')
                && let Some(id) = RunId::parse(id)
            {
                told.push((word.to_owned(), id));
            }
        }
        killer.join().unwrap();
        let runs = runs(&folder, Durability::BeforeReply);
        for (word, id) in &told {
            let run = find_finished(&runs, &me, id).await.unwrap_or_else(|| panic!("{word} {id} is lost"));
            if word == "finished" {
                assert_eq!(
                    (run.result.outcome, run.result.execution().stderr.as_slice()),
                    (Outcome::Completed, &b"e"[..])
                );
                assert!(!run.result.execution().stdout.is_empty());
            } else {
                assert_eq!(run.result.outcome, Outcome::Killed, "{id}");
            }
        }
        assert!(runs.list(&me, 1000).await.unwrap().iter().all(|run| run.outcome != Outcome::Running));
        let file = rusqlite::Connection::open(folder.database()).unwrap();
        let sound: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        runs.shutdown(engine::Stop::Killed, PATIENCE).await;
    }
    assert!(told.iter().any(|(word, _)| word == "handed") && told.iter().any(|(word, _)| word == "finished"));
}

#[tokio::test]
async fn runs_of_a_dead_server_are_closed_with_a_reason() {
    let folder = Folder::new();
    let mut child = child(&folder);
    let output = BufReader::new(child.stdout.take().unwrap());
    let line = output.lines().map_while(Result::ok).find(|line| line.starts_with("handed ")).unwrap();
    let id = RunId::parse(line.trim_start_matches("handed ")).unwrap();
    let me = Caller::local();
    let before = runs(&folder, Durability::BeforeReply);
    let live = before.find(&me, &id).await.unwrap();
    assert!(matches!(live, Some(engine::FoundRun::Elsewhere(_))), "the living are left alone");
    child.kill().unwrap();
    child.wait().unwrap();
    // Both a server that was running before and one that starts now see that the run is over.
    for runs in [before, runs(&folder, Durability::BeforeReply)] {
        let run = find_finished(&runs, &me, &id).await.unwrap();
        assert_eq!(run.result.outcome, Outcome::Killed);
        let error = run.result.error.clone().unwrap();
        assert_eq!(error.code, "server_restarted");
        assert!(error.remedy.is_some());
    }
}
