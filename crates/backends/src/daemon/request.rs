//! What an engine is asked for: the body of `POST /containers/create`.
//!
//! Everything that an engine can take away is taken away here: network, capabilities, devices, a writable root, other
//! privileges. The guest raises Palisade's own walls inside, and the server examines the result ([`super::examine`]).

use std::collections::BTreeMap;
use std::path::Path;

use ::sandbox::Limits;
use jail::{JailPlan, Kernel};
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

use super::Engine;
use super::api::LABEL;
use crate::native::cgroup::GroupLimits;

/// Where process 1 is inside.
pub(super) const GUEST_AT: &str = "/.palisade-guest";
/// The socket at which process 1 finds the server. The server accepts one connection.
pub(super) const SOCKET_AT: &str = "/.palisade-socket";
/// When the host runs out of memory, the kernel kills sandboxes first.
const KILLED_FIRST: i32 = 1000;
/// It identifies the running machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Sandboxes have no use for sysfs, which describes the host.
const SYSFS: &str = "/sys";

/// System calls that no process of a container needs, not even while it starts. Palisade's own list of allowed calls is
/// installed inside; this one holds before that, and where an engine's own profile would keep the guest from using
/// Landlock.
const FORBIDDEN: &[&str] = &[
    "acct",
    "add_key",
    "bpf",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "mount",
    "mount_setattr",
    "move_mount",
    "name_to_handle_at",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pivot_root",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "quotactl",
    "reboot",
    "request_key",
    "setns",
    "swapoff",
    "swapon",
    "syslog",
    "umount2",
    "unshare",
    "userfaultfd",
];

/// A container to be created.
pub(super) struct Wanted<'a> {
    pub(super) engine: Engine,
    pub(super) image: &'a str,
    pub(super) server: &'a str,
    pub(super) plan: &'a JailPlan,
    pub(super) limits: &'a Limits,
    /// The directory that holds the writable space.
    pub(super) space: &'a Path,
    /// Where a persistent workspace is mounted.
    pub(super) files: &'a Path,
    /// The file with [`seccomp_profile`], for engines that read it from a file.
    pub(super) profile: &'a Path,
    /// The control group above those of the container, if the engine can be told one.
    pub(super) group: Option<String>,
}

impl Wanted<'_> {
    pub(super) fn json(&self) -> Value {
        let (uid, gid) = self.plan.id_map.numbers();
        json!({
            "Image": self.image,
            "User": format!("{uid}:{gid}"),
            "Entrypoint": [GUEST_AT],
            "Cmd": [jail::GUEST_ROLE, Kernel::Host.name(), SOCKET_AT],
            "Env": [],
            "WorkingDir": "/",
            "Hostname": self.plan.hostname,
            "NetworkDisabled": true,
            "Tty": false,
            "OpenStdin": false,
            "StopSignal": "SIGKILL",
            "Labels": { LABEL: self.server },
            "HostConfig": self.host_config(),
        })
    }

    fn host_config(&self) -> Value {
        let wanted = GroupLimits::of(self.limits);
        json!({
            "Privileged": false,
            "NetworkMode": "none",
            "IpcMode": if self.engine == Engine::Docker { "none" } else { "private" },
            "CgroupnsMode": "private",
            "CgroupParent": self.group.as_deref().unwrap_or_default(),
            "ReadonlyRootfs": true,
            "CapDrop": ["ALL"],
            "SecurityOpt": self.security(),
            "Memory": wanted.memory_bytes,
            "MemorySwap": wanted.memory_bytes,
            "PidsLimit": wanted.processes,
            "CpuPeriod": wanted.cpu_period_us,
            "CpuQuota": wanted.cpu_quota_us,
            "OomScoreAdj": KILLED_FIRST,
            "Ulimits": self.ulimits(),
            "Sysctls": settings(),
            "MaskedPaths": masked(),
            "ReadonlyPaths": jail::PROC_READONLY.map(|name| format!("/proc/{name}")),
            "LogConfig": { "Type": "none" },
            "RestartPolicy": { "Name": "no" },
            "AutoRemove": false,
            "Mounts": self.mounts(),
        })
    }

    fn security(&self) -> Vec<String> {
        let none = "no-new-privileges".to_owned();
        match self.engine {
            Engine::Docker => vec![none, format!("seccomp={}", seccomp_profile())],
            // Podman takes a path, and names what to mask here.
            Engine::Podman => vec![
                none,
                format!("seccomp={}", self.profile.display()),
                format!("mask={}", masked().join(":")),
            ],
        }
    }

    /// At most what this server has: an engine without CAP_SYS_RESOURCE cannot raise limits.
    fn ulimits(&self) -> Vec<Value> {
        let limits = &self.plan.rlimits;
        let values = [
            ("nofile", Resource::Nofile, limits.open_files),
            ("nproc", Resource::Nproc, limits.processes),
            // With 0 the kernel would still start a core handler that is a program (core(5)).
            ("core", Resource::Core, 1),
        ];
        let one = |(name, resource, value): (&str, Resource, u64)| {
            let value = getrlimit(resource).maximum.map_or(value, |own| own.min(value));
            json!({ "Name": name, "Soft": value, "Hard": value })
        };
        values.into_iter().map(one).collect()
    }

    fn mounts(&self) -> Vec<Value> {
        let binds = self.plan.binds.iter().filter(|bind| !bind.optional || bind.path.exists());
        let read_only = binds.map(|bind| mount(&bind.path, &bind.target, true));
        let writable = self.plan.scratch.directories.iter();
        let writable = writable.map(|(name, inside, _)| mount(&self.space.join(name), inside, false));
        let lasting = self.plan.workspace.iter().map(|(_, inside)| mount(self.files, inside, false));
        read_only.chain(writable).chain(lasting).collect()
    }
}

fn mount(source: &Path, target: &Path, read_only: bool) -> Value {
    json!({
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": read_only,
        "BindOptions": { "Propagation": "rprivate" },
    })
}

/// The settings of its network namespace that this kernel has.
fn settings() -> BTreeMap<String, String> {
    let here = jail::NETWORK_SETTINGS.iter();
    let here = here.filter(|(name, _)| Path::new("/proc/sys/net").join(name).exists());
    here.map(|(name, value)| (format!("net.{}", name.replace('/', ".")), value.to_string())).collect()
}

fn masked() -> Vec<String> {
    let names = jail::PROC_MASKED.iter().map(|name| format!("/proc/{name}"));
    names.chain([BOOT_ID.to_owned(), SYSFS.to_owned()]).collect()
}

/// The system-call filter that the engine installs, in the format that engines read.
pub(super) fn seccomp_profile() -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": FORBIDDEN, "action": "SCMP_ACT_ERRNO", "errnoRet": 1 }],
    })
}
