//! Tests of contexts, over guests whose interpreters report their end at once.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sandbox::Outcome;
use sandbox::fake::FakeBackend;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use wire::{Exit, FrameBuffer, FromGuest, Stream, ToGuest, VERSION};

use super::contexts::NAMED_INTERPRETERS_MAX;
use super::upkeep_tests::{Scene, done, say};
use super::*;
use crate::RunRequest;
use crate::result::RunResult;

const PATIENCE: Duration = Duration::from_secs(20);
const SIGKILL: i32 = 9;

fn context(name: &str) -> ContextName {
    ContextName::parse(name).unwrap()
}

fn address(id: &SandboxId, name: &str) -> SandboxAddress {
    SandboxAddress { id: id.clone(), context: Some(context(name)) }
}

fn request(at: SandboxAddress) -> RunRequest {
    let (language, code) = ("bash".to_owned(), ":".to_owned());
    RunRequest { language, code, sandbox: Some(at), ..RunRequest::default() }
}

/// Begins a run in a context. The sender stops it.
fn begin(scene: &Scene, at: SandboxAddress) -> (oneshot::Sender<crate::Stop>, JoinHandle<RunResult>) {
    let (sender, stop) = oneshot::channel();
    let (sandboxes, audience) = (Arc::clone(&scene.sandboxes), crate::conversation::Audience::default());
    let run = async move { sandboxes.run(&Caller::local(), request(at), Ties { audience, stop }).await };
    (sender, tokio::spawn(run))
}

async fn ended(run: JoinHandle<RunResult>) -> RunResult {
    tokio::time::timeout(PATIENCE, run).await.expect("it ends").unwrap()
}

async fn run(scene: &Scene, at: SandboxAddress) -> RunResult {
    let (_keep, run) = begin(scene, at);
    ended(run).await
}

/// A run that completes without a warning.
async fn quiet(scene: &Scene, at: SandboxAddress) {
    let result = run(scene, at).await;
    assert_eq!((result.outcome, &result.warnings), (Outcome::Completed, &Vec::new()), "{result:?}");
}

/// A run that completes and warns.
async fn warned(scene: &Scene, at: SandboxAddress, of: &str) {
    let result = run(scene, at).await;
    assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
    assert!(result.warnings.iter().any(|warning| warning.contains(of)), "{:?}", result.warnings);
}

async fn remove(scene: &Scene, id: &SandboxId, name: &str) -> Result<(), RunError> {
    let (caller, context) = (Caller::local(), context(name));
    let removed = scene.sandboxes.close_context(&caller, id, &context);
    tokio::time::timeout(PATIENCE, removed).await.expect("it answers")
}

/// All interpreters of the only sandbox: `bash awake`, `bash#etl asleep`.
async fn listed(sandboxes: &Sandboxes) -> Vec<String> {
    let list = sandboxes.list(&Caller::local()).await.unwrap();
    let one = |info: &ContextInfo| {
        let name = InterpreterName { context: info.context.clone(), interpreter: info.language.clone() };
        format!("{name} {}", if info.is_awake { "awake" } else { "asleep" })
    };
    let mut names: Vec<String> = list[0].contexts.iter().map(one).collect();
    names.sort();
    names
}

/// A guest that answers `Drain`, and everything else with `answer`, which has a state per sandbox.
fn guest<S: Default>(
    answer: impl Fn(&mut UnixStream, &mut S, ToGuest) + Send + Sync + 'static,
) -> FakeBackend {
    FakeBackend::new(move |mut stream| {
        say(&mut stream, &FromGuest::Hello { version: VERSION });
        let (mut frames, mut bytes, mut state) = (FrameBuffer::default(), [0; 4096], S::default());
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            frames.extend(&bytes[..count]);
            while let Some(message) = frames.next::<ToGuest>().unwrap() {
                match message {
                    ToGuest::Drain { request, .. } => say(&mut stream, &FromGuest::Done { request }),
                    message => answer(&mut stream, &mut state, message),
                }
            }
        }
    })
}

fn exited(process: u32) -> FromGuest {
    FromGuest::Exited { process, exit: Exit::Signal(SIGKILL) }
}

