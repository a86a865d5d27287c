//! The procfs of a new root: a fresh mount, verified, with the parts covered that reveal the host or reach
//! into it.
//!
//! Called by the clone while it builds its root (`raise`), and by the zygote process, which prepares this for
//! its clones.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::mount::{MountAttrFlags, UnmountFlags};

use crate::breach::Wall;
use crate::network::NetworkSettings;
use crate::root::{Root, attach, copy_mount, new_filesystem, write_file};
use crate::sys::{self, MountAttributes};

/// Parts of procfs that reveal the host or reach into it. An empty file or directory covers each.
pub const MASKED: [&str; 27] = [
    "acpi",
    "asound",
    "buddyinfo",
    "cmdline",
    "config.gz",
    "diskstats",
    "driver",
    "fs",
    "interrupts",
    "irq",
    "kallsyms",
    "kcore",
    "keys",
    "key-users",
    "kmsg",
    "latency_stats",
    "locks",
    "modules",
    "partitions",
    "pressure",
    "sched_debug",
    "scsi",
    "softirqs",
    "sysrq-trigger",
    "timer_list",
    "vmstat",
    "zoneinfo",
];
/// Directories of procfs that are made read-only.
pub const READONLY_DIRECTORIES: [&str; 2] = ["bus", "sys"];
/// A number that identifies the running machine. Every sandbox gets its own.
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";

const EMPTY_FILE: &str = ".empty";
const EMPTY_DIRECTORY: &str = ".void";

impl Root {
    /// A fresh procfs of the new process namespace, verified, with the dangerous parts covered. `blank` is a
    /// directory in which the covering files can be created. Returns the network settings, which can be
    /// written only through that file descriptor.
    pub(crate) fn procfs(&self, blank: &OwnedFd) -> io::Result<NetworkSettings> {
        let proc = self.bare_procfs()?;
        self.finish_procfs(&proc, blank)
    }

    /// The same in place of the zygote's procfs. That one may be unmounted only when the new one is ready,
    /// because the kernel allows mounting a new procfs only to a process that can see one.
    pub(crate) fn procfs_for_zygotes(&self, blank: &OwnedFd) -> io::Result<NetworkSettings> {
        let proc = new_procfs()?;
        rustix::mount::unmount("/proc", UnmountFlags::DETACH)?;
        attach(proc.as_fd(), self.descriptor.as_fd(), Path::new("proc"))?;
        verify_procfs(&proc)?;
        self.finish_procfs(&proc, blank)
    }

    fn finish_procfs(&self, proc: &OwnedFd, blank: &OwnedFd) -> io::Result<NetworkSettings> {
        // Before the masks: /proc/sys is read-only afterwards.
        let settings = NetworkSettings::open(proc)?;
        if !Wall::Masks.off() {
            self.mask_procfs(proc, blank)?;
        }
        Ok(settings)
    }

    /// A fresh procfs with nothing covered.
    pub(crate) fn bare_procfs(&self) -> io::Result<OwnedFd> {
        self.directories(Path::new("proc"))?;
        let proc = new_procfs()?;
        attach(proc.as_fd(), self.descriptor.as_fd(), Path::new("proc"))?;
        verify_procfs(&proc)?;
        be_killed_first(&proc)?;
        Ok(proc)
    }

