//! The store of workspaces: create, open, hold, remove, and what a server left behind.

use std::collections::HashSet;

use super::super::wait::within;
use super::{QUOTA, content, created, fails, holds, opened, outcome, path};
use crate::workspace::{NotHeld, WorkspaceRef, WorkspaceStore};

pub(super) async fn check(store: &dyn WorkspaceStore) -> Result<(), String> {
    only_plain_names_are_ids(store).await?;
    a_workspace_is_created_once(store).await?;
    one_server_holds_a_workspace(store).await?;
    removed_workspaces_cannot_be_opened(store).await?;
    held_strangers_stay(store).await
}

fn named(id: &str) -> WorkspaceRef {
    WorkspaceRef { id: id.to_owned(), identity: 1 }
}

async fn only_plain_names_are_ids(store: &dyn WorkspaceStore) -> Result<(), String> {
    for id in ["", ".", "..", "a/b", "/etc", "a\0b"] {
        let clause = format!("`{}` is not the id of a workspace", id.escape_default());
        fails(&clause, "bad_path", store.create(&named(id))).await?;
        fails(&clause, "bad_path", store.open(&named(id), QUOTA)).await?;
        fails(&clause, "bad_path", store.remove(&named(id))).await?;
        let held = within(&clause, store.hold(&named(id))).await?;
        holds(held.is_err(), &clause, &held)?;
    }
    Ok(())
}

async fn a_workspace_is_created_once(store: &dyn WorkspaceStore) -> Result<(), String> {
    fails("what was not created cannot be opened", "not_found", store.open(&named("sbx_never"), QUOTA))
        .await?;
    let of = created(store).await?;
    let workspace = opened(store, &of).await?;
    holds(workspace.quota() == QUOTA, "a workspace has the quota it was opened with", &workspace.quota())?;
    outcome("write", workspace.write(&path("kept")?, b"kept".to_vec())).await?;
    outcome("create leaves what exists", store.create(&of)).await?;
    let kept = content(&*workspace, "kept").await?;
    holds(kept == b"kept", "create leaves what exists", &kept)?;
    let other = opened(store, &of).await?;
    let kept = content(&*other, "kept").await?;
    holds(kept == b"kept", "two openings see the same files", &kept)?;
    let is_empty = within("is_empty returns", store.is_empty()).await?;
    holds(!is_empty, "a store with a workspace is not empty", &is_empty)?;
    outcome("remove", store.remove(&of)).await
}

async fn one_server_holds_a_workspace(store: &dyn WorkspaceStore) -> Result<(), String> {
    let missing = within("hold returns", store.hold(&named("sbx_never"))).await?;
    holds(matches!(missing, Err(NotHeld::Missing)), "what was not created cannot be held", &missing)?;
    let of = created(store).await?;
    let first = within("hold returns", store.hold(&of)).await?;
    let first = first.map_err(|error| format!("a workspace can be held; found {error}"))?;
    let second = within("hold returns", store.hold(&of)).await?;
    holds(matches!(second, Err(NotHeld::Elsewhere)), "a workspace is held once", &second)?;
    drop(first);
    // A wall on another machine learns of the release a moment later.
    let mut again = within("hold returns", store.hold(&of)).await?;
    for _ in 0..100 {
        if again.is_ok() {
            break;
        }
        super::pause(std::time::Duration::from_millis(10)).await;
        again = within("hold returns", store.hold(&of)).await?;
    }
    holds(again.is_ok(), "dropping a hold releases the workspace", &again)?;
    drop(again);
    outcome("remove", store.remove(&of)).await
}

async fn removed_workspaces_cannot_be_opened(store: &dyn WorkspaceStore) -> Result<(), String> {
    let of = created(store).await?;
    let workspace = opened(store, &of).await?;
    outcome("write", workspace.write(&path("deep/er/file")?, b"x".to_vec())).await?;
    drop(workspace);
    outcome("remove", store.remove(&of)).await?;
    fails("what was removed cannot be opened", "not_found", store.open(&of, QUOTA)).await
}

async fn held_strangers_stay(store: &dyn WorkspaceStore) -> Result<(), String> {
    let of = created(store).await?;
    let held = within("hold returns", store.hold(&of)).await?;
    let held = held.map_err(|error| format!("a workspace can be held; found {error}"))?;
    within("remove_strangers returns", store.remove_strangers(HashSet::new())).await?;
    let found = opened(store, &of).await;
    holds(found.is_ok(), "held workspaces without a record stay", &found)?;
    drop(held);
    outcome("remove", store.remove(&of)).await
}

/// A workspace exists before its record, so one that no record names may be new. The fake has no clock and
/// does not keep this clause.
pub(super) async fn recent_strangers_stay(store: &dyn WorkspaceStore) -> Result<(), String> {
    let of = created(store).await?;
    within("remove_strangers returns", store.remove_strangers(HashSet::new())).await?;
    let found = opened(store, &of).await;
    holds(found.is_ok(), "recent workspaces without a record stay", &found)?;
    outcome("remove", store.remove(&of)).await
}
