//! Runtimes of the Open Container Initiative, called directly: runc, crun, youki, runsc (gVisor).
//!
//! A bundle per program is prepared ahead: new namespaces, read-only root, no capabilities, and limits of
//! memory and processes where they are available. The bundles have no system call filter, so the runtimes do
//! less work than Palisade's wall.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::rootfs::Rootfs;
use super::{Candidates, Rival, bare, on_path};
use crate::program::Program;
use crate::scene::Scene;

/// The runtimes, with the flags that each needs.
pub(super) const RUNTIMES: [(&str, &[&str]); 4] =
    [("runc", &[]), ("crun", &[]), ("youki", &[]), ("runsc", &["--network=none"])];

/// crun does not start where control groups version 2 are mounted beside version 1. It starts if this mount
/// is hidden.
const UNIFIED: &str = "/sys/fs/cgroup/unified";
/// The user id of `nobody`.
const OUTER_ID: u32 = 65534;

/// One runtime.
struct Runtime {
    name: String,
    /// Command line up to the action.
    line: Vec<String>,
    folder: PathBuf,
    rootfs: Rootfs,
    /// Bundles by the label of the program.
    bundles: HashMap<String, PathBuf>,
    last: u64,
}

pub(super) fn find(scene: &Scene, name: &str, flags: &[&str]) -> Candidates {
    let binary = on_path(name)?.display().to_string();
    let rootfs = Rootfs::make(scene)?;
    let folder = scene.folder.within(name).map_err(|error| format!("a folder for it: {error}"))?;
    let state = folder.join("state").display().to_string();
    let direct: Vec<String> = [binary, "--root".to_owned(), state]
        .into_iter()
        .chain(flags.iter().map(|flag| (*flag).to_owned()))
        .collect();
    let runtime = |name: &str, line: Vec<String>| -> Box<dyn Rival> {
        let (folder, rootfs) = (folder.clone(), rootfs.clone());
        Box::new(Runtime { name: name.to_owned(), line, folder, rootfs, bundles: HashMap::new(), last: 0 })
    };
    let mut candidates = vec![runtime(name, direct.clone())];
    if name == "crun" && Path::new(UNIFIED).exists() {
        let script = format!("umount {UNIFIED} && exec \"$@\"");
        let before = ["unshare", "-m", "/bin/sh", "-c", &script, "sh"].map(str::to_owned);
        candidates.push(runtime("crun (cgroup v2 hidden)", before.into_iter().chain(direct).collect()));
    }
    Ok(candidates)
}

impl Rival for Runtime {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&mut self, program: &Program) -> Result<Command, String> {
        let bundle = match self.bundles.get(&program.label) {
            Some(bundle) => bundle.clone(),
            None => self.prepare(program).map_err(|error| format!("preparing its bundle: {error}"))?,
        };
        self.last += 1;
        let id = format!("palisade-bench-{}-{}", std::process::id(), self.last);
        let (first, rest) = self.line.split_first().ok_or("it has no command line")?;
        let mut command = bare(first);
        command.args(rest).arg("run").arg("--bundle").arg(bundle).arg(id);
        Ok(command)
    }
}

impl Runtime {
    fn prepare(&mut self, program: &Program) -> std::io::Result<PathBuf> {
        let bundle = self.folder.join(&program.label);
        std::fs::create_dir_all(&bundle)?;
        let is_root = rustix::process::geteuid().is_root();
        let config = config(&self.rootfs, &program.plain_command().unwrap_or_default(), is_root);
        std::fs::write(bundle.join("config.json"), config.to_string())?;
        self.bundles.insert(program.label.clone(), bundle.clone());
        Ok(bundle)
    }
}

fn config(rootfs: &Rootfs, line: &[String], is_root: bool) -> Value {
    let none: [&str; 0] = [];
    let user = if is_root { OUTER_ID } else { 0 };
    let fresh = |path: &str, size: &str| {
        json!({ "destination": path, "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "nodev", "mode=1777", format!("size={size}")] })
    };
    let mut mounts = vec![
        json!({ "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] }),
        json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"] }),
        fresh("/tmp", "64m"),
        fresh("/workspace", "256m"),
    ];
    mounts.extend(rootfs.shown.iter().map(|folder| {
        json!({ "destination": folder, "type": "bind", "source": folder, "options": ["rbind", "ro", "nosuid", "nodev"] })
    }));
    let spaces = ["pid", "network", "ipc", "uts", "mount"].into_iter().chain((!is_root).then_some("user"));
    let mut linux = json!({
        "namespaces": spaces.map(|kind| json!({ "type": kind })).collect::<Vec<_>>(),
        "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list"],
        "readonlyPaths": ["/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger"],
    });
    if is_root {
        linux["resources"] = json!({
            "memory": { "limit": 512_u64 << 20 }, "pids": { "limit": 64 }, "devices": [{ "allow": false, "access": "rwm" }],
        });
    } else {
        let own = |id: u32| json!([{ "containerID": 0, "hostID": id, "size": 1 }]);
        linux["uidMappings"] = own(rustix::process::geteuid().as_raw());
        linux["gidMappings"] = own(rustix::process::getegid().as_raw());
    }
    let kinds = ["bounding", "effective", "permitted", "inheritable", "ambient"];
    let capabilities: serde_json::Map<String, Value> =
        kinds.into_iter().map(|kind| (kind.to_owned(), json!(none))).collect();
    json!({
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": { "path": rootfs.path, "readonly": true },
        "mounts": mounts,
        "linux": linux,
        "process": {
            "terminal": false,
            "user": { "uid": user, "gid": user },
            "args": line,
            "env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "cwd": "/workspace",
            "capabilities": capabilities,
            "noNewPrivileges": true,
            "rlimits": [{ "type": "RLIMIT_NOFILE", "hard": 256, "soft": 256 }],
        },
    })
}
