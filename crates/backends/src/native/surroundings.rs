//! What a container runtime has put around this server: covered parts of procfs, a system-call filter, some ids,
//! control groups that cannot be changed.
//!
//! Read from procfs when a build was refused ([`super::plan::explain`]), and by `doctor`. It decides nothing; it only
//! chooses the words of a remedy.

use std::fs;
use std::path::Path;

use super::id_space::{IdSpace, Span};

/// Covered parts of procfs that a remedy names. The rest is counted.
const NAMED_MAX: usize = 4;

/// What surrounds this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// What made the container that the server is in, if it is in one.
    pub container: Option<&'static str>,
    /// Whether the user namespace of the server maps only some ids.
    pub maps_some_ids: bool,
    /// Parts of procfs that another mount covers.
    pub covered: Vec<String>,
    /// Whether procfs is mounted read-only.
    pub procfs_readonly: bool,
    /// Whether a system-call filter is in force on the server itself.
    pub filtered: bool,
    /// What the server can do with control groups.
    pub groups: GroupMounts,
}

/// How control groups are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupMounts {
    /// Not at all.
    Absent,
    /// All of them read-only.
    ReadOnly,
    /// At least one can be written, if its permissions allow it.
    Writable,
}

/// The texts from which it is determined.
struct Sources<'a> {
    mountinfo: &'a str,
    status: &'a str,
    ids: &'a IdSpace,
}

impl Surroundings {
    /// Those of this process.
    pub fn read() -> Self {
        let text = |name| fs::read_to_string(name).unwrap_or_default();
        let (mountinfo, status) = (text("/proc/self/mountinfo"), text("/proc/self/status"));
        let ids = IdSpace::own();
        let found = Self::of(&Sources { mountinfo: &mountinfo, status: &status, ids: &ids });
        Self { container: container().or(found.container), ..found }
    }

    fn of(sources: &Sources<'_>) -> Self {
        let mounts: Vec<Mount<'_>> = sources.mountinfo.lines().filter_map(Mount::parse).collect();
        let is_beneath = |mount: &&Mount<'_>| mount.point.starts_with("/proc/") && !is_harmless(mount.point);
        let covered = mounts.iter().filter(is_beneath).map(|mount| mount.point.to_owned()).collect();
        let procfs = mounts.iter().rev().find(|mount| mount.point == "/proc");
        let groups: Vec<_> = mounts.iter().filter(|mount| mount.kind.starts_with("cgroup")).collect();
        let root = mounts.iter().find(|mount| mount.point == "/");
        Self {
            container: root.filter(|root| root.kind == "overlay").map(|_| "a container"),
            maps_some_ids: !sources.ids.has(Span { first: 0, count: u32::MAX }),
            covered,
            procfs_readonly: procfs.is_some_and(Mount::is_readonly),
            filtered: sources.status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"])),
            groups: match groups.iter().all(|mount| mount.is_readonly()) {
                _ if groups.is_empty() => GroupMounts::Absent,
                true => GroupMounts::ReadOnly,
                false => GroupMounts::Writable,
            },
        }
    }

    /// Whether the server is in a container, by the marks of an engine or by what it has put around the server.
    pub fn is_contained(&self) -> bool {
        self.container.is_some() || self.maps_some_ids || self.filtered || !self.covered.is_empty()
    }

    /// What there is, in words for `doctor`; `None` outside of a container.
    pub fn told(&self) -> Option<String> {
        if !self.is_contained() {
            return None;
        }
        let procfs = match (self.covered.is_empty(), self.procfs_readonly) {
            (_, true) => "/proc read-only",
            (false, false) => "/proc partly covered",
            (true, false) => "/proc whole",
        };
        let ids = if self.maps_some_ids { "a user namespace" } else { "the host's ids" };
        let filter = if self.filtered { "a system-call filter" } else { "no system-call filter" };
        let groups = match self.groups {
            GroupMounts::Absent => "no control groups",
            GroupMounts::ReadOnly => "control groups read-only",
            GroupMounts::Writable => "control groups mounted",
        };
        let container = self.container.unwrap_or("a container");
        Some(format!("inside {container}: {ids}, {filter}, {procfs}, {groups}"))
    }

    /// Whether the kernel refuses a new procfs, because the existing one shows less (`mount_too_revealing` in
    /// fs/namespace.c).
    pub fn hides_procfs(&self) -> bool {
        self.procfs_readonly || !self.covered.is_empty()
    }

    /// Why a new procfs is refused, and the setting that allows it.
    pub(super) fn procfs_remedy(&self) -> String {
        let why = match (self.covered.as_slice(), self.procfs_readonly) {
            ([], true) => "/proc is read-only here".to_owned(),
            ([], false) => "the kernel refuses a new /proc".to_owned(),
            (covered, _) => {
                let named = covered.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
                let rest = covered.len().saturating_sub(NAMED_MAX);
                let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
                format!("the container runtime covers parts of /proc ({named}{rest})")
            }
        };
        format!(
            "{why}, and the kernel then allows no sandbox a /proc of its own: with Docker `--security-opt systempaths=unconfined`, with \
             Podman `--security-opt unmask=ALL`, in a pod `procMount: Unmasked` together with `hostUsers: false`. The server needs no \
             privileged mode and should not be root there; see docs/CONTAINERS.md"
        )
    }

