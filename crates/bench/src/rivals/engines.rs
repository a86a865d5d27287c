//! Docker and Podman, if an engine answers: one hardened `run --rm` per sample, without network, over a root
//! filesystem made here. No image is ever fetched.

use std::process::{Command, Stdio};

use super::rootfs::Rootfs;
use super::{Candidates, Rival, bare, on_path};
use crate::program::Program;
use crate::scene::Scene;

pub(super) const DOCKER: &str = "docker run";
pub(super) const PODMAN: &str = "podman run";

/// Variables that their clients need to find an engine or their own folders.
const KEPT_VARIABLES: [&str; 6] = [
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "HOME",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
];
/// Flags for both engines.
const HARDENED: [&str; 9] = [
    "run",
    "--rm",
    "--network=none",
    "--read-only",
    "--security-opt=no-new-privileges",
    "--memory=512m",
    "--pids-limit=64",
    "--tmpfs=/workspace",
    "--workdir=/workspace",
];
/// Maximum time for an engine to answer, or to import an image.
const ANSWER_SECONDS: &str = "20";

/// One engine.
struct Engine {
    name: String,
    /// Command line up to the program.
    line: Vec<String>,
    /// Removed at the end.
    image: Option<Image>,
}

impl Rival for Engine {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&mut self, program: &Program) -> Result<Command, String> {
        let line = program.plain_command().ok_or("it cannot be started without a file")?;
        let (first, rest) = self.line.split_first().ok_or("it has no command line")?;
        let mut command = client(first);
        command.args(rest);
        command.args(self.image.as_ref().map(|image| image.name.as_str())).args(line);
        Ok(command)
    }
}

pub(super) fn docker(scene: &Scene) -> Candidates {
    let binary = on_path("docker")?.display().to_string();
    answer(bounded(&binary).args(["version", "--format", "{{.Server.Version}}"]))?;
    let rootfs = Rootfs::make(scene)?;
    let image = Image::import(&binary, &rootfs)?;
    let mut line = vec![binary];
    line.extend(HARDENED.map(str::to_owned));
    line.extend(["--pull=never", "--cap-drop=ALL", "--entrypoint="].map(str::to_owned));
    line.extend(volumes(&rootfs));
    Ok(vec![Box::new(Engine { name: DOCKER.to_owned(), line, image: Some(image) })])
}

/// First with Podman's default runtime, then with runc, which starts where others do not.
pub(super) fn podman(scene: &Scene) -> Candidates {
    let binary = on_path("podman")?.display().to_string();
    let rootfs = Rootfs::make(scene)?;
    let folder = scene.folder.within("podman").map_err(|error| format!("a folder for it: {error}"))?;
    let place = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let runtimes: [(&str, &[&str]); 2] =
        [("", &[]), (" (runc)", &["--runtime=runc", "--cgroup-manager=cgroupfs"])];
    let candidates = runtimes.map(|(suffix, flags)| {
        let mut line = vec![binary.clone(), place("root", "root"), place("runroot", "run")];
        line.extend(flags.iter().map(|flag| (*flag).to_owned()));
        line.extend(HARDENED.map(str::to_owned));
        // The engine's defaults are above the limits that a confined root user may set.
        line.extend(
            ["--cap-drop=all", "--ulimit=nofile=256:256", "--ulimit=nproc=4096:4096"].map(str::to_owned),
        );
        line.extend(volumes(&rootfs));
        line.extend(["--rootfs".to_owned(), rootfs.path.display().to_string()]);
        Box::new(Engine { name: format!("{PODMAN}{suffix}"), line, image: None }) as Box<dyn Rival>
    });
    Ok(candidates.into_iter().collect())
}

fn volumes(rootfs: &Rootfs) -> Vec<String> {
    rootfs.shown.iter().map(|folder| format!("--volume={0}:{0}:ro", folder.display())).collect()
}

fn client(binary: &str) -> Command {
    let mut command = bare(binary);
    command.envs(KEPT_VARIABLES.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
    command
}

/// A client command with a timeout.
fn bounded(binary: &str) -> Command {
    let mut command = client("timeout");
    command.args([ANSWER_SECONDS, binary]).stdin(Stdio::null());
    command
}

fn answer(command: &mut Command) -> Result<String, String> {
    let ended = command.output().map_err(|error| format!("it does not start: {error}"))?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).trim().to_owned());
    }
    let complaint =
        String::from_utf8_lossy(&ended.stderr).trim().lines().last().unwrap_or_default().to_owned();
    Err(format!("no engine answers: {complaint}"))
}

/// An image of the root filesystem, removed when dropped.
struct Image {
    binary: String,
    name: String,
}

impl Image {
    fn import(binary: &str, rootfs: &Rootfs) -> Result<Self, String> {
        let name = format!("palisade-bench:{}", std::process::id());
        let mut pack = bare("tar");
        pack.arg("-C").arg(&rootfs.path).args(["-c", "."]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut pack = pack.spawn().map_err(|error| format!("tar does not start: {error}"))?;
        let stream = pack.stdout.take().map_or_else(Stdio::null, Stdio::from);
        let imported = answer(bounded(binary).args(["import", "-", &name]).stdin(stream));
        pack.wait().ok();
        imported.map(|_| Self { binary: binary.to_owned(), name })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // Only a few empty folders would remain in the engine's store.
        answer(bounded(&self.binary).args(["rmi", "--force", &self.name])).ok();
    }
}
