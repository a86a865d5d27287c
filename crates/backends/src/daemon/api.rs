//! The calls of an engine's interface that a wall needs: version 1.40 of Docker's API, which Podman serves too.

use http::Method;
use serde_json::{Value, json};

use super::http::{CallError, Client, Content, escaped, parsed};

/// The version of the interface. Docker 19.03 and Podman 3 have it.
const API: &str = "/v1.40";
/// Names the server that something belongs to.
pub(super) const LABEL: &str = "org.palisade.server";

/// An image as its engine describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageFacts {
    /// Its id: `sha256:...`.
    pub(super) id: String,
    /// When it was made, as its maker wrote it.
    pub(super) created: String,
    /// The digests by which registries know it.
    pub(super) digests: Vec<String>,
    /// Its names.
    pub(super) tags: Vec<String>,
}

/// What an engine says about itself.
#[derive(Debug, Clone, Default)]
pub(super) struct EngineFacts {
    /// Name and version of the programs that it uses.
    pub(super) components: Vec<(String, String)>,
    /// Its security options.
    pub(super) security: Vec<String>,
    /// Whether it makes control groups itself; otherwise systemd does.
    pub(super) makes_groups: bool,
}

/// The state of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ContainerState {
    pub(super) is_running: bool,
    pub(super) exit_code: i64,
    pub(super) error: String,
}

impl Client {
    pub(super) async fn facts(&self) -> Result<EngineFacts, CallError> {
        let version = self.json(Method::GET, &format!("{API}/version"), Content::None).await?;
        let info = self.json(Method::GET, &format!("{API}/info"), Content::None).await?;
        let pair = |part: &Value| (text(part, "Name"), text(part, "Version"));
        let listed = version.get("Components").and_then(Value::as_array);
        let components = listed.into_iter().flatten().map(pair).collect();
        let makes_groups = text(&info, "CgroupDriver") == "cgroupfs";
        Ok(EngineFacts { components, security: texts(&info, "SecurityOptions"), makes_groups })
    }

    /// Makes an image of a tar archive. Returns its id.
    pub(super) async fn import(&self, archive: Vec<u8>, server: &str) -> Result<String, CallError> {
        let change = escaped(&format!("LABEL {LABEL}={server}"));
        let path = format!("{API}/images/create?fromSrc=-&changes={change}");
        let answer = self.make(&path, Content::Tar(archive)).await?;
        let lines = answer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let told: Vec<Value> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        if let Some(error) = told.iter().find_map(|line| line.get("error").and_then(Value::as_str)) {
            return Err(CallError::Refused { status: 500, words: error.to_owned() });
        }
        let id = told.iter().rev().map(|line| text(line, "status")).find(|status| is_id(status));
        id.ok_or_else(|| CallError::Nonsense("it names no image".to_owned()))
    }

    pub(super) async fn image(&self, name: &str) -> Result<ImageFacts, CallError> {
        let told = self.json(Method::GET, &format!("{API}/images/{name}/json"), Content::None).await?;
        let id = text(&told, "Id");
        let id = if id.starts_with("sha256:") { id } else { format!("sha256:{id}") };
        if !is_id(&id) {
            return Err(CallError::Nonsense("the image has no id".to_owned()));
        }
        Ok(ImageFacts {
            id,
            created: text(&told, "Created"),
            digests: texts(&told, "RepoDigests"),
            tags: texts(&told, "RepoTags"),
        })
    }

    /// Gives an image one more name.
    pub(super) async fn tag(&self, id: &str, repository: &str, tag: &str) -> Result<(), CallError> {
        let path = format!("{API}/images/{id}/tag?repo={}&tag={}", escaped(repository), escaped(tag));
        self.call(Method::POST, &path, Content::None).await.map(drop)
    }

    /// Removes an image; one that is gone is no error.
    pub(super) async fn remove_image(&self, id: &str) -> Result<(), CallError> {
        // Without `noprune` an engine removes the image beneath it too, if that has no name. Podman 4.3 does so
        // in any case.
        let path = format!("{API}/images/{id}?force=true&noprune=true");
        let removed = self.call(Method::DELETE, &path, Content::None).await.map(drop);
        removed.or_else(|error| if error.is_absent() { Ok(()) } else { Err(error) })
    }

