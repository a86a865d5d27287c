//! `docker run` and `podman run` without Palisade: the image of a run, with its user, limits and read-only directories.
//!
//! The container of a run is inspected while it exists. The engine's command line then gets what it says, the interpreter
//! itself in place of the guest, and memory file systems for what is writable.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::BareEngine;
use crate::program::Program;
use crate::rivals::bare;

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Flags of every container.
const HARDENED: [&str; 8] = [
    "run",
    "--rm",
    "--pull=never",
    "--network=none",
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--entrypoint=",
];

/// The command line up to the program.
pub(super) struct EngineRun {
    line: Vec<String>,
}

impl EngineRun {
    /// Takes over the only container of the server whose directory is beneath `above`.
    pub(super) fn of(engine: &BareEngine, above: &Path, program: &Program) -> Result<Self, String> {
        let deadline = Instant::now() + PATIENCE;
        let found = loop {
            match inspect(engine, above) {
                Ok(found) => break found,
                Err(reason) if Instant::now() > deadline => return Err(reason),
                Err(_) => std::thread::sleep(LOOK_AGAIN),
            }
        };
        let mut line = vec![engine.client.display().to_string()];
        line.extend(engine.options());
        line.extend(HARDENED.map(str::to_owned));
        line.extend(limits(&found));
        line.extend(mounts(&found, above));
        line.push(found["Image"].as_str().ok_or("its container has no image")?.to_owned());
        line.extend(program.plain_command().ok_or("it has no command line")?);
        Ok(Self { line })
    }

    pub(super) fn command(&self) -> Result<Command, String> {
        let (client, rest) = self.line.split_first().ok_or("it has no command line")?;
        let mut command = bare(client);
        command.args(rest).envs(std::env::var_os("HOME").map(|home| ("HOME", home)));
        Ok(command)
    }
}

/// What the engine says about the only container of the only server.
fn inspect(engine: &BareEngine, above: &Path) -> Result<Value, String> {
    let mut servers = std::fs::read_dir(above).into_iter().flatten().flatten();
    let server = servers.next().ok_or("the server has no directory")?.file_name();
    let label = format!("label=org.palisade.server={}", server.to_string_lossy());
    let id = ask(engine, &["ps", "--quiet", "--no-trunc", "--filter", &label])?;
    let id = id.split_whitespace().next().ok_or("no container appeared")?.to_owned();
    let told: Value =
        serde_json::from_str(&ask(engine, &["inspect", &id])?).map_err(|error| error.to_string())?;
    Ok(told[0].clone())
}

fn ask(engine: &BareEngine, arguments: &[&str]) -> Result<String, String> {
    let mut command = bare(&engine.client.to_string_lossy());
    command.args(engine.options()).args(arguments).stdin(Stdio::null());
    let ended = command.output().map_err(|error| format!("its client does not start: {error}"))?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned())
}

fn limits(found: &Value) -> Vec<String> {
    let number = |name: &str| found["HostConfig"][name].as_u64().filter(|number| *number > 0);
    let named = [
        ("memory", "Memory"),
        ("memory-swap", "MemorySwap"),
        ("pids-limit", "PidsLimit"),
        ("cpu-period", "CpuPeriod"),
        ("cpu-quota", "CpuQuota"),
    ];
    let values = named.iter().filter_map(|(flag, name)| Some(format!("--{flag}={}", number(name)?)));
    let user = found["Config"]["User"].as_str().map(|user| format!("--user={user}"));
    // The engine's own values may be above what a confined root user can give.
    let open = ["--ulimit=nofile=256:256", "--ulimit=nproc=4096:4096"].map(str::to_owned);
    values.chain(user).chain(open).collect()
}

/// Read-only directories of the host as they are. The server's own files go with their container and are left out.
fn mounts(found: &Value, above: &Path) -> Vec<String> {
    let mut flags = Vec::new();
    for mount in found["Mounts"].as_array().into_iter().flatten() {
        let text = |name: &str| mount[name].as_str().unwrap_or_default();
        let (source, inside) = (PathBuf::from(text("Source")), text("Destination"));
        if mount["RW"] == true {
            flags.push(format!("--tmpfs={inside}"));
        } else if !source.starts_with(above) {
            flags.push(format!("--volume={}:{inside}:ro", source.display()));
        }
    }
    flags
}