    fn mask_procfs(&self, proc: &OwnedFd, blank: &OwnedFd) -> io::Result<()> {
        let (blank, root) = (blank.as_fd(), self.descriptor.as_fd());
        rustix::process::fchdir(root)?;
        write_file(blank, Path::new(EMPTY_FILE), &[])?;
        rustix::fs::mkdirat(blank, EMPTY_DIRECTORY, Mode::from_raw_mode(0o755))?;
        let in_proc = |name: &str| Path::new("proc").join(name);
        let here = covered(proc.as_fd());
        for (name, is_directory) in &here.masked {
            let from = if *is_directory { EMPTY_DIRECTORY } else { EMPTY_FILE };
            let first = here.masked.iter().find(|(_, alike)| alike == is_directory);
            match first.filter(|(first, _)| first != name) {
                None => self.cover((blank, Path::new(from)), &in_proc(name))?,
                // A copy of an existing cover inherits its read-only flag. Binding by name costs the kernel
                // less than binding by descriptor. It is safe here because no other process is in this mount
                // namespace that could swap a name.
                Some((first, _)) => rustix::mount::mount_bind(in_proc(first), in_proc(name))?,
            }
        }
        for name in &here.readonly {
            self.cover((root, &in_proc(name)), &in_proc(name))?;
        }
        self.boot_id(blank)?;
        // The covers stay mounted; their originals need no name.
        rustix::fs::unlinkat(blank, EMPTY_FILE, AtFlags::empty())?;
        Ok(rustix::fs::unlinkat(blank, EMPTY_DIRECTORY, AtFlags::REMOVEDIR)?)
    }

    /// Shows `from` at `at`, read-only.
    fn cover(&self, (base, from): (BorrowedFd<'_>, &Path), at: &Path) -> io::Result<()> {
        let tree = copy_mount(base, from)?;
        sys::set_mount_attributes(tree.as_fd(), MountAttributes::default().readonly().nosuid().nodev())?;
        attach(tree.as_fd(), self.descriptor.as_fd(), at)
    }

    fn boot_id(&self, blank: BorrowedFd<'_>) -> io::Result<()> {
        let mut random = [0_u8; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let id =
            format!("{}-{}-4{}-a{}-{}\n", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]);
        let place = Path::new(".boot-id");
        write_file(blank, place, id.as_bytes())?;
        self.cover((blank, place), Path::new(BOOT_ID))?;
        Ok(rustix::fs::unlinkat(blank, place, AtFlags::empty())?)
    }
}

/// The entries of procfs that are covered on this kernel.
struct Covered {
    /// Name, and whether it is a directory.
    masked: Vec<(&'static str, bool)>,
    readonly: Vec<&'static str>,
}

/// Computed once, because these entries belong to the kernel and are the same in every procfs. Clones inherit
/// the result.
fn covered(proc: BorrowedFd<'_>) -> &'static Covered {
    static COVERED: OnceLock<Covered> = OnceLock::new();
    COVERED.get_or_init(|| {
        let kind = |name: &str| {
            let found = rustix::fs::statat(proc, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some(FileType::from_raw_mode(found.st_mode))
        };
        Covered {
            masked: MASKED.into_iter().filter_map(|name| Some((name, kind(name)?.is_dir()))).collect(),
            readonly: READONLY_DIRECTORIES.into_iter().filter(|name| kind(name).is_some()).collect(),
        }
    })
}

/// Computes it ahead of time, for clones.
pub(crate) fn look_at_procfs() -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    covered(rustix::fs::open("/proc", flags, Mode::empty())?.as_fd());
    Ok(())
}

fn new_procfs() -> io::Result<OwnedFd> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    new_filesystem("proc", &[], attributes)
}

/// When the host runs out of memory, the kernel kills sandboxes before any other process. Clones of a zygote
/// inherit this; see proc(5).
fn be_killed_first(proc: &OwnedFd) -> io::Result<()> {
    const FIRST_OF_ALL: &[u8] = b"1000";
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(proc, "self/oom_score_adj", flags, Mode::empty())?;
    Ok(rustix::io::write(&file, FIRST_OF_ALL).map(drop)?)
}

/// A mount that is not a procfs, or not of this process namespace, would show the host's processes.
fn verify_procfs(proc: &OwnedFd) -> io::Result<()> {
    const PROC_SUPER_MAGIC: i64 = 0x9fa0;
    let kind = rustix::fs::fstatfs(proc)?.f_type;
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    if kind as i64 != PROC_SUPER_MAGIC {
        return Err(io::Error::other("procfs is something else"));
    }
    let own = rustix::fs::readlinkat(proc, "self", Vec::new())?;
    let is_first = OsStr::from_bytes(own.as_bytes()) == "1";
    if is_first || Wall::Pid.off() { Ok(()) } else { Err(io::Error::other("procfs is of another namespace")) }
}
