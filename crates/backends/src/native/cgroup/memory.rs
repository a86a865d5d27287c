//! What the processes of a group hold in memory, and what the kernel holds for them.

use super::group::{Group, MEMORY_NOW_FILE, SOCKETS_LIMIT_FILE, keyed_in};
use crate::native::kernel_file;

const SOCKETS_NOW_FILE: &str = "memory.kmem.tcp.usage_in_bytes";
const KERNEL_NOW_FILE: &str = "memory.kmem.usage_in_bytes";
/// What the kernel keeps for a file in a memory file system: an inode, in version 1 also names and the index of its pages.
const INODE_BYTES: u64 = 744;
const FILE_BYTES: u64 = 1550;

/// Memory of a group, excluding the files of the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::native) struct MemoryHeld {
    /// Memory that only its processes can release.
    pub(in crate::native) certain: u64,
    /// Kernel memory, part of which the kernel releases under pressure. Version 1 does not report which part.
    pub(in crate::native) perhaps: u64,
}

impl Group {
    /// Whether the kernel limits the memory of sockets.
    pub(super) fn counts_sockets(&self) -> bool {
        self.hierarchy.unified
            || self.kept(SOCKETS_LIMIT_FILE).is_some()
            || self.get(SOCKETS_LIMIT_FILE).is_ok()
    }

    /// The memory of sockets where version 2 counts it with the rest. Version 1 has a separate limit for it.
    pub(super) fn socket_bytes_of_all(&self) -> u64 {
        if !self.hierarchy.unified {
            return 0;
        }
        let account = kernel_file::read(self.directory.join("memory.stat")).unwrap_or_default();
        keyed_in(&account, "sock").unwrap_or(0)
    }

    /// The memory held in addition to `scratch_bytes` of files, if it may exceed `limit`. A cheap check comes
    /// first. Only if that is suspicious is the kernel's detailed account read, without the memory that the
    /// kernel can release at any time.
    pub(super) fn memory_held(&self, scratch_bytes: u64, limit: u64) -> MemoryHeld {
        let now_file = if self.hierarchy.unified { "memory.current" } else { MEMORY_NOW_FILE };
        let of_sockets = if self.hierarchy.unified { 0 } else { self.number(SOCKETS_NOW_FILE) };
        if self.number(now_file) + of_sockets <= limit.saturating_add(scratch_bytes) {
            return MemoryHeld::default();
        }
        let account = kernel_file::read(self.directory.join("memory.stat")).unwrap_or_default();
        let of = |name: &str| keyed_in(&account, name).unwrap_or(0);
        let shared = of("shmem").saturating_sub(scratch_bytes);
        if self.hierarchy.unified {
            let parts = ["kernel_stack", "pagetables", "percpu", "slab_unreclaimable"].map(of);
            let kernel = keyed_in(&account, "kernel").map(|all| all.saturating_sub(of("slab_reclaimable")));
            let kernel = kernel.unwrap_or(parts.iter().sum());
            MemoryHeld { certain: of("anon") + of("sock") + shared + kernel, perhaps: 0 }
        } else {
            let certain = of("rss") + shared + of_sockets;
            MemoryHeld { certain, perhaps: self.number(KERNEL_NOW_FILE) }
        }
    }

    /// The kernel's own memory besides that of `scratch_inodes` files. `None` if the kernel does not count it.
    pub(super) fn kernel_held(&self, scratch_inodes: u64) -> Option<MemoryHeld> {
        let of_file = if self.hierarchy.unified { INODE_BYTES } else { FILE_BYTES };
        let of_files = scratch_inodes.saturating_mul(of_file);
        let besides = |all: u64| (all > 0).then(|| all.saturating_sub(of_files));
        if self.hierarchy.unified {
            let account = kernel_file::read(self.directory.join("memory.stat")).unwrap_or_default();
            let certain = besides(keyed_in(&account, "slab_unreclaimable").unwrap_or(0))?;
            Some(MemoryHeld { certain, perhaps: 0 })
        } else {
            Some(MemoryHeld { certain: 0, perhaps: besides(self.number(KERNEL_NOW_FILE))? })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::group::group;
    use super::*;

    #[test]
    fn files_of_the_sandbox_and_caches_are_not_the_memory_it_holds() {
        const MB: u64 = 1 << 20;
        let account = |lines: &[(&str, u64)]| {
            lines.iter().map(|(name, mb)| format!("{name} {}\n", mb * MB)).collect::<String>()
        };
        let one = group(true, "held-v2");
        let write =
            |group: &Group, file: &str, text: &str| fs::write(group.directory.join(file), text).unwrap();
        write(&one, "memory.current", &(300 * MB).to_string());
        let lines = [
            ("anon", 50),
            ("kernel", 30),
            ("shmem", 220),
            ("sock", 5),
            ("slab_reclaimable", 20),
            ("file", 9),
        ];
        write(&one, "memory.stat", &account(&lines));
        assert_eq!(one.memory_held(200 * MB, 100 * MB), MemoryHeld::default(), "within, at a glance");
        // 20 MB of shared memory are not files of the writable space.
        let held = one.memory_held(200 * MB, 64 * MB);
        fs::remove_dir_all(&one.directory).unwrap();
        assert_eq!(held, MemoryHeld { certain: (50 + 10 + 20 + 5) * MB, perhaps: 0 });

        let old = group(false, "held-v1");
        write(&old, "memory.usage_in_bytes", &(300 * MB).to_string());
        write(&old, "memory.kmem.tcp.usage_in_bytes", &(7 * MB).to_string());
        write(&old, "memory.kmem.usage_in_bytes", &(40 * MB).to_string());
        write(&old, "memory.stat", &account(&[("cache", 240), ("rss", 50), ("shmem", 200)]));
        let held = old.memory_held(200 * MB, 64 * MB);
        fs::remove_dir_all(&old.directory).unwrap();
        assert_eq!(held, MemoryHeld { certain: (50 + 7) * MB, perhaps: 40 * MB });
    }

    #[test]
    fn memory_of_the_kernel_is_what_it_cannot_release_or_not_known() {
        const MB: u64 = 1 << 20;
        let one = group(true, "kernel-v2");
        let write =
            |group: &Group, file: &str, text: &str| fs::write(group.directory.join(file), text).unwrap();
        write(&one, "memory.stat", &format!("slab_reclaimable {}\nslab_unreclaimable {}\n", 90 * MB, 9 * MB));
        let counted = one.kernel_held(1000);
        let of_files_only = one.kernel_held(1_000_000);
        write(&one, "memory.stat", "slab_unreclaimable 0\n");
        let uncounted = one.kernel_held(0);
        fs::remove_dir_all(&one.directory).unwrap();
        let certain = |certain| Some(MemoryHeld { certain, perhaps: 0 });
        assert_eq!((counted, of_files_only, uncounted), (certain(9 * MB - 744_000), certain(0), None));

        let old = group(false, "kernel-v1");
        write(&old, KERNEL_NOW_FILE, &(40 * MB).to_string());
        let held = old.kernel_held(1000);
        fs::remove_dir_all(&old.directory).unwrap();
        assert_eq!(held, Some(MemoryHeld { certain: 0, perhaps: 40 * MB - 1_550_000 }));
    }
}
