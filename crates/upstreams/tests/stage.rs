//! What the tests share: a state directory, servers, calls.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use policy::Principal;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use upstreams::{
    Dialect, FindQuery, ServerSpec, ServerWall, StdioSpec, Template, ToolAnswer, ToolCall, ToolError,
    ToolHost, ToolName, ToolRules, Transport, Upstreams, UpstreamsConfig, Viewer,
};

/// A folder that is removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("palisade-upstreams-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("count")
    }

    /// How often the server was started or called.
    pub(crate) fn count(&self) -> u64 {
        std::fs::metadata(self.file()).map_or(0, |file| file.len())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or(());
    }
}

/// A hostile server without a wall.
pub(crate) fn spec(mode: &str, folder: &Folder) -> ServerSpec {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile.py");
    let file = folder.file();
    let args = [script, mode, file.to_str().unwrap()].map(|text| Template::parse(text).unwrap());
    let transport = Transport::Stdio(StdioSpec {
        command: "python3".to_owned(),
        args: args.to_vec(),
        env: BTreeMap::new(),
        cwd: None,
        wall: ServerWall::None,
    });
    server(transport)
}

pub(crate) fn server(transport: Transport) -> ServerSpec {
    ServerSpec {
        name: "s".to_owned(),
        about: String::new(),
        transport,
        rules: ToolRules::default(),
        labels: vec!["private".to_owned()],
        refuses: Vec::new(),
        idle: Duration::from_secs(60),
        timeout: Duration::from_secs(20),
    }
}

pub(crate) fn host(folder: &Folder, spec: ServerSpec) -> Arc<Upstreams> {
    let launcher = std::env::current_exe().unwrap();
    let state_dir = folder.0.clone();
    Upstreams::new(UpstreamsConfig { state_dir, launcher, wall: None, servers: vec![spec] })
}

/// The owner of the server.
pub(crate) fn owner() -> &'static Principal {
    static OWNER: LazyLock<Principal> = LazyLock::new(Principal::local);
    &OWNER
}

/// A search of the owner in all servers.
pub(crate) fn query(words: &str, limit: usize) -> FindQuery<'_> {
    FindQuery { viewer: Viewer::of(owner()), words, servers: None, dialect: Dialect::Python, limit }
}

pub(crate) fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Calls a tool with these arguments.
pub(crate) async fn call_with(
    host: &Upstreams,
    tool: &str,
    arguments: Map<String, Value>,
) -> Result<ToolAnswer, ToolError> {
    let call = ToolCall {
        principal: &Principal::local(),
        server: "s",
        tool: ToolName::Spelled(tool),
        arguments,
        deadline: Instant::now() + Duration::from_secs(20),
        cancel: CancellationToken::new(),
        answer_bytes_max: 8 << 20,
        is_learned_from: true,
    };
    host.call(call).await
}

/// Calls a tool with a text, within a time.
pub(crate) async fn call_within(
    host: &Upstreams,
    tool: &str,
    text: &str,
    time: Duration,
) -> Result<ToolAnswer, ToolError> {
    let call = ToolCall {
        principal: &Principal::local(),
        server: "s",
        tool: ToolName::Spelled(tool),
        arguments: arguments(json!({ "text": text })),
        deadline: Instant::now() + time,
        cancel: CancellationToken::new(),
        answer_bytes_max: 1 << 20,
        is_learned_from: true,
    };
    host.call(call).await
}

pub(crate) async fn call(host: &Upstreams, tool: &str, text: &str) -> Result<ToolAnswer, ToolError> {
    call_within(host, tool, text, Duration::from_secs(20)).await
}

/// The text of an answer.
pub(crate) fn text(answer: &ToolAnswer) -> String {
    answer.result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, time: Duration, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < time, "{what} did not happen within {time:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a process is there and no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
