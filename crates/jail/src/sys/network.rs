//! The loopback interface and the state of a network namespace. See netdevice(7).

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Brings `lo` up, so that a program can connect to itself.
pub(crate) fn raise_loopback() -> io::Result<()> {
    // Any socket type works; this one is released as soon as it is closed.
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: an all-zero ifreq is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which is valid here.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether no packet ever passed an interface of this namespace, and no socket is left in it. A socket of any
/// kind outlives its process only while it is in transit between two local sockets, which are listed as long
/// as they hold something.
pub(crate) fn is_network_unused() -> io::Result<bool> {
    let show = |name: &str| std::fs::read_to_string(format!("/proc/self/net/{name}"));
    let dev = show("dev")?;
    let mut packets =
        dev.lines().filter_map(|line| line.split_once(':')).flat_map(|(_, counts)| counts.split_whitespace());
    // The first line names the columns.
    Ok(packets.all(|count| count == "0") && show("unix")?.lines().count() == 1)
}
