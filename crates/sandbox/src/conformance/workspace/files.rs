//! The files of one workspace from outside: whole files, pieces, lists, quota, changes.

use super::{QUOTA, content, created, fails, holds, opened, outcome, path};
use crate::workspace::{EntryKind, Pace, Reach, Workspace, WorkspaceStore};

pub(super) async fn check(store: &dyn WorkspaceStore) -> Result<(), String> {
    let of = created(store).await?;
    let workspace = opened(store, &of).await?;
    let workspace = &*workspace;
    whole_files(workspace).await?;
    open_files(workspace).await?;
    uploads(workspace).await?;
    lists(workspace).await?;
    changes(workspace).await?;
    names_of_the_top(workspace).await?;
    quota(workspace).await?;
    outcome("remove", store.remove(&of)).await
}

async fn whole_files(workspace: &dyn Workspace) -> Result<(), String> {
    let name = path("a/b/file.txt")?;
    fails("a file that does not exist is not found", "not_found", workspace.read(&name, 0, 10)).await?;
    let written = outcome("write", workspace.write(&name, b"hello".to_vec())).await?;
    holds(written.size_bytes == 5, "write says the size", &written)?;
    let seen = content(workspace, "a/b/file.txt").await?;
    holds(seen == b"hello", "read returns what was written", &seen)?;
    let part = outcome("read", workspace.read(&name, 1, 3)).await?;
    let is_part = part.bytes == b"ell" && part.offset == 1 && part.size_bytes == 5 && !part.at_end;
    holds(is_part, "read returns a part", &part)?;
    let past = outcome("read", workspace.read(&name, 5, 3)).await?;
    holds(past.bytes.is_empty() && past.at_end, "read at the end returns nothing", &past)?;
    let written = outcome("append", workspace.append(&name, b", world".to_vec())).await?;
    holds(written.size_bytes == 12, "append says the size of the whole file", &written)?;
    let seen = content(workspace, "a/b/file.txt").await?;
    holds(seen == b"hello, world", "append adds at the end", &seen)?;
    outcome("write", workspace.write(&name, b"new".to_vec())).await?;
    let seen = content(workspace, "a/b/file.txt").await?;
    holds(seen == b"new", "write replaces", &seen)?;
    outcome("append creates", workspace.append(&path("log")?, b"first".to_vec())).await?;
    fails("a directory is not read", "is_directory", workspace.read(&path("a/b")?, 0, 10)).await?;
    let directory = path("a/b")?;
    let over = workspace.write(&directory, b"x".to_vec());
    fails("a directory is not replaced", "is_directory", over).await
}

async fn open_files(workspace: &dyn Workspace) -> Result<(), String> {
    let name = path("open.csv")?;
    outcome("write", workspace.write(&name, b"a,b\n1,2\n".to_vec())).await?;
    let file = outcome("file", workspace.file(&name)).await?;
    holds(file.size_bytes() == 8 && file.media_type() == "text/csv", "an open file says what it is", &file)?;
    outcome("write", workspace.write(&name, b"other".to_vec())).await?;
    let part = outcome("read", file.read(4, 100)).await?;
    holds(part.bytes == b"1,2\n" && part.at_end, "an open file stays what it was", &part)
}

async fn uploads(workspace: &dyn Workspace) -> Result<(), String> {
    let name = path("up/loaded")?;
    let mut upload = outcome("upload", workspace.upload(&name, 1 << 20, Some(200_000))).await?;
    for piece in [vec![b'1'; 100_000], vec![b'2'; 100_000]] {
        outcome("a piece is taken", upload.write(piece)).await?;
    }
    fails("an upload has no name before its end", "not_found", workspace.read(&name, 0, 1)).await?;
    let written = outcome("finish", upload.finish()).await?;
    holds(written.size_bytes == 200_000, "finish says the size", &written)?;
    let part = outcome("read", workspace.read(&name, 99_999, 2)).await?;
    holds(part.bytes == b"12", "an upload has its pieces in order", &part.bytes)?;
    let mut large = outcome("upload", workspace.upload(&path("large")?, 10, None)).await?;
    fails("an upload has at most the bytes that were allowed", "too_large", large.write(vec![0; 11])).await?;
    drop(large);
    let dropped = outcome("upload", workspace.upload(&path("dropped")?, 10, None)).await?;
    drop(dropped);
    for name in ["large", "dropped"] {
        let clause = "an upload that does not end leaves no file";
        fails(clause, "not_found", workspace.read(&path(name)?, 0, 1)).await?;
    }
    Ok(())
}

