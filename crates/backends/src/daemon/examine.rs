//! The host's own examination of a container before any program is sent to it.
//!
//! It differs from the native one where engines differ by their nature: the root is theirs, `/dev` is theirs, and the
//! container's users are the host's. Everything is read from `/proc/PID` of the process that connected to the server.
//! What only the engine says is reported as its word.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use ::sandbox::{BackendError, Enforced, Guarantee, Limits, Mechanism};
use jail::{JailPlan, Wall};

use super::Engine;
use super::build::TERMINALS_MAX;
use super::roots::RootContent;
use crate::native::cgroup::CgroupSet;
use crate::native::kernel_file;
use crate::native::status::Status;
use crate::native::verify::{self, Mount, NAMESPACES, Seen, incomplete, own_namespaces};
use crate::oci::contents;

const CAPABILITY_SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
const NO_CAPABILITY: &str = "0000000000000000";
/// seccomp(2): a filter is in force.
const SECCOMP_FILTER: &str = "2";
/// The filter that the engine installs before the guest starts, and the guest's own.
const FILTERS: u32 = 2;
/// What engines mount in every container, besides what they are asked for.
const OF_ENGINE: [&str; 4] = ["/proc", "/dev", "/dev/pts", "/dev/mqueue"];
/// What engines write to the root of every container: marks of their own, and places of files.
const WRITTEN_BY_ENGINE: [&str; 4] = ["/.dockerenv", "/etc/mtab", "/run/.containerenv", "/etc/resolv.conf"];
/// Device numbers of null, zero, full, random, urandom and tty.
const DEVICES: [(u32, u32); 6] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0)];
/// Entries of a root that are looked at. A planned one has less than a hundred.
const ENTRIES_MAX: usize = 4096;
/// Permission to write for a group or for everyone.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A container to examine.
pub(super) struct Examined<'a> {
    pub(super) engine: Engine,
    pub(super) pid: i32,
    pub(super) plan: &'a JailPlan,
    pub(super) limits: &'a Limits,
    pub(super) cgroups: &'a CgroupSet,
    /// What its root should hold.
    pub(super) content: &'a RootContent,
    /// The configured image beneath the root.
    pub(super) image: Option<&'a str>,
}

