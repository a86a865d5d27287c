//! The host's own examination of a process before any code is sent to it.
//!
//! What is reported as enforced comes from here: /proc/PID/status, namespaces, mounts, limits and control
//! groups of the actual process, read while it waits for consent. The plan only says what should be found.
//! Landlock alone leaves no trace in /proc: for it the jail's report of the kernel's answer is used, and the
//! result says so.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ::sandbox::{BackendError, Enforced, Guarantee, Limits, Mechanism};
use jail::{IdMap, JailPlan, PlanFolder, Rlimits, Wall};

use super::cgroup::CgroupSet;
use super::id_space::IdSpace;
use super::kernel_file;
use super::status::Status;

pub(crate) const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
const CAPABILITY_SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
const NO_CAPABILITY: &str = "0000000000000000";
/// seccomp(2): a filter is in force.
const SECCOMP_FILTER: &str = "2";
/// Writable mount points besides the writable space: terminals, and procfs, which its own permissions and the
/// masks protect.
const WRITABLE_SYSTEM: [&str; 2] = ["/proc", "/dev/pts"];
/// Device nodes, which can be used but not changed.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Devices that kernels with built-in tunnel drivers show, down and without address, in every new namespace.
const FALLBACK_TUNNELS: [&str; 10] = [
    "tunl0",
    "gre0",
    "gretap0",
    "erspan0",
    "ip_vti0",
    "ip6_vti0",
    "sit0",
    "ip6tnl0",
    "ip6gre0",
    "ip6gretap0",
];

/// How the size of a workspace on disk is limited.
pub(crate) const WATCHED_WORKSPACE: &str = "the workspace is on disk: measured several times a second while a run is \
    on, twice a second otherwise, so it may overshoot by what is written meanwhile";

/// What to examine.
pub(crate) struct Seen<'a> {
    pub(crate) pid: i32,
    pub(crate) plan: &'a JailPlan,
    pub(crate) limits: &'a Limits,
    pub(crate) cgroups: &'a CgroupSet,
    /// The id outside of the user 0 that a container runtime maps to set the container up.
    pub(crate) setup_id: Option<u32>,
}

