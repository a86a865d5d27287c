//! Converts a spec to a jail plan: which parts of this system every sandbox shows, and nothing more.
//!
//! `build` calls it for every sandbox. It only computes data; the jail carries out the plan.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use jail::{Bind, IdMap, JailError, JailPlan, PlanFile, PlanFolder, Rlimits, Scratch};
use sandbox::{
    BackendError, Limits, PlacedFile, ReadOnlyBind, STACK_BYTES, SandboxSpec, SharedFolder, WORKSPACE,
};

use super::cgroup::{CgroupSet, Cgroups};
use super::surroundings::Surroundings;

/// Links at the top of a merged-/usr system, directories elsewhere.
const TOP: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"];
/// Public parts of /etc that programs look for: the linker's cache, selected alternatives, time zone,
/// certificates, fonts.
const ETC: [&str; 6] = [
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/fonts",
];

/// The writable directories of every sandbox beside its workspace: their names in the writable space, their paths,
/// their modes.
const WRITABLE: [(&str, &str, u32); 3] =
    [("tmp", "/tmp", 0o1777), ("home", "/home/agent", 0o755), ("shm", "/dev/shm", 0o1777)];
/// Names the distribution, whose `/usr` every sandbox shows. See os-release(5).
const OS_RELEASE: &str = "/etc/os-release";
const OS_RELEASE_BYTES_MAX: u64 = 16 << 10;
/// The path by which other code interpreters show the files of a program.
const OTHER_WORKSPACE: &str = "/mnt/data";

/// Lets `git commit` work without an identity of the caller. The settings of a program come before these.
const GIT_CONFIG: &str = "[user]\n\tname = agent\n\temail = agent@palisade\n[init]\n\tdefaultBranch = main\n";

const HOSTNAME: &str = "palisade";
/// The guest and the start of the program need some file descriptors.
const OPEN_FILES_MIN: u64 = 32;
/// Process 1 counts too.
const GUEST_PROCESSES: u64 = 1;
/// Where a control group counts processes, it must be the one that refuses, because only its refusals are
/// visible from outside. The process limit is therefore higher by this number.
const SPARE_PROCESSES: u64 = 64;

/// What every sandbox on this machine shows.
#[derive(Clone)]
pub(crate) struct System {
    binds: Vec<Bind>,
    symlinks: Vec<(PathBuf, PathBuf)>,
    files: Vec<PlanFile>,
    /// The server's own executable, which some sandboxes show.
    executable: Option<PathBuf>,
}

impl System {
    pub(super) fn detect() -> Self {
        let mut binds = vec![Bind::in_place(PathBuf::from("/usr"), false)];
        let mut symlinks = Vec::new();
        for path in TOP.map(PathBuf::from) {
            match fs::read_link(&path) {
                Ok(target) => symlinks.push((path, target)),
                Err(_) if path.is_dir() => binds.push(Bind::in_place(path, false)),
                Err(_) => {}
            }
        }
        symlinks.push((PathBuf::from(OTHER_WORKSPACE), PathBuf::from(WORKSPACE)));
        let mut files = system_files();
        match system_name() {
            Some(SystemName::Link(target)) => symlinks.push((PathBuf::from(OS_RELEASE), target)),
            Some(SystemName::Text(content)) => files.push(PlanFile { path: OS_RELEASE.into(), content }),
            None => {}
        }
        let public = ETC.map(PathBuf::from).into_iter().filter(|path| path.exists());
        binds.extend(public.map(|path| Bind::in_place(path, true)));
        Self { binds, symlinks, files, executable: None }
    }

    pub(super) fn set_executable(&mut self, executable: Option<PathBuf>) {
        self.executable = executable;
    }

    /// The files of a sandbox: those of every sandbox, and those of its kind.
    pub(crate) fn files(&self, spec: &SandboxSpec) -> Vec<PlanFile> {
        let own = |file: &PlacedFile| PlanFile { path: file.path.clone(), content: file.content.to_vec() };
        self.files.iter().cloned().chain(spec.files.iter().map(own)).collect()
    }

