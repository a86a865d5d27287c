//! Where control groups are on this machine, read from /proc/self/cgroup and /proc/self/mountinfo.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// Controllers that a version 2 group must be able to delegate to be useful.
const WANTED: [&str; 3] = ["memory", "pids", "cpu"];
const SERVER_LEAF: &str = "palisade-server";

/// One hierarchy in which this server may create groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::native) struct Hierarchy {
    /// The group beneath which the server's groups are created.
    pub(in crate::native) parent: PathBuf,
    /// The unified hierarchy.
    pub(in crate::native) unified: bool,
    pub(in crate::native) memory: bool,
    pub(in crate::native) pids: bool,
    pub(in crate::native) cpu: bool,
    /// Version 1 accounting of processor time.
    pub(in crate::native) cpuacct: bool,
}

impl Hierarchy {
    fn useful(&self) -> bool {
        self.unified || self.memory || self.pids || self.cpu || self.cpuacct
    }

    /// Enables the controllers for groups beneath `directory`.
    pub(super) fn pass_on(&self, directory: &Path) -> io::Result<()> {
        if !self.unified {
            return Ok(());
        }
        let offered = [(self.memory, "+memory"), (self.pids, "+pids"), (self.cpu, "+cpu")];
        let words: Vec<&str> = offered.into_iter().filter_map(|(has, word)| has.then_some(word)).collect();
        if words.is_empty() {
            Ok(())
        } else {
            fs::write(directory.join("cgroup.subtree_control"), words.join(" "))
        }
    }
}

/// Mounted hierarchies with the group that this server is in.
#[derive(Default)]
pub(crate) struct Layout {
    found: Vec<FoundHierarchy>,
}

struct FoundHierarchy {
    mount: PathBuf,
    own: PathBuf,
    /// Empty for the unified hierarchy.
    controllers: BTreeSet<String>,
    unified: bool,
}

impl Layout {
    /// Reads `cgroup` and `mountinfo` in a directory like /proc/self.
    pub(crate) fn read(process: &Path) -> Self {
        let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
        Self { found: parse(&groups, &mounts) }
    }

    /// The groups of another process in the hierarchies that limit or count, each with its directory.
    pub(super) fn of_process(pid: i32) -> io::Result<Vec<(Hierarchy, PathBuf)>> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let found = parse(&groups, &fs::read_to_string("/proc/self/mountinfo")?);
        let mut list = Vec::new();
        for group in found {
            let has = |name: &str| match group.unified {
                true => words(&group.own.join("cgroup.controllers")).contains(name),
                false => group.controllers.contains(name),
            };
            let hierarchy = Hierarchy {
                parent: group.own.parent().unwrap_or(&group.mount).to_owned(),
                unified: group.unified,
                memory: has("memory"),
                pids: has("pids"),
                cpu: has("cpu"),
                cpuacct: !group.unified && has("cpuacct"),
            };
            if group.own != group.mount && hierarchy.useful() {
                list.push((hierarchy, group.own));
            }
        }
        // Where version 1 counts processor time, a unified hierarchy without controllers adds nothing.
        let is_counted = list.iter().any(|(hierarchy, _)| hierarchy.cpuacct);
        list.retain(|(kind, _)| !is_counted || !kind.unified || kind.memory || kind.pids || kind.cpu);
        Ok(list)
    }

    /// Every mounted hierarchy: its mount point, this server's own group, whether it is the unified one.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&Path, &Path, bool)> {
        self.found.iter().map(|found| (found.mount.as_path(), found.own.as_path(), found.unified))
    }

    /// Hierarchies in which groups can be created. On version 2 this may move the server into a leaf group.
    pub(in crate::native) fn hierarchies(&self, spawner: Pid) -> Vec<Hierarchy> {
        let mut list: Vec<Hierarchy> =
            self.found.iter().filter_map(|found| found.hierarchy(spawner)).collect();
        // Where version 1 counts processor time, a unified hierarchy without controllers adds nothing.
        if list.iter().any(|hierarchy| hierarchy.cpuacct) {
            list.retain(|hierarchy| {
                !hierarchy.unified || hierarchy.memory || hierarchy.pids || hierarchy.cpu
            });
        }
        list.retain(Hierarchy::useful);
        list
    }
}

impl FoundHierarchy {
    fn hierarchy(&self, spawner: Pid) -> Option<Hierarchy> {
        if !self.unified {
            let has = |name: &str| self.controllers.contains(name);
            return Some(Hierarchy {
                parent: self.own.clone(),
                unified: false,
                memory: has("memory"),
                pids: has("pids"),
                cpu: has("cpu"),
                cpuacct: has("cpuacct"),
            });
        }
        let (parent, passed_on) = self.unified_parent(spawner)?;
        let has = |name: &str| passed_on.contains(name);
        Some(Hierarchy {
            parent,
            unified: true,
            memory: has("memory"),
            pids: has("pids"),
            cpu: has("cpu"),
            cpuacct: false,
        })
    }

    /// The nearest group, at or above the server's own, that delegates controllers and lets the server create
    /// groups.
    fn unified_parent(&self, spawner: Pid) -> Option<(PathBuf, BTreeSet<String>)> {
        let wanted = words(&self.own.join("cgroup.controllers"));
        let offers = WANTED.iter().any(|controller| wanted.contains(*controller));
        for candidate in self.own.ancestors().take_while(|path| path.starts_with(&self.mount)) {
            let passed_on = words(&candidate.join("cgroup.subtree_control"));
            if passed_on.contains("memory") && writable(candidate) {
                return Some((candidate.to_owned(), passed_on));
            }
            if candidate == self.own && offers && writable(candidate) && free_for_children(candidate, spawner)
            {
                return Some((candidate.to_owned(), words(&candidate.join("cgroup.subtree_control"))));
            }
        }
        // No limits are available (a hybrid machine), but accounting and cloning into a group are.
        writable(&self.own).then(|| (self.own.clone(), BTreeSet::new()))
    }
}

