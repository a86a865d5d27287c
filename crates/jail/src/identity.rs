//! Which identity a sandbox has on the host, and how the id maps are written.
//!
//! Inside there is one user and one group, number 1000. The host's root is never mapped, because limits do
//! not apply to it. See user_namespaces(7), "Defining user and group ID mappings".

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Pid;
use rustix::thread::{Gid, Uid};
use serde::{Deserialize, Serialize};

use crate::sys;

/// User and group number inside every sandbox.
pub const INSIDE_ID: u32 = 1000;

/// The identity of a sandbox on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdMap {
    /// An id that no account uses; the spawner is root.
    Unused {
        /// User and group number outside.
        id: u32,
    },
    /// A subordinate id of an ordinary user, mapped by the set-uid tools of shadow.
    Subordinate {
        /// User number outside.
        uid: u32,
        /// Group number outside.
        gid: u32,
        /// `newuidmap`.
        newuidmap: PathBuf,
        /// `newgidmap`.
        newgidmap: PathBuf,
    },
    /// The ordinary user's id.
    Own {
        /// User number outside.
        uid: u32,
        /// Group number outside.
        gid: u32,
    },
    /// One of the ids of a zygote process (see [`ZygoteIds`]).
    OfZygote {
        /// User and group number in the zygote's user namespace.
        id: u32,
        /// The same identity as the host knows it.
        outside: Box<Self>,
    },
}

/// The number of the zygote process in its user namespace. The number 0 is not mapped, so whatever the kernel
/// would assign to root has no owner there.
pub const ZYGOTE_ID: u32 = 1;

/// The identities from which a zygote process chooses those of its sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZygoteIds {
    /// First number in the zygote, first user outside, first group outside, count.
    pub ranges: Vec<(u32, u32, u32, u32)>,
    /// `newuidmap` and `newgidmap`, if an ordinary user has subordinate ids.
    pub tools: Option<(PathBuf, PathBuf)>,
}

impl ZygoteIds {
    /// Writes the id maps of `zygote`, from outside.
    pub(crate) fn write(&self, zygote: Pid) -> io::Result<()> {
        let users: Vec<[u32; 3]> =
            self.ranges.iter().map(|(id, uid, _, count)| [*id, *uid, *count]).collect();
        let groups: Vec<[u32; 3]> =
            self.ranges.iter().map(|(id, _, gid, count)| [*id, *gid, *count]).collect();
        if let Some((newuidmap, newgidmap)) = &self.tools {
            run_map_tool(newuidmap, zygote, &users)?;
            return run_map_tool(newgidmap, zygote, &groups);
        }
        let proc = PathBuf::from(format!("/proc/{}", zygote.as_raw_nonzero()));
        if self.is_single() {
            fs::write(proc.join("setgroups"), "deny")?;
        }
        fs::write(proc.join("uid_map"), lines(&users))?;
        fs::write(proc.join("gid_map"), lines(&groups))
    }

    /// Whether the only id is that of an ordinary user.
    pub(crate) fn is_single(&self) -> bool {
        matches!(self.ranges.as_slice(), [(_, _, _, 1)])
    }
}

fn lines(ranges: &[[u32; 3]]) -> String {
    ranges.iter().map(|[inside, outside, count]| format!("{inside} {outside} {count}\n")).collect()
}

impl IdMap {
    /// The identity as the host knows it.
    pub fn outside(&self) -> &Self {
        match self {
            Self::OfZygote { outside, .. } => outside,
            known => known,
        }
    }

    /// User and group on the host.
    pub fn numbers(&self) -> (u32, u32) {
        match self.outside() {
            Self::Unused { id } | Self::OfZygote { id, .. } => (*id, *id),
            Self::Own { uid, gid } | Self::Subordinate { uid, gid, .. } => (*uid, *gid),
        }
    }

    /// Writes the id maps of `child`, from outside.
    pub(crate) fn write(&self, child: Pid) -> io::Result<()> {
        let proc = PathBuf::from(format!("/proc/{}", child.as_raw_nonzero()));
        match self {
            Self::Unused { id } => {
                fs::write(proc.join("uid_map"), format!("{INSIDE_ID} {id} 1"))?;
                fs::write(proc.join("gid_map"), format!("{INSIDE_ID} {id} 1"))
            }
            Self::Own { uid, gid } => {
                // Without privilege the kernel requires that setgroups is denied first (CVE-2014-8989).
                fs::write(proc.join("setgroups"), "deny")?;
                fs::write(proc.join("uid_map"), format!("{INSIDE_ID} {uid} 1"))?;
                fs::write(proc.join("gid_map"), format!("{INSIDE_ID} {gid} 1"))
            }
            Self::Subordinate { uid, gid, newuidmap, newgidmap } => {
                run_map_tool(newuidmap, child, &[[INSIDE_ID, *uid, 1]])?;
                run_map_tool(newgidmap, child, &[[INSIDE_ID, *gid, 1]])
            }
            Self::OfZygote { .. } => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        }
    }

    /// Switches to one of the zygote's identities. The capabilities stay: the zygote process has prepared for
    /// that ([`crate::zygote`]).
    pub(crate) fn take_of_zygote(&self) -> io::Result<()> {
        let Self::OfZygote { id, outside } = self else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        take(*id, matches!(**outside, Self::Own { .. }))
    }

    /// Moves into a new user namespace, in which the current identity is the inner one and no other id is
    /// mapped.
    pub(crate) fn leave_zygote(&self) -> io::Result<()> {
        let Self::OfZygote { id, .. } = self else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        sys::unshare_user_namespace()?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{INSIDE_ID} {id} 1"))?;
        fs::write("/proc/self/gid_map", format!("{INSIDE_ID} {id} 1"))
    }

    /// Switches to the mapped identity, inside, after everything that needs the outer identity was opened.
    pub(crate) fn take(&self) -> io::Result<()> {
        take(INSIDE_ID, matches!(self, Self::Own { .. }))
    }
}

/// Switches to exactly that user and group. An ordinary user without subordinate ids keeps the supplementary
/// groups.
pub(crate) fn take(id: u32, keeps_groups: bool) -> io::Result<()> {
    if !keeps_groups {
        rustix::thread::set_thread_groups(&[])?;
    }
    let gid = Gid::from_raw(id);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(id);
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

fn run_map_tool(tool: &PathBuf, child: Pid, ranges: &[[u32; 3]]) -> io::Result<()> {
    sys::with_child_signal_default(|| {
        let status = Command::new(tool)
            .arg(child.as_raw_nonzero().to_string())
            .args(ranges.iter().flatten().map(u32::to_string))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("the id map tool refused")) }
    })
}