#[tokio::test]
async fn a_context_is_made_by_use_listed_and_removed_alone() {
    let scene = Scene::new("contexts");
    let id = scene.open().await;
    assert_eq!(listed(&scene.sandboxes).await, Vec::<String>::new());
    for at in [id.clone().into(), address(&id, "etl"), address(&id, "default")] {
        quiet(&scene, at).await;
    }
    let named = run(&scene, address(&id, "etl")).await.lasting.unwrap();
    assert_eq!((named.sandbox, named.context), (id.clone(), Some(context("etl"))));
    assert_eq!(run(&scene, id.clone().into()).await.lasting.unwrap().context, None);
    assert_eq!(listed(&scene.sandboxes).await, ["bash awake", "bash#etl awake"]);
    assert_eq!(scene.fake.alive(), 1, "they share one sandbox");
    remove(&scene, &id, "etl").await.unwrap();
    assert_eq!(listed(&scene.sandboxes).await, ["bash awake"]);
    assert_eq!(remove(&scene, &id, "etl").await.unwrap_err().code, "unknown_context");
    quiet(&scene, id.clone().into()).await;
    quiet(&scene, address(&id, "etl")).await;
    remove(&scene, &id, "default").await.unwrap();
    assert_eq!(listed(&scene.sandboxes).await, ["bash#etl awake"]);
    remove(&scene, &id, "default").await.unwrap();
    assert_eq!(scene.fake.alive(), 1);
    assert_eq!(scene.sandboxes.close(&Caller::local(), &id).await, Ok(true));
    assert_eq!((scene.fake.alive(), scene.workspaces.ids()), (0, Vec::new()));
    assert_eq!(remove(&scene, &id, "etl").await.unwrap_err().code, "unknown_sandbox");
}

#[tokio::test]
async fn contexts_are_bounded_and_the_default_one_is_always_there() {
    let scene = Scene::new("many");
    let id = scene.open().await;
    for number in 0..NAMED_INTERPRETERS_MAX {
        quiet(&scene, address(&id, &format!("c{number}"))).await;
    }
    let refused = run(&scene, address(&id, "one-more")).await;
    let error = refused.error.unwrap();
    assert_eq!((refused.outcome, error.code.as_str()), (Outcome::Refused, "too_many_contexts"));
    assert!(error.remedy.unwrap().contains("sandbox_close"));
    quiet(&scene, id.clone().into()).await;
    quiet(&scene, address(&id, "c3")).await;
    // Contexts that sleep count as well: their callers are told of the loss by the next run.
    scene.sandboxes.look_after(clock::unix_ms() + IDLE_MS_MAX + 1000).await;
    assert_eq!(run(&scene, address(&id, "one-more")).await.error.unwrap().code, "too_many_contexts");
    remove(&scene, &id, "c3").await.unwrap();
    quiet(&scene, address(&id, "one-more")).await;
}

#[tokio::test]
async fn a_sandbox_that_slept_reports_the_loss_in_each_context_once() {
    let scene = Scene::new("sleep");
    let id = scene.open().await;
    let all = || [id.clone().into(), address(&id, "a"), address(&id, "b")];
    for at in all() {
        quiet(&scene, at).await;
    }
    scene.sandboxes.look_after(clock::unix_ms() + IDLE_MS_MAX + 1000).await;
    assert_eq!(listed(&scene.sandboxes).await, ["bash asleep", "bash#a asleep", "bash#b asleep"]);
    remove(&scene, &id, "b").await.unwrap();
    for at in all().into_iter().take(2) {
        warned(&scene, at, "was idle for long").await;
    }
    for at in all() {
        quiet(&scene, at).await;
    }
}

#[tokio::test]
async fn the_next_server_knows_the_contexts_of_the_one_before() {
    let scene = Scene::new("next");
    let id = scene.open().await;
    for at in [id.clone().into(), address(&id, "kept"), address(&id, "removed")] {
        quiet(&scene, at).await;
    }
    remove(&scene, &id, "removed").await.unwrap();
    let next = Scene::with("next", scene.fake.clone(), scene.workspaces.clone());
    // The server before may have been killed: it has told the store everything by now.
    assert_eq!(listed(&next.sandboxes).await, ["bash asleep", "bash#kept asleep"]);
    scene.sandboxes.shutdown().await;
    warned(&next, address(&id, "kept"), "the server was restarted").await;
    quiet(&next, address(&id, "removed")).await;
}

#[tokio::test]
async fn removing_a_context_ends_its_runs_and_waits_for_others() {
    let (sender, mut orders) = mpsc::channel(8);
    let scene = Scene::over(
        "removal",
        guest(move |stream, (): &mut (), message| match message {
            ToGuest::Control { process, .. } => sender.blocking_send(process).unwrap(),
            ToGuest::Signal { process, signal: SIGKILL } => say(stream, &exited(process)),
            _ => {}
        }),
    );
    let id = scene.open().await;
    let (_keep, first) = begin(&scene, address(&id, "a"));
    orders.recv().await.unwrap();
    let (stop_other, other) = begin(&scene, address(&id, "b"));
    while scene.sandboxes.entries()[&id].waiting() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let closing = {
        let (sandboxes, id) = (Arc::clone(&scene.sandboxes), id.clone());
        tokio::spawn(async move { sandboxes.close_context(&Caller::local(), &id, &context("a")).await })
    };
    assert_eq!(ended(first).await.outcome, Outcome::Killed);
    // The run in the other context has its turn first and is not ended.
    orders.recv().await.unwrap();
    let (_kept, late) = begin(&scene, address(&id, "a"));
    assert_eq!(ended(late).await.outcome, Outcome::Killed, "the context is being removed");
    assert!(!other.is_finished() && !closing.is_finished());
    stop_other.send(crate::Stop::Cancelled).unwrap();
    assert_eq!(ended(other).await.outcome, Outcome::Cancelled);
    tokio::time::timeout(PATIENCE, closing).await.expect("it gets its turn").unwrap().unwrap();
    assert_eq!(listed(&scene.sandboxes).await, ["bash#b asleep"], "both were killed");
}