impl Examined<'_> {
    /// Examines the container and returns what is enforced. A missing wall is an error.
    pub(super) fn enforced(&self, landlock_abi: u32, space: &OwnedFd) -> Result<Enforced, BackendError> {
        let (pid, plan) = (self.pid, self.plan);
        let seen = Seen { pid, plan, limits: self.limits, cgroups: self.cgroups, setup_id: None };
        if !Wall::Verify.off() {
            self.namespaces()?;
            self.privileges()?;
            let points = self.mounts(&seen)?;
            self.devices()?;
            self.root(&points)?;
            contents::examine(pid, plan, space)?;
            seen.network()?;
            verify::rlimits(pid, &plan.rlimits)?;
            self.cgroups.check(pid, self.limits).map_err(incomplete)?;
            verify::is_hidden(pid, 0)?;
        }
        let mut enforced = seen.report(landlock_abi);
        self.explain(&mut enforced, landlock_abi);
        Ok(enforced)
    }

    /// Engines give containers no user namespace of their own; Podman keeps the host's control group namespace where
    /// control groups are of version 1.
    fn namespaces(&self) -> Result<(), BackendError> {
        for (name, ours) in NAMESPACES.into_iter().zip(own_namespaces()) {
            let theirs = fs::read_link(format!("/proc/{}/ns/{name}", self.pid))
                .map_err(|error| incomplete(format!("its {name} namespace cannot be read: {error}")))?;
            let may_share = name == "user" || (name == "cgroup" && self.engine == Engine::Podman);
            if !may_share && ours.as_ref().is_none_or(|ours| *ours == theirs) {
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
        // One of the engine and one of the guest. Kernels before 5.9 do not count them.
        if status.get("Seccomp_filters").parse::<u32>().is_ok_and(|count| count < FILTERS) {
            return Err(incomplete("the engine's system-call filter is missing".to_owned()));
        }
        for set in CAPABILITY_SETS {
            is(set, NO_CAPABILITY)?;
        }
        let (uid, gid) = self.plan.id_map.numbers();
        if uid == 0 || gid == 0 {
            return Err(incomplete("its user is root outside".to_owned()));
        }
        is("Uid", &format!("{uid}\t{uid}\t{uid}\t{uid}"))?;
        is("Gid", &format!("{gid}\t{gid}\t{gid}\t{gid}"))?;
        let groups = status.get("Groups");
        if groups.split_whitespace().any(|group| group != gid.to_string()) {
            return Err(incomplete(format!("its groups are {groups}")));
        }
        let inside = status.get("NSpid").split_whitespace().next_back();
        if inside == Some("1") { Ok(()) } else { Err(incomplete("it is not process 1".to_owned())) }
    }

    /// Its root is read-only, and only the writable space can be written. Returns every mount point.
    fn mounts(&self, seen: &Seen<'_>) -> Result<BTreeSet<PathBuf>, BackendError> {
        let text = kernel_file::read(format!("/proc/{}/mountinfo", self.pid))
            .map_err(|error| incomplete(format!("its mounts cannot be read: {error}")))?;
        let mut points = BTreeSet::new();
        for (line, mount) in text.lines().filter_map(|line| Some((line, Mount::parse(line)?))) {
            let point = Path::new(mount.point);
            if mount.kind == "devpts" && !has_few_terminals(line) {
                return Err(incomplete(format!("{} has terminals without limit", mount.point)));
            }
            points.insert(point.to_owned());
            // sysfs is covered as a whole, which `devices` looks at.
            if mount.is_null_mask() || point.starts_with("/sys") {
                continue;
            }
            let is_engines = OF_ENGINE.contains(&mount.point);
            if !mount.is("ro") && !seen.may_write(mount.point) && !is_engines {
                return Err(incomplete(format!("{} can be written", mount.point)));
            }
            if !mount.is("nosuid") && !mount.is("ro") {
                return Err(incomplete(format!("{} honours set-uid", mount.point)));
            }
            if !seen.is_planned(mount.point) && !is_engines {
                return Err(incomplete(format!("{} is not in the plan", mount.point)));
            }
        }
        match points.contains(Path::new("/")) {
            true => Ok(points),
            false => Err(incomplete("it has no root".to_owned())),
        }
    }

    /// `/dev` has the usual devices, and its user cannot change it. `/sys` is empty.
    fn devices(&self) -> Result<(), BackendError> {
        let unread = |error: io::Error| incomplete(format!("its devices cannot be read: {error}"));
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        if fs::read_dir(root.join("sys")).map_err(unread)?.next().is_some() {
            return Err(incomplete("/sys is not empty".to_owned()));
        }
        let dev = fs::symlink_metadata(root.join("dev")).map_err(unread)?;
        if dev.uid() != 0 || dev.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(incomplete("/dev can be written".to_owned()));
        }
        for entry in fs::read_dir(root.join("dev")).map_err(unread)? {
            let entry = entry.map_err(unread)?;
            let found = fs::symlink_metadata(entry.path()).map_err(unread)?;
            let kind = found.file_type();
            let number = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
            if kind.is_block_device() || (kind.is_char_device() && !DEVICES.contains(&number)) {
                return Err(incomplete(format!("it has the device {}", entry.file_name().to_string_lossy())));
            }
        }
        Ok(())
    }

    /// The root holds what its image was made of, and nothing else. What an operator's image holds cannot be known.
    fn root(&self, points: &BTreeSet<PathBuf>) -> Result<(), BackendError> {
        if self.image.is_some() {
            return Ok(());
        }
        let base = PathBuf::from(format!("/proc/{}/root", self.pid));
        let mut known: BTreeSet<PathBuf> = self.content.directories.clone();
        known.extend(self.plan.binds.iter().map(|bind| bind.target.clone()));
        known.extend(self.plan.writable().map(Path::to_owned));
        known.extend(points.iter().cloned());
        let above: Vec<PathBuf> =
            known.iter().flat_map(|path| path.ancestors().map(Path::to_owned)).collect();
        known.extend(above);
        known.extend(WRITTEN_BY_ENGINE.map(PathBuf::from));
        let mut left = vec![PathBuf::from("/")];
        let mut count = 0;
        while let Some(directory) = left.pop() {
            let outside = base.join(directory.strip_prefix("/").unwrap_or(&directory));
            let unread = |error: io::Error| incomplete(format!("its root cannot be read: {error}"));
            for entry in fs::read_dir(&outside).map_err(unread)? {
                let entry = entry.map_err(unread)?;
                let path = directory.join(entry.file_name());
                count += 1;
                if count > ENTRIES_MAX {
                    return Err(incomplete("its root holds too much".to_owned()));
                }
                if points.contains(&path) {
                    continue;
                }
                let kind = entry.file_type().map_err(unread)?;
                if !self.is_as_made(&path, &entry.path(), kind, &known).map_err(unread)? {
                    return Err(incomplete(format!("{} is not in the plan", path.display())));
                }
                if kind.is_dir() {
                    left.push(path);
                }
            }
        }
        Ok(())
    }

    /// Whether an entry of the root is one of those that the image was made of.
    fn is_as_made(
        &self,
        path: &Path,
        outside: &Path,
        kind: fs::FileType,
        known: &BTreeSet<PathBuf>,
    ) -> io::Result<bool> {
        if let Some(target) = self.content.links.get(path) {
            return Ok(kind.is_symlink() && fs::read_link(outside)? == *target);
        }
        if let Some(bytes) = self.content.files.get(path) {
            return Ok(kind.is_file() && fs::read(outside)? == *bytes);
        }
        if WRITTEN_BY_ENGINE.iter().any(|mark| Path::new(mark) == path) {
            let is_empty = kind.is_file() && outside.symlink_metadata()?.len() == 0;
            return Ok(
                is_empty || (kind.is_symlink() && fs::read_link(outside)? == Path::new("/proc/mounts"))
            );
        }
        Ok(kind.is_dir() && known.contains(path))
    }

    /// What engines do differently, and what is only their word.
    fn explain(&self, enforced: &mut Enforced, landlock_abi: u32) {
        use Guarantee as G;
        use Mechanism as M;
        let name = self.engine.name();
        enforced.keep_with_note(
            G::PrivilegesNone,
            &[M::Capabilities, M::Seccomp],
            "no user namespace: the user has a number that no account of the host has",
        );
        let shared = match self.engine {
            Engine::Docker => "",
            Engine::Podman => "; the name of its control group is visible",
        };
        let note = format!("no user namespace: the user's number is the same inside and outside{shared}");
        enforced.keep_with_note(G::IdentityHidden, &[M::Namespace, M::Root], &note);
        enforced.keep(G::TreeKilled, &[M::Namespace, M::Cgroup]);
        if let Some(image) = self.image {
            let mut mechanisms = vec![M::Root, M::Namespace];
            mechanisms.extend((landlock_abi > 0).then_some(M::Landlock));
            let note = format!("what the image {image} holds is {name}'s word");
            enforced.keep_with_note(G::FilesHidden, &mechanisms, &note);
        }
    }
}

/// Whether a line of mountinfo (proc(5)) is of a file system of terminals with the planned limit.
fn has_few_terminals(line: &str) -> bool {
    let options = line.rsplit(' ').next().unwrap_or_default();
    options.split(',').any(|option| option.strip_prefix("max=") == Some(TERMINALS_MAX))
}

/// The error of groups that cannot be taken over.
pub(super) fn of_groups(error: io::Error) -> BackendError {
    incomplete(format!("its control groups: {error}"))
}