    /// The parts of the host that a sandbox shows: those of every sandbox, and those of its kind.
    fn binds(&self, spec: &SandboxSpec) -> Vec<Bind> {
        let is_there =
            |wanted: &ReadOnlyBind| self.binds.iter().any(|known| wanted.target.starts_with(&known.target));
        let new = spec.binds.iter().filter(|wanted| !is_there(wanted));
        let new = new.map(|bind| (&bind.path, &bind.target, bind.optional));
        let layers = spec.layers.iter().map(|layer| (&layer.path, &layer.target, false));
        let bind = |(path, target, optional): (&PathBuf, &PathBuf, bool)| Bind {
            path: path.clone(),
            target: target.clone(),
            optional,
        };
        let mut binds = self.binds.clone();
        binds.extend(new.chain(layers).map(bind));
        // An executable that was replaced on disk is no longer the running one.
        if let (Some(path), Some(target)) = (&self.executable, &spec.executable_at)
            && path.is_file()
        {
            binds.push(bind((path, target, false)));
        }
        binds
    }

    /// Everything except a workspace that lasts, and files: a clone of a zygote process finds them in its root
    /// already.
    pub(crate) fn plan(
        &self,
        spec: &SandboxSpec,
        id_map: IdMap,
        cgroups: &Cgroups,
        born_into: &CgroupSet,
    ) -> JailPlan {
        JailPlan {
            id_map,
            unified_cgroup: born_into.unified_directory(),
            joins_groups: cgroups.has_old(),
            binds: self.binds(spec),
            symlinks: self.symlinks.iter().chain(&spec.links).cloned().collect(),
            files: Vec::new(),
            directories: spec.attach_points.clone(),
            folders: folders(spec),
            workspace: None,
            scratch: scratch(spec),
            rlimits: rlimits(spec.headroom.as_ref().unwrap_or(&spec.limits), cgroups.may_limit_processes()),
            memory_counted: cgroups.may_limit_memory(),
            hostname: HOSTNAME.to_owned(),
            linger_ms: 0,
        }
    }
}

/// The limits that the kernel keeps per process. `is_counted` is true if a control group counts processes
/// too.
pub(super) fn rlimits(limits: &Limits, is_counted: bool) -> Rlimits {
    Rlimits {
        cpu_s: limits.cpu_ms().div_ceil(1000) + 1,
        file_bytes: limits.disk_bytes,
        open_files: u64::from(limits.open_files).min(open_files_max()).max(OPEN_FILES_MIN),
        processes: u64::from(limits.processes)
            + GUEST_PROCESSES
            + if is_counted { SPARE_PROCESSES } else { 0 },
        stack_bytes: STACK_BYTES,
    }
}

/// File descriptors in transit through a socket are counted for their owner on the whole host, against the
/// limit of the sending process (`too_many_unix_fds` in the kernel). With the id of an ordinary user, half of
/// the user's own limit must therefore remain free.
fn open_files_max() -> u64 {
    if rustix::process::geteuid().is_root() {
        return u64::MAX;
    }
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.map_or(u64::MAX, |own| own / 2)
}

/// Whether a sandbox shows something of the host beneath, or above, one of its writable directories. A clone of
/// a zygote process mounts its own writable directories over those of the zygote, and would lose it.
pub(super) fn overlaps_writable(spec: &SandboxSpec) -> bool {
    let meets =
        |target: &Path, inside: &str| target.starts_with(inside) || Path::new(inside).starts_with(target);
    let binds = spec.binds.iter().map(|bind| bind.target.as_path());
    let layers = spec.layers.iter().map(|layer| layer.target.as_path());
    let files = spec.files.iter().map(|file| file.path.as_path());
    let points = spec.attach_points.iter().map(PathBuf::as_path);
    let mut targets = binds.chain(layers).chain(files).chain(points).chain(spec.executable_at.as_deref());
    targets
        .any(|target| WRITABLE.iter().any(|(_, inside, _)| meets(target, inside)) || meets(target, WORKSPACE))
}

/// The operator's directories, outer ones first.
fn folders(spec: &SandboxSpec) -> Vec<PlanFolder> {
    let folder = |one: &SharedFolder| PlanFolder { path: one.path.clone(), is_writable: one.is_writable };
    let mut folders: Vec<PlanFolder> = spec.folders.iter().map(folder).collect();
    folders.sort_by(|one, other| one.path.cmp(&other.path));
    folders
}

/// Everything writable, under one size limit.
fn scratch(spec: &SandboxSpec) -> Scratch {
    let directory = |name: &str, inside: &str, mode| (name.to_owned(), PathBuf::from(inside), mode);
    let mut directories: Vec<_> =
        WRITABLE.iter().map(|(name, inside, mode)| directory(name, inside, *mode)).collect();
    if spec.workspace.is_none() {
        directories.push(directory("workspace", WORKSPACE, 0o755));
    }
    Scratch { bytes: spec.limits.disk_bytes, inodes: spec.limits.disk_inodes, directories }
}