    /// What to do if the kernel refuses a new user namespace.
    pub(super) fn namespaces_remedy(&self) -> String {
        let host = "user namespaces are off for this user: as root, `sysctl -w user.max_user_namespaces=15000`; on Debian \
                    also `sysctl -w kernel.unprivileged_userns_clone=1`; on Ubuntu 23.10 or newer \
                    `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` or an AppArmor profile with `userns,` for this \
                    binary";
        if self.container.is_none() && !self.filtered {
            return host.to_owned();
        }
        let filter = "the system-call filter of the container runtime refuses new namespaces: with Docker and Podman `--security-opt \
                      seccomp=deploy/docker/seccomp.json`, in a pod a `Localhost` profile with this file; where AppArmor is used also \
                      `--security-opt apparmor=unconfined`; see docs/CONTAINERS.md";
        if self.filtered {
            format!("{filter}. If that does not help: {host}")
        } else {
            format!("{host}; {filter}")
        }
    }
}

/// Mounts beneath /proc that every distribution has.
fn is_harmless(point: &str) -> bool {
    point == "/proc/sys/fs/binfmt_misc"
}

/// What made the container, by the marks that engines leave in it.
fn container() -> Option<&'static str> {
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        Some("a Kubernetes pod")
    } else if Path::new("/run/.containerenv").exists() {
        Some("Podman")
    } else if Path::new("/.dockerenv").exists() {
        Some("Docker")
    } else {
        std::env::var_os("container").map(|_| "a container")
    }
}

/// One line of mountinfo, proc(5).
struct Mount<'a> {
    point: &'a str,
    options: &'a str,
    kind: &'a str,
    of_filesystem: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(4);
        let mut filesystem = filesystem.split(' ');
        let (point, options, kind) = (mount.next()?, mount.next()?, filesystem.next()?);
        Some(Self { point, options, kind, of_filesystem: filesystem.nth(1).unwrap_or_default() })
    }

    fn is_readonly(&self) -> bool {
        [self.options, self.of_filesystem].iter().any(|options| options.split(',').any(|one| one == "ro"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_DOCKER: &str = "\
        20 1 0:30 / / ro,relatime - overlay overlay rw,lowerdir=/a\n\
        21 20 0:31 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw\n\
        22 21 0:31 /bus /proc/bus ro,nosuid,nodev,noexec,relatime - proc proc rw\n\
        23 21 0:32 / /proc/acpi ro,relatime - tmpfs tmpfs ro,size=0k\n\
        24 20 0:33 / /sys ro,nosuid - sysfs sysfs ro\n\
        25 24 0:34 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw\n";
    const OF_HOST: &str = "\
        20 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
        21 20 0:31 / /proc rw,nosuid - proc proc rw\n\
        22 21 0:40 / /proc/sys/fs/binfmt_misc rw,relatime - autofs systemd-1 rw\n\
        25 20 0:34 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

    fn of(mountinfo: &str, status: &str, map: &str) -> Surroundings {
        Surroundings::of(&Sources { mountinfo, status, ids: &IdSpace::parse(map, map) })
    }

    #[test]
    fn a_container_with_masked_procfs_gets_the_setting_that_unmasks_it() {
        let found = of(OF_DOCKER, "Name:\tpalisade\nSeccomp:\t2\n", "0 100000 65536");
        assert_eq!(found.covered, ["/proc/bus", "/proc/acpi"]);
        assert!(found.hides_procfs() && found.filtered && found.maps_some_ids && !found.procfs_readonly);
        assert_eq!((found.container, found.groups), (Some("a container"), GroupMounts::ReadOnly));
        let told = "inside a container: a user namespace, a system-call filter, /proc partly covered, control groups read-only";
        assert_eq!(found.told().as_deref(), Some(told));
        let remedy = found.procfs_remedy();
        assert!(
            remedy.contains("/proc/bus, /proc/acpi") && remedy.contains("systempaths=unconfined"),
            "{remedy}"
        );
        assert!(found.namespaces_remedy().starts_with("the system-call filter"));
    }

    #[test]
    fn a_host_has_nothing_around_it() {
        let found = of(OF_HOST, "Seccomp:\t0\n", "0 0 4294967295");
        assert!(!found.hides_procfs() && !found.filtered && !found.maps_some_ids);
        assert_eq!(found.told(), None);
        assert_eq!((found.container, found.groups), (None, GroupMounts::Writable));
        assert!(found.namespaces_remedy().starts_with("user namespaces are off"));
        assert_eq!(of("", "", "0 0 4294967295").groups, GroupMounts::Absent);
    }

    #[test]
    fn a_read_only_procfs_is_told_from_a_covered_one() {
        let found = of("21 20 0:31 / /proc ro,nosuid - proc proc rw\n", "", "0 0 4294967295");
        assert!(found.hides_procfs() && found.covered.is_empty());
        assert!(found.procfs_remedy().starts_with("/proc is read-only here"));
    }
}