fn words(file: &Path) -> BTreeSet<String> {
    fs::read_to_string(file).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn writable(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

/// A group with processes cannot delegate controllers (cgroups(7), "no internal processes"). This moves the
/// server, its spawner and the spawner's clones, but no other process, into a leaf. It is undone if other
/// processes are there too.
fn free_for_children(own: &Path, spawner: Pid) -> bool {
    let leaf = own.join(SERVER_LEAF);
    if fs::create_dir(&leaf).is_err() && !leaf.is_dir() {
        return false;
    }
    let move_to = |group: &Path, pid: &str| fs::write(group.join("cgroup.procs"), pid).is_ok();
    let own_pair = [rustix::process::getpid(), spawner].map(|pid| pid.as_raw_nonzero().to_string());
    let is_moved = own_pair.iter().all(|pid| move_to(&leaf, pid));
    // The spawner may have cloned already. A clone that has ended meanwhile cannot be moved and need not be.
    for clone in words(&own.join("cgroup.procs")).iter().filter(|pid| is_child(pid, spawner)) {
        move_to(&leaf, clone);
    }
    let wanted = WANTED.map(|controller| format!("+{controller}")).join(" ");
    if is_moved && fs::write(own.join("cgroup.subtree_control"), wanted).is_ok() {
        return true;
    }
    for pid in own_pair.into_iter().chain(words(&leaf.join("cgroup.procs"))) {
        move_to(own, &pid);
    }
    // A leaf that stays is found and used by the next server.
    fs::remove_dir(&leaf).ok();
    false
}

/// Whether a process was cloned by the given one; proc_pid_stat(5): the parent is the second field after the
/// name.
fn is_child(pid: &str, parent: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split(' ').nth(1) == Some(&parent.as_raw_nonzero().to_string())
}

/// Lines of /proc/self/cgroup are `id:controllers:path`; for mountinfo see proc(5).
fn parse(groups: &str, mounts: &str) -> Vec<FoundHierarchy> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(list), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let unified = list.is_empty();
        let controllers: BTreeSet<String> = list.split(',').map(str::to_owned).collect();
        let mount = mounts.lines().filter_map(mount_of).find(|mount| {
            if unified {
                mount.kind == "cgroup2"
            } else {
                mount.kind == "cgroup"
                    && controllers.iter().all(|name| mount.options.split(',').any(|o| o == name))
            }
        });
        let Some(mount) = mount else { continue };
        let Ok(beneath) = Path::new(path).strip_prefix(mount.root) else { continue };
        let own = if beneath.as_os_str().is_empty() {
            PathBuf::from(mount.point)
        } else {
            Path::new(mount.point).join(beneath)
        };
        let controllers = if unified { BTreeSet::new() } else { controllers };
        found.push(FoundHierarchy { mount: PathBuf::from(mount.point), own, controllers, unified });
    }
    found
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

fn mount_of(line: &str) -> Option<Mount<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let mut rest = after.split(' ');
    let (kind, _, options) = (rest.next()?, rest.next()?, rest.next()?);
    Some(Mount { root, point, kind, options })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID_GROUPS: &str = "4:memory:/service/a\n3:cpu,cpuacct:/\n2:pids:/\n1:name=systemd:/\n0::/\n";
    const HYBRID_MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 23 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn a_hybrid_machine_is_understood() {
        let found = parse(HYBRID_GROUPS, HYBRID_MOUNTS);
        let own: Vec<_> =
            found.iter().map(|hierarchy| hierarchy.own.to_string_lossy().into_owned()).collect();
        assert_eq!(
            own,
            [
                "/sys/fs/cgroup/memory/service/a",
                "/sys/fs/cgroup/cpu,cpuacct",
                "/sys/fs/cgroup/pids",
                "/sys/fs/cgroup/unified"
            ]
        );
        assert!(found[3].unified && !found[0].unified);
    }

    #[test]
    fn a_path_within_a_cgroup_namespace_is_relative_to_its_mount() {
        let found =
            parse("0::/user.slice/x\n", "33 23 0:29 /user.slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        assert_eq!(found[0].own, Path::new("/sys/fs/cgroup/x"));
    }

    /// A pure version 2 machine, simulated with plain files: the nearest group that delegates controllers is
    /// chosen.
    #[test]
    fn on_version_2_the_nearest_delegating_group_is_the_parent() {
        let top = std::env::temp_dir().join(format!("palisade-cgroup2-{}", std::process::id()));
        let own = top.join("user.slice/app.slice/run.scope");
        fs::create_dir_all(&own).unwrap();
        let slice = top.join("user.slice/app.slice");
        fs::write(slice.join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        fs::write(own.join("cgroup.subtree_control"), "\n").unwrap();
        // The server's own group has no controllers file, so nothing can be freed there and the slice above
        // is used.
        let found = FoundHierarchy { mount: top.clone(), own, controllers: BTreeSet::new(), unified: true };
        let hierarchy = found.hierarchy(rustix::process::getpid()).unwrap();
        fs::remove_dir_all(&top).unwrap();
        assert_eq!(hierarchy.parent, slice);
        assert!(hierarchy.memory && hierarchy.pids && hierarchy.cpu && hierarchy.unified);
    }
}
