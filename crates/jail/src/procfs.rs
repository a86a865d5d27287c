//! The procfs of a new root: its own, verified, with the parts covered that tell about the host or reach into it.

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

/// Parts of procfs that tell about the host or reach into it; each is covered by something empty.
const MASKED: [&str; 27] = [
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
/// Directories of procfs in which nothing may be written.
const READONLY_DIRECTORIES: [&str; 2] = ["bus", "sys"];
/// A number that names the running machine; every sandbox gets one of its own.
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";

const EMPTY_FILE: &str = ".empty";
const EMPTY_DIRECTORY: &str = ".void";

impl Root {
    /// A fresh procfs of the new process namespace, verified, with the dangerous parts covered; `blank` is where files
    /// can be made to cover them with.
    /// Gives back the settings of the network, which can be written through that descriptor only.
    pub(crate) fn procfs(&self, blank: &OwnedFd) -> io::Result<NetworkSettings> {
        let proc = self.bare_procfs()?;
        self.finish_procfs(&proc, blank)
    }

    /// The same in place of the zygote's, which may be let go of only when this one is there to take its place: the kernel
    /// gives a new procfs only to who can see one.
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
                // A copy of what covers already is as read-only as that. By name, which costs the kernel less than by
                // descriptor: nobody else is here who could change one.
                Some((first, _)) => rustix::mount::mount_bind(in_proc(first), in_proc(name))?,
            }
        }
        for name in &here.readonly {
            self.cover((root, &in_proc(name)), &in_proc(name))?;
        }
        self.boot_id(blank)?;
        // What covers stays mounted; the originals need no name.
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

/// What of a procfs is covered on this kernel.
struct Covered {
    /// Name, and whether it is a directory.
    masked: Vec<(&'static str, bool)>,
    readonly: Vec<&'static str>,
}

/// Found out once: these entries are the kernel's, the same in every procfs. Clones of a process that knows know it too.
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

/// Finds that out ahead, for clones.
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

/// When the host runs out of memory, sandboxes go before anything else. Inherited by clones of a zygote; see proc(5).
fn be_killed_first(proc: &OwnedFd) -> io::Result<()> {
    const FIRST_OF_ALL: &[u8] = b"1000";
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(proc, "self/oom_score_adj", flags, Mode::empty())?;
    Ok(rustix::io::write(&file, FIRST_OF_ALL).map(drop)?)
}

/// A procfs that is not one, or not of this process namespace, would show the host's processes.
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
