//! `palisade sandbox cp`: copies a file or a folder into a sandbox or out of it, with the server's file URLs.
//!
//! ```text
//! in    write_file without content -> a file URL -> PUT, a piece of the file at a time
//! out   read_file -> all of a small file, or a file URL -> GET -> beside the target, then renamed over it
//! ```
//! A folder is copied file by file ([`super::copy_folder`]). In both directions only a few pieces of a large file are in memory.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use engine::SandboxAddress;
use serde_json::{Value, json};

use super::copy_folder;
use super::interrupt::Interrupts;
use crate::client::http::{OK, Payload, Request};
use crate::client::{self, Client, ClientError};
use terminal::{BAD_USAGE, OWN_FAILURE, complain};

const AFTER_HELP: &str = "\
Examples:
  palisade sandbox cp data.csv sbx_...:data.csv       into /workspace of the sandbox
  palisade sandbox cp data.csv sbx_...:in/            the same name, in a folder
  palisade sandbox cp sbx_...:out/plot.png .
  palisade sandbox cp sbx_...:out/plot.png figure.png
  palisade sandbox cp project analysis:               a folder, as /workspace/project of the sandbox \"analysis\"
  palisade sandbox cp project analysis:src            the same folder with the name src
  palisade sandbox cp analysis:out .                  a folder with all its files
  palisade sandbox cp analysis: results               all of /workspace

One of the two is ID:PATH or NAME:PATH, with a path within /workspace. Files that exist at the target are replaced.
Symbolic links in a folder are left out, and so are empty folders. A local name with a colon is written ./a:b.";

const FILES_PREFIX: &str = "/files/";
/// The largest file that is fetched. No limit of a sandbox is higher.
const FETCH_BYTES_MAX: u64 = 8 << 30;
const CREATED: u16 = 201;
/// The server's code for a path that names a folder.
const IS_DIRECTORY: &str = "is_directory";
/// A file up to this size is read in one answer, without a URL.
const SMALL_BYTES: usize = 512 << 10;
const WORKSPACE: &str = "/workspace";

/// Arguments of `cp`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CopyArguments {
    /// What to copy: a file or folder, or ID:PATH
    #[arg(value_name = "SRC")]
    source: String,
    /// Where to: a file or folder, or ID:PATH
    #[arg(value_name = "DST")]
    target: String,
}

/// A file or folder in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    /// The id of the sandbox, or its name; the server knows both.
    pub(super) sandbox: String,
    pub(super) path: String,
}

impl Remote {
    /// Returns `None` if the text names no sandbox. A local path has a slash before the colon, or exists.
    fn parse(text: &str) -> Option<Self> {
        let (sandbox, path) = text.split_once(':')?;
        let is_id = SandboxAddress::parse(sandbox).is_ok();
        let is_name = !sandbox.is_empty() && !sandbox.contains('/') && !Path::new(text).exists();
        let path = match path.strip_prefix(WORKSPACE) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
            _ => path,
        };
        (is_id || is_name).then(|| Self { sandbox: sandbox.to_owned(), path: path.to_owned() })
    }

    pub(super) fn arguments(&self) -> Value {
        json!({ "sandbox_id": self.sandbox, "path": self.path })
    }

    /// The path with the name of the source, if it names only a folder.
    pub(super) fn with_name_of(&self, source: &Path) -> Result<Self, CopyError> {
        if !(self.path.is_empty() || self.path.ends_with('/')) {
            return Ok(self.clone());
        }
        let name = source.file_name().unwrap_or_default();
        let name = name.to_str().ok_or_else(|| CopyError::Local("the file's name is no UTF-8".to_owned()))?;
        Ok(Self { path: format!("{}{name}", self.path), ..self.clone() })
    }
}

pub(super) async fn copy(client: &Client, arguments: &CopyArguments) -> Result<ExitCode, ClientError> {
    let mut interrupts = Interrupts::new()?;
    // Returning drops the copy, and with it the unfinished draft.
    tokio::select! {
        copied = copy_whole(client, arguments) => copied,
        _ = interrupts.next() => Err(ClientError::Interrupted),
    }
}

