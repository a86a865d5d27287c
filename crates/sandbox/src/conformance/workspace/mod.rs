//! Files that last: the store of workspaces, the files of one from outside, and what a sandbox sees of them.

mod files;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::wait::{pause, within};
use super::{Subject, destroy, holds, run};
use crate::workspace::{FileError, FilePath, Quota, Workspace, WorkspaceRef, WorkspaceStore};
use crate::{Limits, SandboxSpec};

const QUOTA: Quota = Quota { bytes: 4 << 20, inodes: 200 };

static NAMED: AtomicU64 = AtomicU64::new(0);

pub(super) async fn check(subject: Subject<'_>) -> Result<(), String> {
    let store = subject.backend.workspaces().ok_or("the backend has no files that last")?;
    store::check(store).await?;
    files::check(store).await?;
    if subject.guest.is_some() {
        store::recent_strangers_stay(store).await?;
        sandboxes_see_the_files(subject, store).await?;
        a_destroyed_sandbox_writes_no_more(subject, store).await?;
    }
    Ok(())
}

/// A workspace that is removed at the end of its clauses.
async fn created(store: &dyn WorkspaceStore) -> Result<WorkspaceRef, String> {
    let number = NAMED.fetch_add(1, Ordering::Relaxed);
    let id = format!("sbx_conformance-{}-{number}", std::process::id());
    let of = WorkspaceRef { id, identity: 1 };
    outcome("create makes a workspace", store.create(&of)).await?;
    Ok(of)
}

async fn opened(store: &dyn WorkspaceStore, of: &WorkspaceRef) -> Result<Arc<dyn Workspace>, String> {
    outcome("a workspace can be opened", store.open(of, QUOTA)).await
}

/// What an operation returns that must succeed within the patience.
async fn outcome<T>(
    clause: &str,
    operation: impl Future<Output = Result<T, FileError>>,
) -> Result<T, String> {
    within(clause, operation).await?.map_err(|error| format!("{clause}; found {error} ({})", error.code()))
}

/// Checks that an operation fails with this code.
async fn fails<T>(
    clause: &str,
    code: &str,
    operation: impl Future<Output = Result<T, FileError>>,
) -> Result<(), String> {
    let found = within(clause, operation).await?.map(drop).map_err(|error| error.code());
    holds(found == Err(code), clause, &found)
}

fn path(text: &str) -> Result<FilePath, String> {
    FilePath::parse(text).map_err(|error| error.to_string())
}

async fn content(workspace: &dyn Workspace, name: &str) -> Result<Vec<u8>, String> {
    let part = outcome("a file can be read", workspace.read(&path(name)?, 0, 1 << 16)).await?;
    Ok(part.bytes)
}

fn spec(of: &WorkspaceRef) -> SandboxSpec {
    let limits = Limits { disk_bytes: QUOTA.bytes, disk_inodes: QUOTA.inodes, ..Limits::default() };
    SandboxSpec { limits, workspace: Some(of.clone()), ..SandboxSpec::default() }
}

async fn sandboxes_see_the_files(subject: Subject<'_>, store: &dyn WorkspaceStore) -> Result<(), String> {
    let of = created(store).await?;
    let workspace = opened(store, &of).await?;
    outcome("write", workspace.write(&path("data/in")?, b"from outside".to_vec())).await?;
    let snapshot = outcome("snapshot", workspace.snapshot(crate::workspace::Pace::Aside)).await?;
    let (mut sandbox, mut shell) = subject.inhabited(&spec(&of)).await?;
    let seen = run(&mut shell, "cat data/in").await?;
    holds(seen == "from outside", "a sandbox sees what was written outside", &seen)?;
    let changed = run(&mut shell, "echo more >> data/in && mv data/in data/new && cat data/new").await?;
    holds(changed == "from outsidemore\n", "a program may change what was written outside", &changed)?;
    run(&mut shell, "printf inside > out").await?;
    let seen = content(&*workspace, "out").await?;
    holds(seen == b"inside", "what a program writes is seen outside", &seen)?;
    let changes = snapshot.changes(crate::workspace::Pace::Aside);
    let changes = outcome("changes", changes).await?;
    let mut names: Vec<&str> = changes.files.iter().map(|file| file.path.as_str()).collect();
    names.sort_unstable();
    holds(names == ["data/new", "out"], "changes are what the program wrote", &names)?;
    links_lead_nowhere(&mut shell, &*workspace).await?;
    destroy(&mut sandbox).await?;
    drop(sandbox);
    let kept = content(&*workspace, "out").await?;
    holds(kept == b"inside", "files survive their sandbox", &kept)?;
    let (_sandbox, mut shell) = subject.inhabited(&spec(&of)).await?;
    let seen = run(&mut shell, "cat out").await?;
    holds(seen == "inside", "the next sandbox sees the files of the one before", &seen)?;
    drop((_sandbox, shell));
    outcome("remove", store.remove(&of)).await
}

/// A program's links do not take an operation from outside to another place.
async fn links_lead_nowhere(
    shell: &mut Box<dyn super::Shell>,
    workspace: &dyn Workspace,
) -> Result<(), String> {
    run(shell, "ln -s /etc/hostname away; ln -s /etc upwards; mkfifo pipe").await?;
    fails("a link is not followed", "bad_path", workspace.read(&path("away")?, 0, 10)).await?;
    fails("a link in a path is not followed", "bad_path", workspace.read(&path("upwards/hostname")?, 0, 10))
        .await?;
    let beyond = path("upwards/conformance")?;
    let write = workspace.write(&beyond, b"x".to_vec());
    fails("nothing is written through a link", "bad_path", write).await?;
    // A wall with a kernel of its own may keep pipes there, and none on the disk.
    let pipe = within("a pipe is not waited for", workspace.read(&path("pipe")?, 0, 10)).await?;
    let pipe = pipe.map(drop).map_err(|error| error.code());
    holds(matches!(pipe, Err("not_a_file" | "not_found")), "a pipe is not read", &pipe)?;
    run(shell, "rm away upwards pipe").await.map(drop)
}

/// Programs inside are dead when destroy returns, so their files no longer change.
async fn a_destroyed_sandbox_writes_no_more(
    subject: Subject<'_>,
    store: &dyn WorkspaceStore,
) -> Result<(), String> {
    let of = created(store).await?;
    let workspace = opened(store, &of).await?;
    let (mut sandbox, mut shell) = subject.inhabited(&spec(&of)).await?;
    run(&mut shell, "(while :; do echo x > tick; sleep 0.01; rm tick; done) >/dev/null 2>&1 & echo begun")
        .await?;
    destroy(&mut sandbox).await?;
    outcome("write", workspace.write(&path("tick")?, b"outside".to_vec())).await?;
    pause(std::time::Duration::from_millis(100)).await;
    let seen = content(&*workspace, "tick").await?;
    holds(seen == b"outside", "nothing inside runs after destroy", &seen)?;
    outcome("remove", store.remove(&of)).await
}
