//! What attacks aim at: files, sockets, a process and a directory descriptor of the host, opened by the test.
//!
//! Network attacks have no other target than these listeners, with walls or without.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::Duration;

use harness::shared_folder;
use serde_json::{Value, json};

const WORD: &[u8] = b"bait";
/// Not the harness's folder: a build without walls attaches its new root over the host's /tmp.
const BAIT_PARENT: &str = "/var/tmp";
const BAIT: &str = "palisade-escape-";
const SUITE: &str = "palisade-suite-";
/// Above the numbers that a sandbox in the making puts its own descriptors at.
const ROOT_FD_MIN: i32 = 40;

/// A file of the host that every sandbox shows.
const SHOWN: &str = "/usr/bin/env";
const KNOCK_PAUSE: Duration = Duration::from_millis(50);

/// Everything laid out; dropping it takes it away.
pub struct Bait {
    victim: Child,
    /// Held, so that a sandbox which shares the lock sees it taken.
    _locked: File,
    folder: PathBuf,
    /// What the attacks are told, as the variable `HOST`.
    pub host: Value,
    /// A word that only processes and files of this trial have in their names.
    pub marker: String,
}

impl Bait {
    /// Opens the listeners and makes the files.
    pub fn lay(label: &str) -> Self {
        sweep();
        inherit_root();
        let marker = format!("{BAIT}{}-{label}", std::process::id());
        let folder = Path::new(BAIT_PARENT).join(&marker);
        let drop = folder.join("drop");
        fs::create_dir_all(&drop).unwrap();
        open_to_all(&folder, 0o755);
        open_to_all(&drop, 0o777);
        let (secret, target) = (folder.join("secret"), folder.join("target"));
        fs::write(&secret, "secret of the host").unwrap();
        open_to_all(&secret, 0o644);
        fs::write(&target, "").unwrap();
        open_to_all(&target, 0o666);
        let socket = folder.join("socket");
        let file_listener = UnixListener::bind(&socket).unwrap();
        open_to_all(&socket, 0o777);
        greet_unix(file_listener);
        greet_unix(UnixListener::bind_addr(&SocketAddr::from_abstract_name(&marker).unwrap()).unwrap());
        let locked = File::open(SHOWN).unwrap();
        // Another suite on this machine may hold it already; that serves as well.
        rustix::fs::flock(&locked, rustix::fs::FlockOperation::NonBlockingLockExclusive).ok();
        knock();
        let victim = Command::new("sleep").arg("600").spawn().unwrap();
        let instances = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
        let host = json!({
            "secret": secret, "target": target, "drop": drop, "socket": socket, "abstract": marker, "marker": marker,
            "port": greet_tcp("127.0.0.1:0"), "port6": greet_tcp("[::1]:0"), "datagram_port": greet_udp(),
            "victim": victim.id(), "user": harness::ORDINARY_USER, "key": 0x5041_0000 + std::process::id() % 0xffff,
            "inotify_instances": instances.trim().parse::<u64>().unwrap(),
        });
        Self { victim, _locked: locked, folder, host, marker }
    }

    /// A file of the host that everybody may read.
    pub fn secret(&self) -> PathBuf {
        self.folder.join("secret")
    }

    /// A folder of the host that everybody may write.
    pub fn drop_folder(&self) -> PathBuf {
        self.folder.join("drop")
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        self.victim.kill().ok();
        self.victim.wait().ok();
        // Segments that a run without its ipc namespace left; nothing is there otherwise.
        let key = self.host["key"].to_string();
        let removal = Command::new("ipcrm").args(["-M", &key, "-S", &key, "-Q", &key]).output();
        removal.ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// Made first in a test: takes the harness's folder away at its end, where a process runs one test only.
pub struct Tidy;

impl Drop for Tidy {
    fn drop(&mut self) {
        if std::env::var_os("NEXTEST").is_some() {
            fs::remove_dir_all(shared_folder()).ok();
        }
    }
}

/// Removes the folders of suites that are gone: several tests of one process share theirs to its end.
fn sweep() {
    for (parent, prefix) in [(std::env::temp_dir(), SUITE), (PathBuf::from(BAIT_PARENT), BAIT)] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name.strip_prefix(prefix).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                fs::remove_dir_all(entry.path()).ok();
            }
        }
    }
}

/// Leaves the root directory open across exec, as a careless caller of palisade might.
fn inherit_root() {
    static ROOT: OnceLock<OwnedFd> = OnceLock::new();
    let root =
        ROOT.get_or_init(|| rustix::io::fcntl_dupfd_cloexec(File::open("/").unwrap(), ROOT_FD_MIN).unwrap());
    rustix::io::fcntl_setfd(root, rustix::io::FdFlags::empty()).unwrap();
}

/// Opens a file of the system again and again, as a host that starts programs does.
fn knock() {
    static KNOCKING: OnceLock<()> = OnceLock::new();
    KNOCKING.get_or_init(|| {
        std::thread::spawn(|| {
            loop {
                drop(File::open(SHOWN));
                std::thread::sleep(KNOCK_PAUSE);
            }
        });
    });
}

fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn greet_tcp(address: &str) -> Option<u16> {
    // A machine without IPv6 has no such address; the attack then only tries the other form.
    let listener = TcpListener::bind(address).ok()?;
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            (&stream).write_all(WORD).ok();
        }
    });
    Some(port)
}

fn greet_udp() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut bytes = [0_u8; 16];
        while let Ok((_, from)) = socket.recv_from(&mut bytes) {
            socket.send_to(WORD, from).ok();
        }
    });
    port
}

fn greet_unix(listener: UnixListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            (&stream).write_all(WORD).ok();
        }
    });
}
