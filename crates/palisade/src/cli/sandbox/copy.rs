//! `palisade sandbox cp`: copies one file into a sandbox or out of it, with the server's file URLs.
//!
//! ```text
//! in    write_file without content -> a file URL -> PUT, a piece of the file at a time
//! out   read_file -> all of a small file, or a file URL -> GET -> beside the target, then renamed over it
//! ```
//! In both directions only a few pieces of a large file are in memory.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use engine::SandboxId;
use serde_json::{Value, json};

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

One of the two is ID:PATH, with a path within /workspace. What exists at the target is replaced as a whole.";

const FILES_PREFIX: &str = "/files/";
const CREATED: u16 = 201;
/// A file up to this size is read in one answer, without a URL.
const SMALL_BYTES: usize = 512 << 10;
const WORKSPACE: &str = "/workspace/";

/// Arguments of `cp`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CopyArguments {
    /// What to copy: a file, or ID:PATH
    #[arg(value_name = "SRC")]
    source: String,
    /// Where to: a file or folder, or ID:PATH
    #[arg(value_name = "DST")]
    target: String,
}

/// A file in a sandbox.
#[derive(Debug, PartialEq, Eq)]
struct Remote {
    sandbox_id: String,
    path: String,
}

impl Remote {
    /// Returns `None` if the text names no sandbox: the name of a local file may contain colons.
    fn parse(text: &str) -> Option<Self> {
        let (id, path) = text.split_once(':')?;
        let path = path.strip_prefix(WORKSPACE).unwrap_or(path);
        SandboxId::parse(id).map(|id| Self { sandbox_id: id.as_str().to_owned(), path: path.to_owned() })
    }

    fn arguments(&self) -> Value {
        json!({ "sandbox_id": self.sandbox_id, "path": self.path })
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
        (None, Some(remote)) => put(client, Path::new(&arguments.source), remote).await,
        (Some(remote), None) => fetch(client, &remote, Path::new(&arguments.target)).await,
        _ => {
            let message = "exactly one of the two must be ID:PATH, with the id of a sandbox";
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

enum CopyError {
    /// An error of the local file.
    Local(String),
    Server(ClientError),
}

impl From<ClientError> for CopyError {
    fn from(error: ClientError) -> Self {
        Self::Server(error)
    }
}

fn local(path: &Path) -> impl Fn(io::Error) -> CopyError {
    move |error| CopyError::Local(format!("{}: {error}", path.display()))
}

async fn put(client: &Client, source: &Path, mut remote: Remote) -> Result<(), CopyError> {
    let file = File::open(source).map_err(local(source))?;
    let found = file.metadata().map_err(local(source))?;
    if !found.is_file() {
        return Err(CopyError::Local(format!("{} is no regular file", source.display())));
    }
    if remote.path.is_empty() || remote.path.ends_with('/') {
        let name = source.file_name().unwrap_or_default();
        let name = name.to_str().ok_or_else(|| CopyError::Local("the file's name is no UTF-8".to_owned()))?;
        remote.path.push_str(name);
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

async fn fetch(client: &Client, remote: &Remote, target: &Path) -> Result<(), CopyError> {
    let target = match target.is_dir() {
        true => target.join(Path::new(&remote.path).file_name().unwrap_or_default()),
        false => target.to_owned(),
    };
    let mut arguments = remote.arguments();
    arguments["limit"] = json!(SMALL_BYTES);
    arguments["encoding"] = json!("base64");
    let answer = client.tool("read_file", arguments).await?;
    let mut draft = Draft::new(&target).map_err(local(&target))?;
    if answer.get("next_offset").is_none() {
        let text = answer["base64"].as_str().unwrap_or_default();
        let bytes = STANDARD.decode(text).map_err(|_| ClientError::Nonsense("it is not base64"))?;
        draft.write(&bytes).map_err(local(&target))?;
    } else {
        let path = link(&answer, "download_url")?;
        let payload = Payload::Bytes(&[]);
        let mut response = client.send(Request { method: "GET", path, headers: &[], payload }).await?;
        if response.status != OK {
            return Err(client::refusal(response).await.into());
        }
        while let Some(piece) = response.piece().await.map_err(ClientError::from)? {
            draft.write(&piece).map_err(local(&target))?;
        }
    }
    draft.keep(&target).map_err(local(&target))
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
    fn only_an_id_before_the_colon_names_a_sandbox() {
        let path = |text: &str| Remote::parse(text).map(|remote| remote.path);
        assert_eq!(path(&format!("{ID}:a/b:c")).as_deref(), Some("a/b:c"));
        assert_eq!(path(&format!("{ID}:/workspace/a")).as_deref(), Some("a"));
        assert_eq!(path(&format!("{ID}:")).as_deref(), Some(""));
        for local in ["a", "a:b", "./sbx_1:b", ID, "C:\\x", ":x"] {
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