async fn copy_whole(client: &Client, arguments: &CopyArguments) -> Result<ExitCode, ClientError> {
    let copied = match (Remote::parse(&arguments.source), Remote::parse(&arguments.target)) {
        (None, Some(remote)) => copy_in(client, Path::new(&arguments.source), &remote).await,
        (Some(remote), None) => copy_out(client, &remote, Path::new(&arguments.target)).await,
        _ => {
            let message = "exactly one of the two must be ID:PATH, with the id or the name of a sandbox";
            complain(message, Some("for example: palisade sandbox cp data.csv sbx_...:data.csv"));
            return Ok(ExitCode::from(BAD_USAGE));
        }
    };
    match copied {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(CopyError::Local(message)) => {
            complain(&message, None);
            Ok(ExitCode::from(OWN_FAILURE))
        }
        Err(CopyError::Server(error)) => Err(error),
    }
}

async fn copy_in(client: &Client, source: &Path, remote: &Remote) -> Result<(), CopyError> {
    let found = std::fs::metadata(source).map_err(local(source))?;
    if found.is_dir() {
        return copy_folder::put(client, source, remote).await;
    }
    let file = File::open(source).map_err(local(source))?;
    put(client, (file, source), &remote.with_name_of(source)?).await
}

async fn copy_out(client: &Client, remote: &Remote, target: &Path) -> Result<(), CopyError> {
    if remote.path.is_empty() {
        return copy_folder::fetch(client, remote, target).await;
    }
    let file = match target.is_dir() {
        true => target.join(Path::new(&remote.path).file_name().unwrap_or_default()),
        false => target.to_owned(),
    };
    match fetch(client, remote, &file).await {
        Err(CopyError::Server(ClientError::Refused { code, .. })) if code == IS_DIRECTORY => {
            copy_folder::fetch(client, remote, target).await
        }
        fetched => fetched,
    }
}

pub(super) enum CopyError {
    /// An error of the local file.
    Local(String),
    Server(ClientError),
}

impl From<ClientError> for CopyError {
    fn from(error: ClientError) -> Self {
        Self::Server(error)
    }
}

pub(super) fn local(path: &Path) -> impl Fn(io::Error) -> CopyError {
    move |error| CopyError::Local(format!("{}: {error}", path.display()))
}

/// Copies an open file; `source` is its name for messages.
pub(super) async fn put(
    client: &Client,
    (file, source): (File, &Path),
    remote: &Remote,
) -> Result<(), CopyError> {
    let found = file.metadata().map_err(local(source))?;
    if !found.is_file() {
        return Err(CopyError::Local(format!("{} is no regular file", source.display())));
    }
    let answer = client.tool("write_file", remote.arguments()).await?;
    let path = link(&answer, "upload_url")?;
    let payload = Payload::File { file, size_bytes: found.len() };
    let response = client.send(Request { method: "PUT", path, headers: &[], payload }).await?;
    if response.status != CREATED {
        return Err(client::refusal(response).await.into());
    }
    Ok(())
}

/// Copies one file to that path.
pub(super) async fn fetch(client: &Client, remote: &Remote, target: &Path) -> Result<(), CopyError> {
    let mut arguments = remote.arguments();
    arguments["limit"] = json!(SMALL_BYTES);
    arguments["encoding"] = json!("base64");
    let answer = client.tool("read_file", arguments).await?;
    let mut draft = Draft::new(target).map_err(local(target))?;
    if answer.get("next_offset").is_none() {
        let text = answer["base64"].as_str().unwrap_or_default();
        let bytes = STANDARD.decode(text).map_err(|_| ClientError::Nonsense("it is not base64"))?;
        draft.write(&bytes).map_err(local(target))?;
    } else {
        let path = link(&answer, "download_url")?;
        let payload = Payload::Bytes(&[]);
        let mut response = client.send(Request { method: "GET", path, headers: &[], payload }).await?;
        if response.status != OK {
            return Err(client::refusal(response).await.into());
        }
        let mut room = FETCH_BYTES_MAX;
        while let Some(piece) = response.piece().await.map_err(ClientError::from)? {
            // A program inside may let the file grow while it is copied.
            room = room.checked_sub(piece.len() as u64).ok_or_else(too_large)?;
            draft.write(&piece).map_err(local(target))?;
        }
    }
    draft.keep(target).map_err(local(target))
}