async fn lists(workspace: &dyn Workspace) -> Result<(), String> {
    outcome("write", workspace.write(&path("list/one")?, b"1".to_vec())).await?;
    outcome("write", workspace.write(&path("list/deep/two")?, b"22".to_vec())).await?;
    let list = path("list")?;
    let flat = outcome("list", workspace.list(Some(&list), Reach::Flat)).await?;
    let entries: Vec<_> =
        flat.entries.iter().map(|entry| (entry.path.as_str(), entry.kind, entry.size_bytes)).collect();
    let is_flat = matches!(
        entries.as_slice(),
        [("list/deep", EntryKind::Directory, _), ("list/one", EntryKind::File, 1)]
    );
    holds(is_flat && flat.is_complete, "a flat list has the entries of the directory", &flat)?;
    let deep = outcome("list", workspace.list(Some(&list), Reach::Recursive)).await?;
    let names: Vec<&str> = deep.entries.iter().map(|entry| entry.path.as_str()).collect();
    holds(names == ["list/deep", "list/deep/two", "list/one"], "a recursive list has all entries", &names)?;
    let all = outcome("list", workspace.list(None, Reach::Flat)).await?;
    holds(all.entries.iter().any(|entry| entry.path == "list"), "the workspace itself can be listed", &all)?;
    let absent = path("absent")?;
    fails(
        "a directory that does not exist is not found",
        "not_found",
        workspace.list(Some(&absent), Reach::Flat),
    )
    .await
}

async fn changes(workspace: &dyn Workspace) -> Result<(), String> {
    for pace in [Pace::AtOnce, Pace::Aside] {
        let before = outcome("snapshot", workspace.snapshot(pace)).await?;
        let used = outcome("usage", workspace.usage()).await?;
        holds(before.used() == used, "a snapshot says the size", &(before.used(), used))?;
        let nothing = outcome("changes", before.changes(pace)).await?;
        holds(nothing.files.is_empty(), "nothing changed", &nothing.files)?;
        let before = outcome("snapshot", workspace.snapshot(pace)).await?;
        outcome("write", workspace.write(&path("changed.txt")?, format!("{pace:?}").into_bytes())).await?;
        let changed = outcome("changes", before.changes(pace)).await?;
        // The digest may be absent; one that is there is one.
        let is_digest = |digest: &String| digest.len() == 64;
        let is_described = matches!(changed.files.as_slice(), [file]
            if file.path.as_str() == "changed.txt" && file.sha256.as_ref().is_none_or(is_digest));
        holds(is_described, "a changed file is described", &changed)?;
    }
    Ok(())
}

async fn names_of_the_top(workspace: &dyn Workspace) -> Result<(), String> {
    outcome("write", workspace.write(&path("own")?, b"x".to_vec())).await?;
    outcome("write", workspace.write(&path("folder/own")?, b"x".to_vec())).await?;
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let holds_any = async |asked: &[&str]| {
        let asked = names(asked);
        super::within("holds_any returns", workspace.holds_any(&asked)).await
    };
    let found = (holds_any(&["absent", "own"]).await?, holds_any(&["absent"]).await?);
    holds(found == (true, false), "holds_any finds names of the top", &found)?;
    let tidied = names(&["own", "folder", "absent"]);
    super::within("tidy returns", workspace.tidy(&tidied)).await?;
    let found = (holds_any(&["own"]).await?, holds_any(&["folder"]).await?);
    holds(found == (false, true), "tidy unlinks files and leaves directories", &found)?;
    super::within("open_up returns", workspace.open_up()).await?;
    let drafts = outcome("remove_abandoned_drafts", workspace.remove_abandoned_drafts()).await?;
    holds(drafts == 0, "nothing is left of uploads that were dropped", &drafts)
}

async fn quota(workspace: &dyn Workspace) -> Result<(), String> {
    let beyond = usize::try_from(QUOTA.bytes).map_err(|error| error.to_string())? + 1;
    let name = path("beyond")?;
    fails("the quota is kept", "disk_full", workspace.write(&name, vec![0; beyond])).await?;
    fails("what did not fit left nothing", "not_found", workspace.read(&name, 0, 1)).await?;
    let used = outcome("usage", workspace.usage()).await?;
    let is_within = used.is_complete && used.bytes <= QUOTA.bytes && used.inodes <= QUOTA.inodes;
    holds(is_within, "usage stays within the quota", &used)
}
