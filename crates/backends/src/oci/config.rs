//! The bundle's `config.json`: see the OCI runtime specification, "config" and "config-linux".
//!
//! The root is complete before the runtime sees it (`jail::stage`). The runtime adds procfs, terminals, namespaces and
//! the identity, and nothing else: no capability, no device, no environment.

use std::path::Path;

use jail::{INSIDE_ID, JailPlan, Kernel};
use serde_json::{Value, json};

use super::runtime::OciRuntime;

/// Where process 1 is inside.
pub(super) const GUEST_AT: &str = "/.palisade-guest";
/// The id on the host of the user 0 that runtimes need while they build a container. It is below every range that
/// sandboxes have, and no process keeps it.
pub(super) const SETUP_ID: u32 = 0x2fff_ffff;

const NAMESPACES: [&str; 7] = ["user", "mount", "pid", "network", "ipc", "uts", "cgroup"];
/// When the host runs out of memory, the kernel kills sandboxes first.
const KILLED_FIRST: i32 = 1000;
/// It identifies the running machine. Runtimes mount nothing of ours there, so it is empty.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What the file describes.
pub(super) struct Bundle<'a> {
    pub(super) runtime: OciRuntime,
    pub(super) plan: &'a JailPlan,
    /// Where the root is staged.
    pub(super) root: &'a Path,
    /// Where the writable space is staged.
    pub(super) scratch: &'a Path,
    pub(super) cgroups_path: &'a str,
}

impl Bundle<'_> {
    pub(super) fn json(&self) -> Value {
        let (uid, gid) = self.plan.id_map.numbers();
        let kernel = if self.runtime == OciRuntime::Gvisor { Kernel::Own } else { Kernel::Host };
        json!({
            "ociVersion": "1.0.2",
            "hostname": self.plan.hostname,
            // gVisor would remount the root, without the flags that it has already.
            "root": { "path": self.root, "readonly": self.runtime != OciRuntime::Gvisor },
            "process": {
                "terminal": false,
                "user": { "uid": INSIDE_ID, "gid": INSIDE_ID, "additionalGids": [] },
                "args": [GUEST_AT, jail::GUEST_ROLE, kernel.name()],
                "env": [],
                "cwd": "/",
                "capabilities": {
                    "bounding": [], "effective": [], "inheritable": [], "permitted": [], "ambient": []
                },
                "noNewPrivileges": true,
                "oomScoreAdj": KILLED_FIRST,
            },
            "mounts": self.mounts(),
            "linux": {
                "uidMappings": mappings(uid),
                "gidMappings": mappings(gid),
                "namespaces": NAMESPACES.map(|name| json!({ "type": name })),
                "cgroupsPath": self.cgroups_path,
                // The server has written the limits to these groups itself, and reads them again.
                "resources": {},
                "maskedPaths": masked(),
                "readonlyPaths": jail::PROC_READONLY.map(|name| format!("/proc/{name}")),
            },
        })
    }

    fn mounts(&self) -> Vec<Value> {
        let mut mounts = vec![mount("/proc", "proc", Path::new("proc"), &["nosuid", "noexec", "nodev"])];
        match self.runtime {
            OciRuntime::Gvisor => {
                mounts.extend(self.writable("/"));
                // In place of gVisor's own, which tells of the machine's processors and of its model.
                mounts.push(mount("/sys", "tmpfs", Path::new("tmpfs"), &["ro", "nosuid", "noexec", "nodev"]));
                // A mount of its own, whose files gVisor does not take for unchanged by others.
                mounts.extend(self.plan.workspace.iter().map(|(_, inside)| {
                    let staged = self.root.join(inside.strip_prefix("/").unwrap_or(inside));
                    mount(&inside.to_string_lossy(), "bind", &staged, &["bind", "rw", "nosuid", "nodev"])
                }));
            }
            OciRuntime::Runc | OciRuntime::Crun => {
                // A bind, so that the runtime adds no device to those of the root. It is read-only as the root is:
                // options here would be a second mount call, which fails without the flags that it has already.
                mounts.push(mount("/dev", "bind", &self.root.join("dev"), &["rbind"]));
                if self.runtime == OciRuntime::Crun {
                    // crun 1.8 does not bind what is mounted beneath.
                    let devices = jail::DEVICES.iter().map(|name| Path::new("dev").join(name));
                    mounts.extend(devices.map(|path| {
                        mount(
                            &Path::new("/").join(&path).to_string_lossy(),
                            "bind",
                            &self.root.join(&path),
                            &["bind"],
                        )
                    }));
                    mounts.extend(self.writable("/dev"));
                }
                let options = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "max=16"];
                mounts.push(mount("/dev/pts", "devpts", Path::new("devpts"), &options));
            }
        }
        mounts
    }

    /// The writable directories below a path, from the staged space.
    fn writable(&self, below: &str) -> impl Iterator<Item = Value> {
        let directories = self.plan.scratch.directories.iter();
        let directories = directories.filter(move |(_, inside, _)| inside.starts_with(below));
        directories.map(|(name, inside, _)| {
            let options = ["bind", "rw", "nosuid", "nodev"];
            mount(&inside.to_string_lossy(), "bind", &self.scratch.join(name), &options)
        })
    }
}

fn mount(at: &str, kind: &str, source: &Path, options: &[&str]) -> Value {
    json!({ "destination": at, "type": kind, "source": source, "options": options })
}

fn mappings(outside: u32) -> Value {
    json!([
        { "containerID": 0, "hostID": SETUP_ID, "size": 1 },
        { "containerID": INSIDE_ID, "hostID": outside, "size": 1 },
    ])
}

fn masked() -> Vec<String> {
    let names = jail::PROC_MASKED.iter().map(|name| format!("/proc/{name}"));
    names.chain([BOOT_ID.to_owned()]).collect()
}
