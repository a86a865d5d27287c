//! What happens when the connection or one of the two processes ends: nothing hangs, and no sandbox stays.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use relay::WireGuest;
use sandbox::conformance::Guest;
use sandbox::workspace::{NotHeld, WorkspaceRef};
use sandbox::{Backend, BackendError, Ending, InventoryError, Sandbox, SandboxSpec, ToolchainQuery};

use crate::{relayed, test};

/// The first argument of a client that will be killed.
const ROLE: &str = "be-a-client";
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("death::everything_ends_when_the_relay_is_killed", everything_ends_when_the_relay_is_killed),
        test("death::a_call_in_progress_ends_with_the_relay", a_call_in_progress_ends_with_the_relay),
        test("death::a_relay_that_is_stopped_can_be_killed", a_relay_that_is_stopped_can_be_killed),
        test("death::a_wall_that_is_dropped_ends_its_relay", a_wall_that_is_dropped_ends_its_relay),
        test("death::a_client_that_is_killed_leaves_no_relay", a_client_that_is_killed_leaves_no_relay),
    ]
}

/// All processes below one, each with its start time, so that a number used again is another process.
fn descendants(pid: u32) -> BTreeSet<(u32, String)> {
    let mut found = BTreeSet::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
                if found.insert((child, started(child))) {
                    parents.push(child);
                }
            }
        }
    }
    found
}

/// When a process started; empty if it does not exist or is dead.
fn started(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let is_dead = fields.first().is_none_or(|state| ["Z", "X"].contains(state));
    if is_dead { String::new() } else { fields.get(19).copied().unwrap_or_default().to_owned() }
}

fn is_alive((pid, start): &(u32, String)) -> bool {
    !start.is_empty() && started(*pid) == *start
}

async fn assert_all_end(processes: &BTreeSet<(u32, String)>) {
    let deadline = Instant::now() + PATIENCE;
    while processes.iter().any(is_alive) {
        let left: Vec<_> = processes.iter().filter(|process| is_alive(process)).collect();
        assert!(Instant::now() < deadline, "{left:?} are left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("nothing hangs")
}

fn assert_unavailable<T>(result: Result<T, BackendError>) {
    match result.err() {
        Some(error @ BackendError::Unavailable { .. }) => assert!(error.retry_after_ms().is_some()),
        other => panic!("{other:?}"),
    }
}

/// A sandbox in which a program runs.
async fn inhabited(backend: &dyn Backend) -> (Box<dyn Sandbox>, Box<dyn sandbox::conformance::Shell>) {
    let mut sandbox = backend.create(&SandboxSpec::default()).await.unwrap();
    let stream = sandbox.take_stream().unwrap();
    let mut shell = WireGuest.connect(stream).await.unwrap();
    shell.run("sleep 1000 >/dev/null 2>&1 & echo begun").await.unwrap();
    (sandbox, shell)
}

async fn everything_ends_when_the_relay_is_killed() {
    let (backend, mut process) = relayed();
    let (mut sandbox, mut shell) = inhabited(&backend).await;
    let processes = descendants(process.pid());
    assert!(processes.len() >= 3, "spawner, guest and program: {processes:?}");
    process.kill().unwrap();
    assert!(soon(shell.run("echo still there")).await.is_err(), "the stream has ended");
    assert_eq!(soon(sandbox.watch()).await, Ending::Gone);
    assert_eq!(soon(sandbox.look()).await, Some(Ending::Gone));
    soon(sandbox.usage()).await;
    soon(sandbox.measure_anew(&sandbox::Limits::default(), None)).await;
    assert_unavailable(soon(sandbox.destroy()).await);
    assert_unavailable(soon(backend.create(&SandboxSpec::default())).await);
    assert_unavailable(soon(backend.probe()).await);
    let found = soon(backend.inventory().find(&ToolchainQuery::default())).await;
    assert!(matches!(found, Err(InventoryError::Late { .. })), "{found:?}");
    let (store, of) =
        (backend.workspaces().unwrap(), WorkspaceRef { id: "sbx_lost".to_owned(), identity: 1 });
    assert_eq!(soon(store.create(&of)).await.unwrap_err().code(), "files_unavailable");
    let held = soon(store.hold(&of)).await;
    assert!(matches!(held, Err(NotHeld::Unavailable { .. })), "{held:?}");
    drop(sandbox);
    assert_all_end(&processes).await;
}

async fn a_call_in_progress_ends_with_the_relay() {
    let (backend, mut process) = relayed();
    let (mut sandbox, _shell) = inhabited(&backend).await;
    let watching = tokio::spawn(async move { sandbox.watch().await });
    tokio::task::yield_now().await;
    process.kill().unwrap();
    assert_eq!(soon(watching).await.unwrap(), Ending::Gone);
}

/// A relay that does not answer makes its callers wait until it ends.
async fn a_relay_that_is_stopped_can_be_killed() {
    let (backend, mut process) = relayed();
    let (_sandbox, _shell) = inhabited(&backend).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(process.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let spec = SandboxSpec::default();
    let created = tokio::time::timeout(Duration::from_millis(300), backend.create(&spec)).await;
    assert!(created.is_err(), "a relay that is stopped does not answer");
    process.kill().unwrap();
    assert_unavailable(soon(backend.create(&spec)).await);
}

async fn a_wall_that_is_dropped_ends_its_relay() {
    let (backend, mut process) = relayed();
    let inhabited = inhabited(&backend).await;
    let processes = descendants(process.pid());
    drop(backend);
    tokio::task::spawn_blocking(move || process.wait()).await.unwrap().unwrap();
    assert_all_end(&processes).await;
    drop(inhabited);
}

/// Becomes a client with a sandbox, and waits to be killed.
pub(crate) fn take_role() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != ROLE {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (backend, process) = relayed();
        let _inhabited = inhabited(&backend).await;
        println!("{}", process.pid());
        std::future::pending::<()>().await;
    });
    Some(ExitCode::SUCCESS)
}

async fn a_client_that_is_killed_leaves_no_relay() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut client = command.arg(ROLE).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(client.stdout.take().unwrap().by_ref()).read_line(&mut line).unwrap();
    let relay: u32 = line.trim().parse().unwrap();
    let mut processes = descendants(client.id());
    assert!(processes.len() >= 4, "relay, spawner, guest and program: {processes:?}");
    processes.insert((relay, started(relay)));
    client.kill().unwrap();
    client.wait().unwrap();
    assert_all_end(&processes).await;
}
