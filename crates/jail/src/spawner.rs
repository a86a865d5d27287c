//! The process that clones: single-threaded, small, without secrets.
//!
//! Forked from the server before it has threads. It reads plans from a socket, clones, writes the id maps
//! and goes on; the clone reports to the server by itself, so one slow wall does not hold up the next. It
//! also takes away the control groups of sandboxes that ended, off the path of the answer.
//!
//! The spawner's end is the end of every sandbox it made (parent-death signal). The server's end is the
//! spawner's: the socket closes, guests see their streams close, what is left of the groups is removed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::breach::{self, Wall};
use crate::raise::{self, InheritedFds};
use crate::removal::Removal;
use crate::report::{self, JailError, Message};
use crate::seccomp::Filter;
use crate::sys::{self, ChildFlags, Cloned, Namespace};
use crate::zygote::{self, ZygoteFds};
use crate::{IdMap, JailPlan, ZygotePlan};

/// The longest plan: drivers of a runtime are the bulk of it.
pub const PLAN_BYTES_MAX: usize = 192 * 1024;

const REQUEST_FD: i32 = 3;

/// What a clone becomes once its walls stand: it is given the stream and the socket on which the host will
/// consent (see [`crate::accept_consent`]), and returns an exit status.
pub type GuestMain = fn(OwnedFd, OwnedFd) -> i32;

/// What the server may ask of the spawner, or of a zygote.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    /// One jail; comes with the guest's stream and the report socket.
    Jail(Box<JailPlan>),
    /// One zygote; comes with its end of the socket for requests, its library and the report socket.
    Zygote(Box<ZygotePlan>),
    /// One clone of a zygote; comes with the guest's stream, the report socket, and what is enclosed besides.
    Clone(Box<JailPlan>, Enclosed),
    /// Remove these control groups, whose processes are dead; comes with their namespaces, to be let go of.
    Remove(Vec<PathBuf>),
    /// Remove these and all beneath them when the server is gone.
    RemoveAtEnd(Vec<PathBuf>),
}

/// What else comes with a request for a clone, in this order.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Enclosed {
    pub(crate) workspace: bool,
    pub(crate) network: bool,
}

/// A handle on the spawner; dropping it ends the spawner and all its sandboxes.
#[derive(Debug)]
pub struct Spawner {
    requests: OwnedFd,
    pid: Pid,
}

impl Spawner {
    /// Forks the spawner. Must be called before any thread exists; the caller sees to that. `first` is the identity
    /// of the first sandbox: its process is cloned at once, while the server finds out what to ask for.
    pub fn start(guest: GuestMain, first: &IdMap) -> io::Result<Self> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        match sys::fork_process()? {
            Some(pid) => Ok(Self { requests: ours, pid }),
            None => {
                drop(ours);
                let status = match become_spawner(theirs) {
                    Ok(requests) => serve(&requests, guest, first),
                    Err(_) => 1,
                };
                exit(status)
            }
        }
    }

    /// The spawner's process number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Asks for one jail. `stream` becomes the guest's; reports come to the other end of `report`.
    pub fn spawn(&self, plan: &JailPlan, stream: OwnedFd, report: OwnedFd) -> io::Result<()> {
        self.ask(&Request::Jail(Box::new(plan.clone())), &[stream.as_fd(), report.as_fd()])
    }

    /// Has control groups removed whose processes are dead, and their namespaces let go of, a little later: both cost
    /// the kernel time that whoever waits for an answer need not wait for.
    pub fn remove(&self, groups: Vec<PathBuf>, namespaces: &[OwnedFd]) -> io::Result<()> {
        let descriptors: Vec<_> = namespaces.iter().map(AsFd::as_fd).collect();
        self.ask(&Request::Remove(groups), &descriptors)
    }

    /// Has control groups removed, with all beneath them, when this server is gone, however it ends.
    pub fn remove_at_end(&self, groups: Vec<PathBuf>) -> io::Result<()> {
        self.ask(&Request::RemoveAtEnd(groups), &[])
    }

    /// Asks for one zygote. It takes requests from the other end of `requests` and says there when it is ready; how its
    /// wall comes along is told to the other end of `report`.
    pub fn start_zygote(&self, plan: &ZygotePlan, fds: &ZygoteFds) -> io::Result<()> {
        let descriptors = [fds.requests.as_fd(), fds.library.as_fd(), fds.report.as_fd()];
        self.ask(&Request::Zygote(Box::new(plan.clone())), &descriptors)
    }

    fn ask(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        ask(self.requests.as_fd(), request, descriptors)
    }
}