impl Seen<'_> {
    /// Examines the process and returns what is enforced. A missing wall is an error.
    pub(crate) fn enforced(&self, landlock_abi: u32) -> Result<Enforced, BackendError> {
        if !Wall::Verify.off() {
            self.namespaces()?;
            self.privileges()?;
            self.identity()?;
            self.mounts()?;
            self.network()?;
            rlimits(self.pid, &self.plan.rlimits)?;
            self.cgroups.check(self.pid, self.limits).map_err(incomplete)?;
        }
        Ok(self.report(landlock_abi))
    }

    fn namespaces(&self) -> Result<(), BackendError> {
        for (name, ours) in NAMESPACES.into_iter().zip(own_namespaces()) {
            let theirs = fs::read_link(format!("/proc/{}/ns/{name}", self.pid))
                .map_err(|error| incomplete(format!("its {name} namespace cannot be read: {error}")))?;
            if ours.as_ref().is_some_and(|ours| *ours == theirs) {
                return Err(incomplete(format!("it shares our {name} namespace")));
            }
        }
        Ok(())
    }

    fn privileges(&self) -> Result<(), BackendError> {
        let status = Status::read(self.pid).map_err(|error| incomplete(error.to_string()))?;
        let is = |name: &str, wanted: &str| {
            let found = status.get(name);
            if found == wanted { Ok(()) } else { Err(incomplete(format!("{name} is {found}"))) }
        };
        is("NoNewPrivs", "1")?;
        is("Seccomp", SECCOMP_FILTER)?;
        for set in CAPABILITY_SETS {
            is(set, NO_CAPABILITY)?;
        }
        let (outer, _) = self.plan.id_map.numbers();
        // In a user namespace with a single id, number 0 is an ordinary user of the host.
        if outer == 0 && IdSpace::own().root_is_real() {
            return Err(incomplete("its user is root outside".to_owned()));
        }
        is("Uid", &format!("{outer}\t{outer}\t{outer}\t{outer}"))?;
        if !matches!(self.plan.id_map.outside(), IdMap::Own { .. }) {
            is("Groups", "")?;
        }
        Ok(())
    }

    /// Its user namespace maps exactly one identity, besides that of a runtime's set-up, which is neither the server's nor a zygote's. A clone of
    /// a zygote process holds none of the zygote's streams.
    fn identity(&self) -> Result<(), BackendError> {
        let (uid, gid) = self.plan.id_map.numbers();
        for (name, outside) in [("uid_map", uid), ("gid_map", gid)] {
            let text = kernel_file::read(format!("/proc/{}/{name}", self.pid))
                .map_err(|error| incomplete(format!("its {name} cannot be read: {error}")))?;
            let found: Vec<&str> = text.split_whitespace().collect();
            let line = |inside: u32, outside: u32| [inside.to_string(), outside.to_string(), "1".to_owned()];
            let setup = self.setup_id.map(|id| line(0, id));
            let wanted = setup.into_iter().chain([line(jail::INSIDE_ID, outside)]).flatten();
            if !wanted.eq(found.iter().copied()) {
                return Err(incomplete(format!("its {name} is {}", found.join(" "))));
            }
        }
        if matches!(self.plan.id_map, IdMap::OfZygote { .. }) {
            for number in 0..=2 {
                let stream = fs::read_link(format!("/proc/{}/fd/{number}", self.pid));
                if stream.as_ref().is_ok_and(|stream| stream != Path::new("/dev/null")) || stream.is_err() {
                    return Err(incomplete(format!("its stream {number} is {stream:?}")));
                }
            }
        }
        Ok(())
    }

    /// Its root is a read-only memory file system, and only the writable space can be written.
    fn mounts(&self) -> Result<(), BackendError> {
        let text = kernel_file::read(format!("/proc/{}/mountinfo", self.pid))
            .map_err(|error| incomplete(format!("its mounts cannot be read: {error}")))?;
        let mut has_root = false;
        for mount in text.lines().filter_map(Mount::parse).filter(|mount| !mount.is_null_mask()) {
            if mount.point == "/" {
                has_root = true;
                if mount.kind != "tmpfs" || !mount.is("ro") {
                    return Err(incomplete(format!("its root is {} {}", mount.kind, mount.options)));
                }
            }
            if !mount.is("nosuid") && !mount.is("ro") && !mount.is_device() {
                return Err(incomplete(format!("{} honours set-uid", mount.point)));
            }
            if !mount.is("ro") && !self.may_write(mount.point) {
                return Err(incomplete(format!("{} can be written", mount.point)));
            }
            if !self.is_planned(mount.point) {
                return Err(incomplete(format!("{} is not in the plan", mount.point)));
            }
        }
        if has_root { Ok(()) } else { Err(incomplete("it has no root".to_owned())) }
    }

    pub(crate) fn may_write(&self, point: &str) -> bool {
        self.plan.writable().any(|inside| inside == Path::new(point))
            || WRITABLE_SYSTEM.contains(&point)
            || self.folder_of(point).is_some_and(|folder| folder.is_writable)
    }

    /// The operator's directory that shows a mount: the innermost.
    fn folder_of(&self, point: &str) -> Option<&PlanFolder> {
        let point = unescaped(point);
        self.plan.folders.iter().rfind(|folder| Path::new(&point).starts_with(&folder.path))
    }

    pub(crate) fn is_planned(&self, point: &str) -> bool {
        let mut system = WRITABLE_SYSTEM.iter().chain(&DEVICES);
        let is_within = |above: &[u8]| {
            let rest = point.as_bytes().strip_prefix(above);
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        // `/dev` is part of the root, or a bind of that part: never writable either way.
        point == "/"
            || point == "/dev"
            || system.any(|known| is_within(known.as_bytes()))
            || self.may_write(point)
            || self.folder_of(point).is_some()
            || self.plan.binds.iter().any(|bind| is_within(bind.target.as_os_str().as_bytes()))
    }

    pub(crate) fn network(&self) -> Result<(), BackendError> {
        let text = kernel_file::read(format!("/proc/{}/net/dev", self.pid))
            .map_err(|error| incomplete(format!("its interfaces cannot be read: {error}")))?;
        let mut names = text.lines().skip(2).filter_map(|line| line.split(':').next().map(str::trim));
        match names.find(|name| *name != "lo" && !FALLBACK_TUNNELS.contains(name)) {
            Some(name) => Err(incomplete(format!("it has the interface {name}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn report(&self, landlock_abi: u32) -> Enforced {
        use Guarantee as G;
        use Mechanism as M;
        let has_landlock = landlock_abi > 0;
        let with_landlock = |mechanisms: &[M]| {
            let mut list = mechanisms.to_vec();
            if has_landlock {
                list.push(M::Landlock);
            }
            list
        };
        let mut enforced = Enforced::default();
        let abi = format!("Landlock ABI {landlock_abi}");
        let note = if has_landlock { abi.as_str() } else { "this kernel has no Landlock" };
        enforced.keep_with_note(G::FilesHidden, &with_landlock(&[M::Root, M::Namespace]), note);
        enforced.keep_with_note(G::FilesReadonly, &with_landlock(&[M::Root]), note);
        if self.plan.workspace.is_some() {
            let by = [M::Tmpfs, M::Rlimit, M::Watchdog];
            enforced.keep_with_note(G::DiskLimited, &by, WATCHED_WORKSPACE);
        } else if self.plan.writes_to_disk() {
            let note = "the directories that the operator made writable are not measured";
            enforced.keep_with_note(G::DiskLimited, &[M::Tmpfs, M::Rlimit], note);
        } else {
            enforced.keep(G::DiskLimited, &[M::Tmpfs, M::Rlimit]);
        }
        enforced.keep(G::NetworkNone, &[M::Namespace, M::Seccomp]);
        enforced.keep(G::ProcessesHidden, &[M::Namespace]);
        enforced.keep(G::TimeLimited, &[M::Watchdog]);
        enforced.keep(G::OutputLimited, &[M::Watchdog]);
        enforced.keep(G::PrivilegesNone, &[M::Capabilities, M::Namespace]);
        enforced.keep(G::SyscallsFiltered, &[M::Seccomp]);
        enforced.keep(G::TreeKilled, &[M::Namespace]);
        self.report_identity(&mut enforced);
        self.report_limits(&mut enforced);
        enforced
    }

    fn report_identity(&self, enforced: &mut Enforced) {
        let mechanisms = [Mechanism::Namespace, Mechanism::Root];
        if matches!(self.plan.id_map.outside(), IdMap::Own { .. }) {
            let note =
                "on the host the sandbox has this user's own id: no sub-ids are configured (see subuid(5))";
            enforced.keep_with_note(Guarantee::IdentityHidden, &mechanisms, note);
        } else {
            enforced.keep(Guarantee::IdentityHidden, &mechanisms);
        }
    }

    fn report_limits(&self, enforced: &mut Enforced) {
        use Mechanism as M;
        if self.cgroups.limits_memory() {
            enforced.keep(Guarantee::MemoryLimited, &[M::Cgroup]);
        } else {
            let note =
                "no memory cgroup: measured every 10 ms, so use may overshoot by what is allocated meanwhile";
            enforced.keep_with_note(Guarantee::MemoryLimited, &[M::Watchdog], note);
        }
        if self.cgroups.limits_processes() {
            enforced.keep(Guarantee::ProcessesLimited, &[M::Cgroup, M::Rlimit]);
        } else {
            enforced.keep_with_note(Guarantee::ProcessesLimited, &[M::Rlimit], "no pids cgroup");
        }
        if self.cgroups.limits_cpu() {
            enforced.keep(Guarantee::CpuLimited, &[M::Cgroup, M::Rlimit, M::Watchdog]);
        } else {
            let note = "no cpu cgroup: processor time is bounded, the share of cores is not";
            enforced.keep_with_note(Guarantee::CpuLimited, &[M::Rlimit, M::Watchdog], note);
        }
    }
}

/// The limits of a process are at most the given ones.
pub(crate) fn rlimits(pid: i32, limits: &Rlimits) -> Result<(), BackendError> {
    if Wall::Verify.off() {
        return Ok(());
    }
    let text = kernel_file::read(format!("/proc/{pid}/limits"))
        .map_err(|error| incomplete(format!("its limits cannot be read: {error}")))?;
    let wanted = [
        ("Max cpu time", limits.cpu_s),
        ("Max file size", limits.file_bytes),
        ("Max open files", limits.open_files),
        ("Max processes", limits.processes),
        ("Max core file size", 1),
    ];
    for (name, most) in wanted {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
        let mut values = line.split_whitespace();
        let hard = values.nth(1).and_then(|value| value.parse::<u64>().ok());
        if hard.is_none_or(|value| value > most) {
            return Err(incomplete(format!("{name} is{line}")));
        }
    }
    Ok(())
}

/// The namespaces of this server, which never leaves them.
pub(crate) fn own_namespaces() -> &'static [Option<PathBuf>; NAMESPACES.len()] {
    static OWN: OnceLock<[Option<PathBuf>; NAMESPACES.len()]> = OnceLock::new();
    OWN.get_or_init(|| NAMESPACES.map(|name| fs::read_link(format!("/proc/self/ns/{name}")).ok()))
}

/// By now other processes of its user cannot inspect the guest: its /proc entries belong to root, not to its
/// own user. A user namespace that maps its user 0 has that one in the place of root.
pub(crate) fn is_hidden(pid: i32, root: u32) -> Result<(), BackendError> {
    if Wall::Verify.off() {
        return Ok(());
    }
    let owner =
        fs::metadata(format!("/proc/{pid}/status")).map_err(|error| incomplete(error.to_string()))?.uid();
    if owner == root {
        Ok(())
    } else {
        Err(incomplete(format!("the guest is dumpable (its /proc belongs to {owner})")))
    }
}

pub(crate) struct Mount<'a> {
    /// What is mounted, seen from the top of its file system.
    root: &'a str,
    pub(crate) point: &'a str,
    pub(crate) options: &'a str,
    pub(crate) kind: &'a str,
}

impl<'a> Mount<'a> {
    pub(crate) fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        Some(Self {
            root: fields.next()?,
            point: fields.next()?,
            options: fields.next()?,
            kind: after.split(' ').next()?,
        })
    }

    pub(crate) fn is(&self, option: &str) -> bool {
        self.options.split(',').any(|known| known == option)
    }

    /// A part of procfs that a container runtime covered with the null device.
    pub(crate) fn is_null_mask(&self) -> bool {
        self.point.starts_with("/proc/") && self.root == "/null"
    }

    fn is_device(&self) -> bool {
        self.point.starts_with("/dev/")
    }
}

/// A path of a mount table as it is: blanks, line ends and backslashes are written as octal numbers (proc(5)).
fn unescaped(point: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(point.to_owned(), |text, (written, meant)| text.replace(written, meant))
}

pub(crate) fn incomplete(what: String) -> BackendError {
    BackendError::Unverified { what }
}

/// Looks at what is mounted at an attach point. An ordinary user cannot look at a process that has hidden; the
/// report of the process that attached it must do then.
pub(super) fn is_attached(pid: i32, target: &Path) -> Result<(), BackendError> {
    let text = match kernel_file::read(format!("/proc/{pid}/mountinfo")) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(incomplete(format!("its mounts cannot be read: {error}"))),
    };
    let all = text.lines().filter_map(Mount::parse);
    let mut here = all.filter(|mount| Path::new(mount.point) == target).peekable();
    let is_there = here.peek().is_some();
    let is_safe = |mount: &Mount<'_>| mount.is("ro") && mount.is("nosuid") && mount.is("nodev");
    match here.find(|mount| !is_safe(mount)) {
        None if is_there => Ok(()),
        None => Err(incomplete("the layer is not attached".to_owned())),
        Some(mount) => Err(incomplete(format!("the layer is attached as {}", mount.options))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_line_is_read() {
        let line = "36 35 98:0 /mnt1 /usr ro,nosuid,nodev master:1 - ext4 /dev/root rw,errors=continue";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.point, mount.kind), ("/usr", "ext4"));
        assert!(mount.is("ro") && mount.is("nosuid") && !mount.is("rw"));
    }

    /// This test process is not isolated, and the examination must report that.
    #[test]
    fn a_process_without_walls_is_not_verified() {
        let plan = JailPlan {
            id_map: IdMap::Own { uid: 7, gid: 7 },
            unified_cgroup: None,
            joins_groups: false,
            binds: Vec::new(),
            symlinks: Vec::new(),
            files: Vec::new(),
            directories: Vec::new(),
            folders: Vec::new(),
            workspace: None,
            scratch: jail::Scratch { bytes: 0, inodes: 0, directories: Vec::new() },
            rlimits: jail::Rlimits { cpu_s: 1, file_bytes: 1, open_files: 1, processes: 1, stack_bytes: 1 },
            memory_counted: false,
            hostname: String::new(),
            linger_ms: 0,
        };
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let seen = Seen {
            pid,
            plan: &plan,
            limits: &Limits::default(),
            cgroups: &CgroupSet::default(),
            setup_id: None,
        };
        assert!(seen.namespaces().is_err());
        assert!(seen.privileges().is_err());
        assert!(seen.mounts().is_err());
        assert!(rlimits(pid, &plan.rlimits).is_err());
        assert!(seen.enforced(0).is_err());
    }
}