#[tokio::test]
async fn a_context_does_not_get_round_the_owner_of_a_sandbox() {
    let scene = Scene::new("owner");
    let id = scene.open().await;
    quiet(&scene, address(&id, "etl")).await;
    let other = Caller { principal: Principal::new("key:other").unwrap(), ..Caller::local() };
    for name in ["etl", "default", "new"] {
        let refused = scene.sandboxes.close_context(&other, &id, &context(name)).await.unwrap_err();
        assert_eq!(refused.code, "unknown_sandbox");
        let (_keep, stop) = oneshot::channel();
        let ties = Ties { audience: crate::conversation::Audience::default(), stop };
        let refused = scene.sandboxes.run(&other, request(address(&id, name)), ties).await;
        assert_eq!(refused.error.unwrap().code, "unknown_sandbox");
    }
    assert_eq!(listed(&scene.sandboxes).await, ["bash#etl awake"]);
}

#[tokio::test]
async fn an_interpreter_that_died_is_reported_and_others_keep_their_state() {
    /// The number of orders, and the process of the first one.
    type Seen = (u32, Option<u32>);
    let dying = guest(|stream, (orders, first): &mut Seen, message| match message {
        ToGuest::Control { process, data, .. } => {
            let victim = *first.get_or_insert(process);
            *orders += 1;
            if *orders == 3 {
                say(stream, &exited(victim));
            }
            say(stream, &FromGuest::Control { process, data: done(&data) });
        }
        ToGuest::AwaitIdle { request, .. } => say(stream, &FromGuest::Done { request }),
        _ => {}
    });
    let scene = Scene::over("died", dying);
    let id = scene.open().await;
    quiet(&scene, address(&id, "a")).await;
    quiet(&scene, address(&id, "b")).await;
    warned(&scene, address(&id, "b"), "the interpreter bash#a of this sandbox has ended").await;
    assert_eq!(listed(&scene.sandboxes).await, ["bash#a asleep", "bash#b awake"]);
    warned(&scene, address(&id, "a"), "it ended between two runs").await;
    quiet(&scene, address(&id, "b")).await;
}

#[tokio::test]
async fn a_guest_that_breaks_while_it_ends_an_interpreter_is_lost() {
    let breaking = guest(|stream, (): &mut (), message| match message {
        ToGuest::Control { process, data, .. } => {
            say(stream, &FromGuest::Control { process, data: done(&data) });
        }
        ToGuest::AwaitIdle { request, .. } => say(stream, &FromGuest::Done { request }),
        ToGuest::Signal { .. } => stream.shutdown(std::net::Shutdown::Both).unwrap(),
        _ => {}
    });
    let scene = Scene::over("lost", breaking);
    let id = scene.open().await;
    quiet(&scene, address(&id, "a")).await;
    quiet(&scene, address(&id, "b")).await;
    remove(&scene, &id, "a").await.unwrap();
    assert_eq!(scene.fake.alive(), 0, "nothing of the context lives");
    warned(&scene, address(&id, "b"), "ended unexpectedly").await;
    quiet(&scene, address(&id, "a")).await;
}

#[tokio::test]
async fn output_of_others_is_kept_while_a_context_is_removed() {
    let chatty = guest(|stream, (): &mut (), message| match message {
        ToGuest::Control { process, data, .. } => {
            say(stream, &FromGuest::Control { process, data: done(&data) });
        }
        ToGuest::AwaitIdle { request, .. } => say(stream, &FromGuest::Done { request }),
        ToGuest::Signal { process, signal: SIGKILL } => {
            for (process, text) in [(process, "of the killed"), (process + 1, "of another")] {
                let data = text.as_bytes().to_vec();
                say(stream, &FromGuest::Output { process, stream: Stream::Stdout, data });
            }
            say(stream, &exited(process));
        }
        _ => {}
    });
    let scene = Scene::over("output", chatty);
    let id = scene.open().await;
    quiet(&scene, address(&id, "a")).await;
    quiet(&scene, address(&id, "b")).await;
    remove(&scene, &id, "a").await.unwrap();
    let next = run(&scene, address(&id, "b")).await;
    assert_eq!(next.execution().stdout, b"of another", "{next:?}");
}