/// Sends a request to a spawner or a zygote.
pub(crate) fn ask(
    socket: BorrowedFd<'_>,
    request: &Request,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = postcard::to_stdvec(request).map_err(io::Error::other)?;
    if bytes.len() > PLAN_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the plan is too long"));
    }
    report::send_with_descriptors(socket, &bytes, descriptors)
}

pub(crate) fn exit(status: i32) -> ! {
    // Nothing of the server may run here: neither its exit handlers nor its buffers.
    sys::exit_now(status)
}

/// The spawner's first act is to clean itself.
fn become_spawner(requests: OwnedFd) -> io::Result<OwnedFd> {
    breach::remember();
    sys::scrub_start();
    sys::reset_signals();
    sys::ignore_child_signal();
    // Away from the terminal: its signals are for the server to handle.
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    // Whatever the server's is: directories of a root must be walked through by who is inside, and programs expect it.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    drop(nothing);
    // By way of a high number: the original may be where it is going.
    let requests = rustix::io::fcntl_dupfd_cloexec(requests, 64)?;
    let requests = sys::place(requests, REQUEST_FD)?;
    if !Wall::Descriptors.off() {
        sys::close_from(REQUEST_FD + 1)?;
    }
    rustix::thread::set_name(c"palisade-jail")?;
    Ok(requests)
}

fn serve(requests: &OwnedFd, guest: GuestMain, first: &IdMap) -> i32 {
    let filter = Filter::compile();
    // The server takes a while to find out what to ask for; should this fail, the request will tell why.
    let mut head_start = Head::clone(first, None, &filter, guest).ok();
    let mut removal = Removal::default();
    let mut bytes = vec![0_u8; PLAN_BYTES_MAX];
    loop {
        removal.until_readable(requests);
        let (length, descriptors) = match report::receive_with_descriptors(requests.as_fd(), &mut bytes) {
            Ok((0, _)) => {
                // Closes the door of a clone that was made ahead and is not wanted any more.
                drop(head_start);
                removal.at_end();
                return 0;
            }
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return 1,
        };
        match postcard::from_bytes::<Request>(&bytes[..length]) {
            Ok(Request::Jail(plan)) => {
                let clone = |plan: &JailPlan| {
                    Head::clone(&plan.id_map, plan.unified_cgroup.as_deref(), &filter, guest)
                };
                answer(&plan, &bytes[..length], descriptors, head_start.take(), clone);
            }
            Ok(Request::Zygote(plan)) => zygote::start_zygote(&plan, descriptors),
            Ok(Request::Remove(groups)) => removal.add(groups, descriptors),
            Ok(Request::RemoveAtEnd(groups)) => removal.add_at_end(groups),
            // The server is this very binary; a message it did not mean is no reason to die.
            Ok(Request::Clone(..)) | Err(_) => {}
        }
    }
}

/// A clone in namespaces of its own, mapped, waiting at its door for a plan.
struct Head {
    id_map: IdMap,
    pidfd: OwnedFd,
    clone_us: u32,
    door: OwnedFd,
}

impl Head {
    fn clone(
        id_map: &IdMap,
        cgroup: Option<&Path>,
        filter: &Filter,
        guest: GuestMain,
    ) -> Result<Self, JailError> {
        let at = |step: &'static str| move |error: io::Error| JailError::new(step, &error);
        let cgroup = cgroup.map(open_directory).transpose().map_err(at("open cgroup"))?;
        let (door, inside) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| JailError::new("door", &error.into()))?;
        let started = Instant::now();
        let flags = ChildFlags::new(namespaces());
        match sys::clone_into_walls(flags, cgroup.as_ref().map(AsFd::as_fd)).map_err(at("clone"))? {
            Cloned::Parent(pid, pidfd) => {
                let clone_us = u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX);
                // On an error the door closes and the clone ends by itself.
                id_map.write(pid).map_err(at(map_step(id_map)))?;
                Ok(Self { id_map: id_map.clone(), pidfd, clone_us, door })
            }
            Cloned::Child => {
                drop((door, cgroup));
                wait_at_door(&inside, filter, guest)
            }
        }
    }

    /// Hands it the request as it came, with the guest's stream and the report socket.
    fn hand(&self, request: &[u8], stream: &OwnedFd, report: &OwnedFd) -> Result<(), JailError> {
        let announced = Message::Cloned { clone_us: self.clone_us };
        report::send(report.as_fd(), &announced, Some(self.pidfd.as_fd()))
            .and_then(|()| {
                report::send_with_descriptors(self.door.as_fd(), request, &[stream.as_fd(), report.as_fd()])
            })
            .map_err(|error| JailError::new("hand over", &error))
    }
}