fn too_large() -> CopyError {
    CopyError::Local("the file is larger than one copy transfers".to_owned())
}

/// The path of a file URL. Its host may be a proxy, and this client is already connected to the server.
fn link<'a>(answer: &'a Value, name: &str) -> Result<&'a str, ClientError> {
    let url = answer[name].as_str().ok_or(ClientError::Nonsense("a file without a link"))?;
    let begin = url.find(FILES_PREFIX).ok_or(ClientError::Nonsense("a link to something else"))?;
    let path = &url[begin..];
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then_some(path).ok_or(ClientError::Nonsense("a link with blanks in it"))
}

/// A partial file beside the target; removed unless it is kept.
struct Draft {
    file: File,
    path: Option<PathBuf>,
}

impl Draft {
    fn new(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
        let name = format!(".{}.palisade-{}", name.to_string_lossy(), std::process::id());
        let path = target.with_file_name(name);
        let file = File::options().write(true).create_new(true).open(&path)?;
        Ok(Self { file, path: Some(path) })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Replaces the target; a symbolic link there is not followed.
    fn keep(mut self, target: &Path) -> io::Result<()> {
        if let Some(path) = &self.path {
            std::fs::rename(path, target)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // The partial file has no use.
            std::fs::remove_file(path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness::TestFolder;

    const ID: &str = "sbx_0123456789abcdef0123456789abcdef";

    #[test]
    fn an_id_or_a_name_before_the_colon_names_a_sandbox() {
        let path = |text: &str| Remote::parse(text).map(|remote| remote.path);
        assert_eq!(path("analysis:a/b").as_deref(), Some("a/b"));
        assert_eq!(path("analysis:/workspace").as_deref(), Some(""));
        assert_eq!(path("my work:/workspacea").as_deref(), Some("/workspacea"));
        assert_eq!(path(&format!("{ID}:a/b:c")).as_deref(), Some("a/b:c"));
        assert_eq!(path(&format!("{ID}:/workspace/a")).as_deref(), Some("a"));
        assert_eq!(path(&format!("{ID}:")).as_deref(), Some(""));
        assert_eq!(path(&format!("{ID}#etl:a")).as_deref(), Some("a"));
        let folder = TestFolder::new();
        let existing = folder.file("a:b", "").to_string_lossy().into_owned();
        for local in ["a", "./a:b", "./sbx_1:b", ID, ":x", "/a:b", &existing] {
            assert_eq!(path(local), None, "{local}");
        }
    }

    #[test]
    fn only_the_path_of_a_link_is_used() {
        let answer = |url: &str| json!({ "u": url });
        assert_eq!(link(&answer("https://proxy.example/base/files/t/n"), "u").unwrap(), "/files/t/n");
        for wrong in ["https://proxy.example/", "http://localhost/files/a b", "/files/a\r\nx: y"] {
            assert!(link(&answer(wrong), "u").is_err(), "{wrong}");
        }
        assert!(link(&json!({}), "u").is_err());
    }

    #[test]
    fn a_draft_that_is_not_kept_leaves_the_target_as_it_was() {
        let folder = TestFolder::new();
        let target = folder.file("t", "old");
        let mut draft = Draft::new(&target).unwrap();
        draft.write(b"new").unwrap();
        drop(draft);
        assert_eq!(std::fs::read(&target).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let mut draft = Draft::new(&target).unwrap();
        draft.write(b"new").unwrap();
        draft.keep(&target).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
    }
}