/// How a sandbox names the distribution.
enum SystemName {
    /// By a link to a file in `/usr`.
    Link(PathBuf),
    /// By a copy of the host's file, which is not in `/usr`.
    Text(Vec<u8>),
}

fn system_name() -> Option<SystemName> {
    let real = fs::canonicalize(OS_RELEASE).ok()?;
    if real.starts_with("/usr") {
        return Some(SystemName::Link(real));
    }
    let mut content = Vec::new();
    fs::File::open(real).ok()?.take(OS_RELEASE_BYTES_MAX).read_to_end(&mut content).ok()?;
    Some(SystemName::Text(content))
}

fn system_files() -> Vec<PlanFile> {
    let id = jail::INSIDE_ID;
    [
        (
            "/etc/passwd",
            format!(
                "agent:x:{id}:{id}:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
            ),
        ),
        ("/etc/group", format!("agent:x:{id}:\nnogroup:x:65534:\n")),
        ("/etc/hosts", format!("127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n")),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".to_owned()),
        ("/etc/resolv.conf", String::new()),
        ("/etc/gitconfig", GIT_CONFIG.to_owned()),
    ]
    .into_iter()
    .map(|(path, content)| PlanFile { path: Path::new(path).to_owned(), content: content.into_bytes() })
    .collect()
}

/// Turns a failed step into an error that names the remedy, if there is one.
pub(super) fn explain(error: &JailError) -> BackendError {
    let source = error.source();
    let unsupported = |remedy: &str| BackendError::Unsupported {
        what: format!("{}: {source}", error.step),
        remedy: remedy.to_owned(),
    };
    let refused = [libc_errno::EPERM, libc_errno::EACCES, libc_errno::ENOSPC, libc_errno::EUSERS];
    let is_refused = error.errno().is_some_and(|errno| refused.contains(&errno));
    let is_absent = error.errno() == Some(libc_errno::ENOSYS);
    match error.step.as_str() {
        // The filters of container engines answer ENOSYS to clone3(2).
        "clone" if is_refused || is_absent => unsupported(&Surroundings::read().namespaces_remedy()),
        "own id map" | "id maps" if is_refused => unsupported(
            "this user may not map ids: on Ubuntu 23.10 or newer `sysctl -w \
             kernel.apparmor_restrict_unprivileged_userns=0` or an AppArmor profile with `userns,` for this binary; inside a \
             container whose user namespace maps only root, run the server as another user",
        ),
        "subordinate id map" => unsupported(
            "newuidmap refused: check that /etc/subuid and /etc/subgid have a range for this user and that newuidmap \
             is set-uid (package uidmap); a container with no-new-privileges cannot use it: remove the ranges there",
        ),
        "procfs" if is_refused => unsupported(&Surroundings::read().procfs_remedy()),
        "root" if is_refused || is_absent => unsupported(
            "mounting is refused here, as it is inside a container whose system-call filter or AppArmor profile forbids it: with \
             Docker add `--security-opt seccomp=deploy/docker/seccomp.json --security-opt apparmor=unconfined`; see \
             docs/CONTAINERS.md",
        ),
        step => BackendError::Build { step: step.to_owned(), source },
    }
}

/// Error numbers that mean "not allowed here"; the same on every Linux architecture.
mod libc_errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const EACCES: i32 = 13;
    pub(super) const ENOSPC: i32 = 28;
    pub(super) const ENOSYS: i32 = 38;
    pub(super) const EUSERS: i32 = 87;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn showing(target: &str) -> SandboxSpec {
        let bind = ReadOnlyBind {
            path: PathBuf::from("/somewhere"),
            target: PathBuf::from(target),
            optional: false,
        };
        SandboxSpec { binds: vec![bind], ..SandboxSpec::default() }
    }

    #[test]
    fn interpreters_in_writable_directories_are_recognised() {
        for inside in ["/tmp/venv", "/home/agent/.pyenv/versions/3.13", "/dev/shm/python", "/workspace/node"]
        {
            assert!(overlaps_writable(&showing(inside)), "{inside}");
        }
        for above in ["/home", "/tmp", "/dev"] {
            assert!(overlaps_writable(&showing(above)), "{above}");
        }
        for elsewhere in ["/usr/local", "/opt/venv", "/root/.pyenv", "/home/agents", "/tmpfiles"] {
            assert!(!overlaps_writable(&showing(elsewhere)), "{elsewhere}");
        }
        assert!(!overlaps_writable(&SandboxSpec::default()));
    }
}
