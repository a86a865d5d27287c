//! Copies folders into a sandbox and out of it, file by file.
//!
//! The names of the files in a sandbox are its program's choice. They are checked to be plain, and files are
//! written beneath the target without following links.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};
use terminal::complain;

use super::copy::{self, CopyError, Remote, local};
use crate::cli::save;
use crate::cli::tree::{self, Leave, TreeBounds};
use crate::client::{Client, ClientError};

/// The most that one copy transfers.
const BOUNDS: TreeBounds = TreeBounds { files_max: 10_000, bytes_max: 4 << 30 };

/// Copies a local folder into the sandbox.
pub(super) async fn put(client: &Client, source: &Path, remote: &Remote) -> Result<(), CopyError> {
    let found =
        tree::find(source, Leave::Nothing, BOUNDS).map_err(|error| CopyError::Local(error.to_string()))?;
    let target = remote.with_name_of(source)?;
    let folder = target.path.trim_end_matches('/');
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    for file in &found.files {
        let open = file.open().map_err(local(&file.path))?;
        let to = Remote { path: format!("{prefix}{}", file.name), ..target.clone() };
        copy::put(client, (open, &file.path), &to).await?;
    }
    tell_left_out(found.left_out);
    Ok(())
}

/// Copies a folder of the sandbox to the local target: into it under its own name if the target exists, else
/// as the target. The whole workspace has no name of its own.
pub(super) async fn fetch(client: &Client, remote: &Remote, target: &Path) -> Result<(), CopyError> {
    let folder = remote.path.trim_matches('/');
    let target = match (target.is_dir(), Path::new(folder).file_name()) {
        (true, Some(name)) => target.join(name),
        _ => target.to_owned(),
    };
    let listing = list(client, &remote.sandbox, folder).await?;
    let root = save::open_root(&target).map_err(local(&target))?;
    for name in &listing.files {
        let parent = save::make_parent(&root, name).map_err(local(&target.join(name)))?;
        let from = match folder.is_empty() {
            true => name.to_string_lossy().into_owned(),
            false => format!("{folder}/{}", name.display()),
        };
        let to = beneath(&parent, name);
        copy::fetch(client, &Remote { path: from, ..remote.clone() }, &to).await?;
    }
    tell_left_out(listing.left_out);
    Ok(())
}

/// Finds all files beneath a folder of the sandbox, folder by folder: one listing is bounded.
async fn list(client: &Client, sandbox: &str, folder: &str) -> Result<Listing, CopyError> {
    let mut listing = Listing::default();
    let (mut open, mut listed) = (vec![folder.to_owned()], 0);
    while let Some(next) = open.pop() {
        let mut asked = json!({ "sandbox_id": sandbox });
        if !next.is_empty() {
            asked["path"] = json!(next);
        }
        let answer = client.tool("list_files", asked).await?;
        open.extend(listing.add(&answer, folder)?);
        // A program may create folders as fast as they are listed.
        listed += 1;
        if open.len() + listed > BOUNDS.files_max {
            return Err(too_much());
        }
    }
    Ok(listing)
}

fn too_much() -> CopyError {
    CopyError::Local("the folder holds more than one copy transfers; copy its folders one by one".to_owned())
}

/// A path that leads to the opened folder, whatever happens to the folders above it.
fn beneath(parent: &OwnedFd, name: &Path) -> PathBuf {
    let folder = PathBuf::from(format!("/proc/self/fd/{}", parent.as_raw_fd()));
    folder.join(name.file_name().unwrap_or_default())
}

fn tell_left_out(count: usize) {
    if count > 0 {
        complain(&format!("{count} symbolic links or special files were left out"), None);
    }
}

/// The files beneath a folder of a sandbox.
#[derive(Debug, Default, PartialEq, Eq)]
struct Listing {
    /// Paths relative to the folder.
    files: Vec<PathBuf>,
    bytes: u64,
    left_out: usize,
}

impl Listing {
    /// Adds the entries of an answer, and returns the folders among them.
    fn add(&mut self, answer: &Value, folder: &str) -> Result<Vec<String>, CopyError> {
        let mut folders = Vec::new();
        for entry in answer["entries"].as_array().into_iter().flatten() {
            let path = entry["path"].as_str().unwrap_or_default();
            match entry["kind"].as_str() {
                // A name that is no UTF-8 cannot be asked for.
                _ if entry["nameless"] == true => self.left_out += 1,
                Some("file") => {
                    self.bytes = self.bytes.saturating_add(entry["size_bytes"].as_u64().unwrap_or_default());
                    self.files.push(plain(path, folder)?);
                }
                Some("directory") => {
                    plain(path, folder)?;
                    folders.push(path.to_owned());
                }
                _ => self.left_out += 1,
            }
        }
        let is_whole = answer["complete"] != false && self.files.len() <= BOUNDS.files_max;
        if is_whole && self.bytes <= BOUNDS.bytes_max { Ok(folders) } else { Err(too_much()) }
    }
}

/// The path relative to the folder, if it consists of plain names.
fn plain(path: &str, folder: &str) -> Result<PathBuf, CopyError> {
    let relative = match folder {
        "" => path,
        _ => path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default(),
    };
    let is_plain = Path::new(relative).components().all(|part| matches!(part, Component::Normal(_)));
    match is_plain && !relative.is_empty() {
        true => Ok(PathBuf::from(relative)),
        false => Err(ClientError::Nonsense("a file at another place").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(entries: Value, folder: &str) -> Option<(Listing, Vec<String>)> {
        let mut listing = Listing::default();
        let folders = listing.add(&json!({ "entries": entries, "complete": true }), folder).ok()?;
        Some((listing, folders))
    }

    #[test]
    fn only_files_beneath_the_folder_are_taken() {
        let entries = json!([
            { "path": "out/a", "kind": "file", "size_bytes": 1 },
            { "path": "out/d", "kind": "directory" },
            { "path": "out/d/b", "kind": "file", "size_bytes": 1 },
            { "path": "out/?", "kind": "file", "size_bytes": 1, "nameless": true },
            { "path": "out/l", "kind": "link" }
        ]);
        let files = ["a", "d/b"].map(PathBuf::from).to_vec();
        let wanted = Listing { files, bytes: 2, left_out: 2 };
        assert_eq!(listing(entries, "out"), Some((wanted, vec!["out/d".to_owned()])));
    }

    #[test]
    fn a_server_that_names_other_places_is_not_believed() {
        for path in ["../x", "/etc/passwd", "a/../../x", "", "outside/x"] {
            for kind in ["file", "directory"] {
                let entries = json!([{ "path": path, "kind": kind, "size_bytes": 1 }]);
                assert_eq!(listing(entries.clone(), "out"), None, "{path}");
                if path != "outside/x" {
                    assert_eq!(listing(entries, ""), None, "{path}");
                }
            }
        }
        let part = json!({ "entries": [], "complete": false });
        assert!(Listing::default().add(&part, "").is_err());
        let huge = json!([{ "path": "a", "kind": "file", "size_bytes": u64::MAX }]);
        assert_eq!(listing(huge, ""), None);
    }
}