    pub(super) async fn images_of(&self, server: &str) -> Result<Vec<String>, CallError> {
        self.listed("images/json", server).await
    }

    pub(super) async fn containers_of(&self, server: &str) -> Result<Vec<String>, CallError> {
        self.listed("containers/json", server).await
    }

    /// What carries the label of a server. The caller removes it by force, so each label is looked at here too: an
    /// engine or a proxy before it may ignore the filter.
    async fn listed(&self, what: &str, server: &str) -> Result<Vec<String>, CallError> {
        let filter = escaped(&json!({ "label": [format!("{LABEL}={server}")] }).to_string());
        let path = format!("{API}/{what}?all=true&filters={filter}");
        let told = self.json(Method::GET, &path, Content::None).await?;
        let is_own = |entry: &&Value| entry.get("Labels").is_some_and(|labels| text(labels, LABEL) == server);
        let entries = told.as_array().into_iter().flatten().filter(is_own);
        Ok(entries.map(|entry| text(entry, "Id")).filter(|id| is_plain(id)).collect())
    }

    /// Creates a container. Returns its id.
    pub(super) async fn create(&self, name: &str, request: Value) -> Result<String, CallError> {
        let path = format!("{API}/containers/create?name={name}");
        let told = parsed(&self.make(&path, Content::Json(request)).await?)?;
        let id = text(&told, "Id");
        if is_hexadecimal(&id) {
            Ok(id)
        } else {
            Err(CallError::Nonsense("the container has no id".to_owned()))
        }
    }

    pub(super) async fn start(&self, name: &str) -> Result<(), CallError> {
        let path = format!("{API}/containers/{name}/start");
        self.call(Method::POST, &path, Content::None).await.map(drop)
    }

    pub(super) async fn state(&self, name: &str) -> Result<ContainerState, CallError> {
        let told = self.json(Method::GET, &format!("{API}/containers/{name}/json"), Content::None).await?;
        let state = told.get("State").cloned().unwrap_or_default();
        Ok(ContainerState {
            is_running: state.get("Running").and_then(Value::as_bool).unwrap_or(false),
            exit_code: state.get("ExitCode").and_then(Value::as_i64).unwrap_or(-1),
            error: text(&state, "Error"),
        })
    }

    /// Kills and removes a container. Returns whether there was one.
    pub(super) async fn remove(&self, name: &str) -> Result<bool, CallError> {
        let path = format!("{API}/containers/{name}?force=true&v=true");
        let removed = self.call(Method::DELETE, &path, Content::None).await.map(drop);
        match removed {
            Ok(()) => Ok(true),
            Err(error) if error.is_done_already() => Ok(!error.is_absent()),
            Err(error) => Err(error),
        }
    }

    /// Unpacks an archive at the top of a container's file system.
    pub(super) async fn unpack(&self, name: &str, archive: Vec<u8>) -> Result<(), CallError> {
        let path = format!("{API}/containers/{name}/archive?path=%2F");
        self.call(Method::PUT, &path, Content::Tar(archive)).await.map(drop)
    }

    /// Makes an image of a container that was never started. Returns its id.
    pub(super) async fn commit(&self, name: &str, server: &str) -> Result<String, CallError> {
        let change = escaped(&format!("LABEL {LABEL}={server}"));
        let path = format!("{API}/commit?container={name}&changes={change}&pause=false");
        let told = parsed(&self.make(&path, Content::Json(json!({}))).await?)?;
        let id = text(&told, "Id");
        let id = if id.starts_with("sha256:") { id } else { format!("sha256:{id}") };
        if is_id(&id) { Ok(id) } else { Err(CallError::Nonsense("it names no image".to_owned())) }
    }

