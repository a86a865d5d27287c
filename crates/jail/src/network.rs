//! The network namespace of a sandbox: its loopback, and how much of the host's TCP a program can hold through it.
//!
//! A program talks to itself over loopback, and its connections take from memory, ports and tables that the whole kernel
//! shares. Namespaces have settings of their own for some of that; they are made small here. What a namespace cannot
//! limit, the host watches (`backends/native/sockets.rs`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::thread::LinkNameSpaceType;

use crate::breach::Wall;
use crate::sys;

/// Files beneath /proc/sys/net, see ip-sysctl in the kernel's documentation, and tcp(7).
const SETTINGS: [(&str, &str); 7] = [
    // Connections that nobody accepted yet.
    ("core/somaxconn", "128"),
    // Enough for a test of thousands of connections, a third of what the system offers.
    ("ipv4/ip_local_port_range", "32768 40959"),
    // Connections that are closed stay for this time (seconds), this many tries, this many at once.
    ("ipv4/tcp_fin_timeout", "5"),
    ("ipv4/tcp_orphan_retries", "1"),
    ("ipv4/tcp_max_tw_buckets", "1024"),
    // Least, usual and most memory for what one connection received or wants to send.
    ("ipv4/tcp_rmem", "4096 65536 262144"),
    ("ipv4/tcp_wmem", "4096 65536 262144"),
];

/// The directory of the network's settings. It shows those of the namespace that its user is in.
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
                // An older kernel has it for the whole machine only, and does not show it here.
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Goes into the network namespace given, which was set up before, or makes its own usable. One that a program used is
/// not gone into but replaced; the host looks at it more closely.
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
