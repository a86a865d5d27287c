//! The loopback interface of a network namespace. See netdevice(7).

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Marks `lo` up, so that a program can talk to itself.
pub(crate) fn raise_loopback() -> io::Result<()> {
    // Any kind will do; this one is gone at once when it is closed.
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

/// Whether no packet ever passed an interface of this namespace, and nothing is left in it. A socket of any kind outlives
/// its process only on its way between two local ones, which are listed as long as they hold something.
pub(crate) fn is_network_unused() -> io::Result<bool> {
    let show = |name: &str| std::fs::read_to_string(format!("/proc/self/net/{name}"));
    let dev = show("dev")?;
    let mut packets =
        dev.lines().filter_map(|line| line.split_once(':')).flat_map(|(_, counts)| counts.split_whitespace());
    // The first line names the columns.
    Ok(packets.all(|count| count == "0") && show("unix")?.lines().count() == 1)
}