    /// Waits until a container has ended. Returns its exit status.
    pub(super) async fn wait(&self, name: &str) -> Result<i64, CallError> {
        let path = format!("{API}/containers/{name}/wait");
        let told = self.json(Method::POST, &path, Content::None).await?;
        Ok(told.get("StatusCode").and_then(Value::as_i64).unwrap_or(-1))
    }

    /// Whether a container has a file at that path.
    pub(super) async fn has_file(&self, name: &str, path: &str) -> bool {
        let path = format!("{API}/containers/{name}/archive?path={}", escaped(path));
        self.call(Method::HEAD, &path, Content::None).await.is_ok()
    }

    /// What a container wrote to standard output and standard error.
    pub(super) async fn output(&self, name: &str) -> Result<[Vec<u8>; 2], CallError> {
        let path = format!("{API}/containers/{name}/logs?stdout=true&stderr=true");
        Ok(demultiplexed(&self.call(Method::GET, &path, Content::None).await?))
    }
}

/// Frames of eight bytes, stream and length, before each piece. See the API's "Stream format".
fn demultiplexed(mut bytes: &[u8]) -> [Vec<u8>; 2] {
    let mut streams = [Vec::new(), Vec::new()];
    while let Some((head, rest)) = bytes.split_at_checked(8) {
        let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let (piece, after) = rest.split_at(length.min(rest.len()));
        if let Some(stream) = usize::from(head[0]).checked_sub(1).and_then(|at| streams.get_mut(at)) {
            stream.extend_from_slice(piece);
        }
        bytes = after;
    }
    streams
}

fn is_id(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:").unwrap_or("");
    hex.len() == 64 && is_hexadecimal(hex)
}

/// The id of a container, or of an image with or without its kind.
fn is_plain(text: &str) -> bool {
    is_hexadecimal(text.strip_prefix("sha256:").unwrap_or(text))
}

fn is_hexadecimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    let list = value.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::fake::{FakeEngine, block_on};

    /// Everything that an engine has, whatever it was asked for.
    fn all(method: &str, path: &str) -> Option<(u16, String)> {
        let entry = |id: &str, labels: Value| json!({ "Id": id, "Labels": labels });
        let own = json!({ LABEL: "palisade-1", "more": "labels" });
        let list = [
            entry("aa11", own.clone()),
            entry("sha256:aa12", own.clone()),
            entry("bb11", json!({ LABEL: "palisade-11" })),
            entry("bb12", json!({ "other": "palisade-1" })),
            entry("bb13", Value::Null),
            json!({ "Id": "bb14" }),
            entry("bb15/../bb11", own.clone()),
            entry("", own),
        ];
        assert!(method == "GET" && path.contains("/json?all=true&filters="), "{method} {path}");
        Some((200, json!(list).to_string()))
    }

    #[test]
    fn what_others_have_is_not_listed_by_an_engine_that_ignores_filters() {
        let engine = FakeEngine::start("filters", all);
        let client = engine.client();
        let own = ["aa11", "sha256:aa12"];
        assert_eq!(block_on(client.containers_of("palisade-1")).unwrap(), own);
        assert_eq!(block_on(client.images_of("palisade-1")).unwrap(), own);
        assert_eq!(block_on(client.containers_of("palisade-2")).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn streams_are_told_apart_and_a_cut_frame_is_harmless() {
        let mut bytes = vec![1, 0, 0, 0, 0, 0, 0, 2, b'o', b'k', 2, 0, 0, 0, 0, 0, 0, 1, b'!'];
        bytes.extend([1, 0, 0, 0, 255, 255, 255, 255, b'.']);
        assert_eq!(demultiplexed(&bytes), [b"ok.".to_vec(), b"!".to_vec()]);
        assert_eq!(demultiplexed(&[1, 2, 3]), [Vec::<u8>::new(), Vec::new()]);
    }

    #[test]
    fn only_a_digest_is_an_id() {
        assert!(is_id(&format!("sha256:{}", "a".repeat(64))));
        for wrong in ["sha256:../x", "", "latest", "sha256:abc"] {
            assert!(!is_id(wrong), "{wrong}");
        }
    }
}