/// What a clone does until it knows what to become; a closed door means that nobody wants it.
fn wait_at_door(door: &OwnedFd, filter: &Filter, guest: GuestMain) -> ! {
    let mut bytes = vec![0_u8; PLAN_BYTES_MAX];
    let Ok((length @ 1.., descriptors)) = report::receive_with_descriptors(door.as_fd(), &mut bytes) else {
        exit(0)
    };
    let (Ok(Request::Jail(plan)), Ok([stream, report])) =
        (postcard::from_bytes::<Request>(&bytes[..length]), <[OwnedFd; 2]>::try_from(descriptors))
    else {
        exit(1)
    };
    become_guest(&plan, filter, InheritedFds { stream, report }, guest)
}

/// Answers one request for a jail: by the clone made ahead, if it fits, else by a new one.
fn answer(
    plan: &JailPlan,
    request: &[u8],
    descriptors: Vec<OwnedFd>,
    head_start: Option<Head>,
    clone: impl FnOnce(&JailPlan) -> Result<Head, JailError>,
) {
    let Ok([stream, report]) = <[OwnedFd; 2]>::try_from(descriptors) else { return };
    let fits = |head: &Head| head.id_map == plan.id_map && plan.unified_cgroup.is_none();
    let head = head_start.filter(fits).map_or_else(|| clone(plan), Ok);
    if let Err(error) = head.and_then(|head| head.hand(request, &stream, &report)) {
        // The server may be gone; then nobody waits for this.
        report::send(report.as_fd(), &Message::Failed(error), None).ok();
    }
}

pub(crate) fn namespaces() -> impl Iterator<Item = Namespace> + Clone {
    let all = [
        (Wall::Network, Namespace::Network),
        (Wall::Pid, Namespace::Pid),
        (Wall::Ipc, Namespace::Ipc),
        (Wall::Uts, Namespace::Uts),
    ];
    all.into_iter().filter(|(wall, _)| !wall.off()).map(|(_, namespace)| namespace)
}

fn map_step(map: &IdMap) -> &'static str {
    match map {
        IdMap::Unused { .. } => "id maps",
        IdMap::Own { .. } => "own id map",
        IdMap::Subordinate { .. } => "subordinate id map",
        IdMap::OfZygote { .. } => "id map of a zygote",
    }
}

fn become_guest(plan: &JailPlan, filter: &Filter, fds: InheritedFds, guest: GuestMain) -> ! {
    sys::reset_signals();
    let Ok((fds, failures)) = settle(fds) else { exit(1) };
    match raise::raise(plan, filter, fds) {
        Ok((stream, report)) => {
            drop(failures);
            let status = guest(stream, report);
            leave(plan, status)
        }
        Err(error) => {
            report::send(failures.as_fd(), &Message::Failed(error), None).ok();
            exit(1)
        }
    }
}

/// Ends process 1 whose stream has ended. The guest has killed everything else. Usually the server kills this process too; if
/// the server is gone, many sandboxes end at this moment. Each frees a compiled filter, and thousands of those at once
/// deadlock the kernel, so each sandbox waits its own time.
pub(crate) fn leave(plan: &JailPlan, status: i32) -> ! {
    std::thread::sleep(Duration::from_millis(u64::from(plan.linger_ms)));
    exit(status)
}

/// Moves what was handed out of the low numbers, and puts a second report socket where no step closes it.
pub(crate) fn settle(fds: InheritedFds) -> io::Result<(InheritedFds, OwnedFd)> {
    let away = |descriptor: OwnedFd| rustix::io::fcntl_dupfd_cloexec(descriptor, 64).map_err(io::Error::from);
    let (stream, report) = (away(fds.stream)?, away(fds.report)?);
    let failures = sys::place(report.try_clone()?, raise::FAILURES_FD)?;
    Ok((InheritedFds { stream, report }, failures))
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}
