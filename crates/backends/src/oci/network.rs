//! Makes the TCP settings of a container's network namespace small, as the jail does for its own.
//!
//! A runtime can do this, too (`sysctl` in its configuration), but fails where a kernel does not show a setting in such a
//! namespace. The server enters the namespace with a thread that ends afterwards.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::thread::LinkNameSpaceType;

/// Changes the settings before any program runs there.
pub(super) fn make_small(pid: i32) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    let (theirs, ours) = (namespace.metadata()?, std::fs::metadata("/proc/self/ns/net")?);
    // A runtime that made none: the host's own settings stay as they are, whatever the examination finds later.
    if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) {
        return Err(io::Error::other("it shares our net namespace"));
    }
    let work = move || {
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        jail::NETWORK_SETTINGS.iter().try_for_each(|(name, value)| {
            match File::options().write(true).open(Path::new("/proc/sys/net").join(name)) {
                Ok(mut file) => file.write_all(value.as_bytes()),
                // On an older kernel this setting is global for the machine and does not appear here.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            }
        })
    };
    let thread = std::thread::Builder::new().name("network".to_owned()).spawn(work)?;
    thread.join().map_err(|_| io::Error::other("the thread ended early"))?
}
