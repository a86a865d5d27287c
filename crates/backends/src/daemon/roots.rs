//! The images that sandboxes start from.
//!
//! Without a configured image, a root has directories, links and the few small files of the plan, and the host's `/usr`
//! is bound into it. With one, the plan's links and files are added to that image. Both are made once for each kind of
//! sandbox, and carry the label of their server, by which they are removed at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use jail::JailPlan;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::api::LABEL;
use super::http::{CallError, Client};

/// Kinds of sandboxes whose images are kept. The oldest is removed when another one comes.
const KEPT_MAX: usize = 32;

/// The images that this server has made.
#[derive(Default)]
pub(super) struct Roots {
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    by_digest: BTreeMap<[u8; 32], String>,
    /// In the order in which they were made.
    order: Vec<[u8; 32]>,
}

/// What is in a root besides mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RootContent {
    pub(super) directories: BTreeSet<PathBuf>,
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
    pub(super) files: BTreeMap<PathBuf, Vec<u8>>,
}

impl RootContent {
    /// The content for a plan: of a whole root, or of what is added to an image. Places of mounts are directories; a
    /// runtime makes the places of files itself.
    pub(super) fn of(plan: &JailPlan, is_whole: bool) -> Self {
        let mut content = Self::default();
        for (path, target) in &plan.symlinks {
            content.links.insert(path.clone(), target.clone());
        }
        let is_bound = |path: &Path| plan.binds.iter().any(|bind| bind.target == path);
        for file in plan.files.iter().filter(|file| !is_bound(&file.path)) {
            content.files.insert(file.path.clone(), file.content.clone());
        }
        let top = ["/dev", "/proc", "/sys", "/etc", "/run", "/var/tmp"].map(PathBuf::from);
        let top = top.into_iter().filter(|_| is_whole);
        let bound = plan.binds.iter().filter(|bind| bind.path.is_dir()).map(|bind| bind.target.clone());
        let writable = plan.writable().map(Path::to_owned).filter(|path| !path.starts_with("/dev"));
        content.directories.extend(top.chain(bound).chain(writable));
        content.directories.extend(plan.directories.iter().cloned());
        let leaves = content.links.keys().chain(content.files.keys()).cloned();
        let leaves: Vec<PathBuf> = leaves.chain(content.directories.iter().cloned()).collect();
        for path in leaves {
            content.directories.extend(path.ancestors().skip(1).map(Path::to_owned));
        }
        content.directories.remove(Path::new("/"));
        content
    }

    /// The archive, the same for the same content.
    pub(super) fn archive(&self) -> io::Result<Vec<u8>> {
        let mut builder = tar::Builder::new(Vec::new());
        for path in &self.directories {
            let mut header = header(tar::EntryType::Directory, 0o755, 0);
            builder.append_data(&mut header, relative(path), io::empty())?;
        }
        for (path, target) in &self.links {
            let mut header = header(tar::EntryType::Symlink, 0o777, 0);
            builder.append_link(&mut header, relative(path), target)?;
        }
        for (path, bytes) in &self.files {
            let mut header = header(tar::EntryType::Regular, 0o444, bytes.len() as u64);
            builder.append_data(&mut header, relative(path), bytes.as_slice())?;
        }
        builder.into_inner()
    }
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

impl Roots {
    /// The image for that content, on top of `base` if there is one.
    pub(super) async fn image(
        &self,
        client: &Client,
        server: &str,
        content: &RootContent,
        base: Option<&str>,
    ) -> Result<String, CallError> {
        let archive = content.archive().map_err(|error| CallError::Nonsense(error.to_string()))?;
        let mut hash = Sha256::new();
        hash.update(base.unwrap_or_default().as_bytes());
        hash.update(&archive);
        let digest: [u8; 32] = hash.finalize().into();
        // One at a time: a second caller with the same content waits for the first.
        let mut made = self.made.lock().await;
        if let Some(id) = made.by_digest.get(&digest) {
            return Ok(id.clone());
        }
        let id = match base {
            None => client.import(archive, server).await?,
            Some(base) => extend(client, server, base, archive, &digest).await?,
        };
        made.by_digest.insert(digest, id.clone());
        made.order.push(digest);
        if made.order.len() > KEPT_MAX {
            let oldest = made.order.remove(0);
            if let Some(id) = made.by_digest.remove(&oldest)
                && let Err(error) = client.remove_image(&id).await
            {
                // A sandbox may still use it; the end of the server removes it.
                tracing::debug!(reason = %error, "image_not_removed");
            }
        }
        Ok(id)
    }

    /// Forgets images that the engine no longer has.
    pub(super) async fn forget(&self) {
        *self.made.lock().await = Made::default();
    }
}

/// Adds an archive to an image.
async fn extend(
    client: &Client,
    server: &str,
    base: &str,
    archive: Vec<u8>,
    digest: &[u8; 32],
) -> Result<String, CallError> {
    let mark: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{server}-root-{mark}");
    // It is never started.
    let request = json!({
        "Image": base, "Entrypoint": ["/"], "Cmd": [], "NetworkDisabled": true, "Labels": { LABEL: server },
        "HostConfig": { "NetworkMode": "none" },
    });
    client.create(&name, request).await?;
    let made = match client.unpack(&name, archive).await {
        Ok(()) => client.commit(&name, server).await,
        Err(error) => Err(error),
    };
    client.remove(&name).await?;
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_gives_the_same_archive() {
        let mut content = RootContent::default();
        content.directories.extend([PathBuf::from("/etc"), PathBuf::from("/usr")]);
        content.links.insert(PathBuf::from("/bin"), PathBuf::from("usr/bin"));
        content.files.insert(PathBuf::from("/etc/hosts"), b"127.0.0.1 localhost\n".to_vec());
        let archive = content.archive().unwrap();
        assert_eq!(archive, content.clone().archive().unwrap());
        let mut reader = tar::Archive::new(archive.as_slice());
        let names: Vec<String> = reader
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["etc", "usr", "bin", "etc/hosts"]);
    }
}
