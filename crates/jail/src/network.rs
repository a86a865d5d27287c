//! The network namespace of a sandbox: its loopback, and how much of the host's TCP a program can hold
//! through it.
//!
//! A program can connect to itself over loopback. Its connections use memory, ports and tables that the whole
//! kernel shares. Network namespaces have their own settings for some of these; this module makes them small.
//! The host watches what a namespace cannot limit (`backends/native/sockets.rs`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::thread::LinkNameSpaceType;

use crate::breach::Wall;
use crate::sys;

/// Files beneath /proc/sys/net, see ip-sysctl in the kernel's documentation, and tcp(7).
pub const SETTINGS: [(&str, &str); 7] = [
    // Connections that the program has not accepted yet.
    ("core/somaxconn", "128"),
    // Enough for a test of thousands of connections, a third of what the system offers.
    ("ipv4/ip_local_port_range", "32768 40959"),
    // Closed connections remain for this time (seconds), this many retries, this many at once.
    ("ipv4/tcp_fin_timeout", "5"),
    ("ipv4/tcp_orphan_retries", "1"),
    ("ipv4/tcp_max_tw_buckets", "1024"),
    // Minimum, default and maximum memory for one connection's receive and send buffer.
    ("ipv4/tcp_rmem", "4096 65536 262144"),
    ("ipv4/tcp_wmem", "4096 65536 262144"),
];

/// The directory of the network settings. It shows the settings of the namespace that its user is in.
pub(crate) struct NetworkSettings(OwnedFd);

impl NetworkSettings {
    pub(crate) fn open(proc: &OwnedFd) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(proc, "sys/net", flags, Mode::empty())?))
    }

    fn make_small(&self) -> io::Result<()> {
        for (name, value) in SETTINGS {
            match rustix::fs::openat(&self.0, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
                Ok(file) => drop(rustix::io::write(&file, value.as_bytes())?),
                // On an older kernel this setting is global for the machine and does not appear here.
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Enters the given network namespace, which is set up already, or makes the process's own namespace usable.
/// If a program has used the given namespace, a new one replaces it; the host examines it more closely.
pub(crate) fn enter(given: Option<OwnedFd>, settings: &NetworkSettings) -> io::Result<()> {
    if Wall::Network.off() {
        return Ok(());
    }
    if let Some(namespace) = given {
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)?;
        if sys::is_network_unused()? {
            return Ok(());
        }
        sys::unshare_network_namespace()?;
    }
    sys::raise_loopback()?;
    settings.make_small()
}
