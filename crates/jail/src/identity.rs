//! Which identity a sandbox has outside, and how the kernel is told.
//!
//! Inside there is one user and one group, number 1000. Real root is never mapped: limits do not bind it.
//! See user_namespaces(7), "Defining user and group ID mappings".

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
    /// An id that nobody else has; the spawner is root.
    Unused {
        /// User and group number outside.
        id: u32,
    },
    /// A subordinate id of an ordinary user, written by the set-uid tools of shadow.
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
    /// The ordinary user's own id.
    Own {
        /// User number outside.
        uid: u32,
        /// Group number outside.
        gid: u32,
    },
}

impl IdMap {
    /// Tells the kernel, from outside, who `child` is.
    pub(crate) fn write(&self, child: Pid) -> io::Result<()> {
        let proc = PathBuf::from(format!("/proc/{}", child.as_raw_nonzero()));
        match self {
            Self::Unused { id } => {
                fs::write(proc.join("uid_map"), format!("{INSIDE_ID} {id} 1"))?;
                fs::write(proc.join("gid_map"), format!("{INSIDE_ID} {id} 1"))
            }
            Self::Own { uid, gid } => {
                // Without privilege the kernel wants setgroups off first (CVE-2014-8989).
                fs::write(proc.join("setgroups"), "deny")?;
                fs::write(proc.join("uid_map"), format!("{INSIDE_ID} {uid} 1"))?;
                fs::write(proc.join("gid_map"), format!("{INSIDE_ID} {gid} 1"))
            }
            Self::Subordinate { uid, gid, newuidmap, newgidmap } => {
                run_map_tool(newuidmap, child, *uid)?;
                run_map_tool(newgidmap, child, *gid)
            }
        }
    }

    /// Takes the mapped identity, inside, after everything that needs the outer one was opened.
    pub(crate) fn take(&self) -> io::Result<()> {
        if !matches!(self, Self::Own { .. }) {
            rustix::thread::set_thread_groups(&[])?;
        }
        let gid = Gid::from_raw(INSIDE_ID);
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        let uid = Uid::from_raw(INSIDE_ID);
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        Ok(())
    }
}

fn run_map_tool(tool: &PathBuf, child: Pid, outside: u32) -> io::Result<()> {
    sys::with_child_signal_default(|| {
        let status = Command::new(tool)
            .args([
                child.as_raw_nonzero().to_string(),
                INSIDE_ID.to_string(),
                outside.to_string(),
                "1".to_owned(),
            ])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("the id map tool refused")) }
    })
}
