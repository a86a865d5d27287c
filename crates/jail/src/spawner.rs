//! The process that clones: single-threaded, small, without secrets.
//!
//! It is forked from the server before the server has threads. It reads plans from a socket, clones, writes
//! the id maps and continues. The clone reports to the server by itself, so one slow build does not delay the
//! next. The spawner also removes the control groups of ended sandboxes, without delaying the answer.
//!
//! When the spawner ends, every sandbox it made ends (parent-death signal). When the server ends, the spawner
//! ends: the socket closes, guests see their streams close, and the spawner removes the remaining control
//! groups.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::attach::{self, AttachPlan};
use crate::breach::{self, Wall};
use crate::raise::{self, InheritedFds};
use crate::removal::Removal;
use crate::report::{self, JailError, Message};
use crate::seccomp::Filter;
use crate::sys::{self, ChildFlags, Cloned, Namespace};
use crate::zygote::{self, ZygoteFds};
use crate::{IdMap, JailPlan, ZygotePlan, folders};

/// The longest plan. The drivers of all languages that a persistent sandbox keeps are the bulk of it. Less than twice the
/// usual `net.core.wmem_max`, to which the kernel bounds what [`take_plans`] asks for.
pub const PLAN_BYTES_MAX: usize = 320 * 1024;

const REQUEST_FD: i32 = 3;

/// What a clone becomes once its walls are up. It receives the stream and the socket on which the host will
/// consent (see [`crate::accept_consent`]), and returns an exit status.
pub type GuestMain = fn(OwnedFd, OwnedFd) -> i32;

/// What the server may request from the spawner, or from a zygote process.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    /// Build one jail. Carries the guest's stream and the report socket.
    Jail(Box<JailPlan>),
    /// Start one zygote process. Carries its end of the request socket, its library and the report socket.
    Zygote(Box<ZygotePlan>),
    /// Make one clone of a zygote process. Carries the guest's stream, the report socket, and the enclosed
    /// descriptors.
    Clone(Box<JailPlan>, Enclosed),
    /// Show a layer in an existing sandbox. Carries the sandbox's mount namespace, the directory of the layer and
    /// the report socket.
    Attach(AttachPlan),
    /// Remove these control groups, whose processes are dead. Carries their namespaces, which the spawner
    /// closes.
    Remove(Vec<PathBuf>),
    /// Remove these groups and all groups beneath them when the server is gone.
    RemoveAtEnd(Vec<PathBuf>),
}

/// Which further file descriptors come with a request for a clone, in this order.
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
    /// Forks the spawner. The caller must ensure that no thread exists yet. `first` is the identity of the
    /// first sandbox: its process is cloned at once, while the server determines what to request.
    pub fn start(guest: GuestMain, first: &IdMap) -> io::Result<Self> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        take_plans(ours.as_fd())?;
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

    /// Requests one jail. `stream` becomes the guest's; reports arrive at the other end of `report`.
    pub fn spawn(&self, plan: &JailPlan, stream: OwnedFd, report: OwnedFd) -> io::Result<()> {
        self.ask(&Request::Jail(Box::new(plan.clone())), &[stream.as_fd(), report.as_fd()])
    }

    /// Requests that a layer is shown in the sandbox with these mounts. `layer` is its directory. The answer,
    /// [`Message::Attached`] or [`Message::Failed`], arrives at the other end of `report`.
    pub fn attach(
        &self,
        plan: &AttachPlan,
        mounts: BorrowedFd<'_>,
        layer: BorrowedFd<'_>,
        report: OwnedFd,
    ) -> io::Result<()> {
        self.ask(&Request::Attach(plan.clone()), &[mounts, layer, report.as_fd()])
    }

    /// Requests the removal of control groups whose processes are dead, and the closing of their namespaces,
    /// a little later. Both cost the kernel time that a caller need not wait for.
    pub fn remove(&self, groups: Vec<PathBuf>, namespaces: &[OwnedFd]) -> io::Result<()> {
        let descriptors: Vec<_> = namespaces.iter().map(AsFd::as_fd).collect();
        self.ask(&Request::Remove(groups), &descriptors)
    }

    /// Requests the removal of control groups, with all groups beneath them, when this server is gone,
    /// however it ends.
    pub fn remove_at_end(&self, groups: Vec<PathBuf>) -> io::Result<()> {
        self.ask(&Request::RemoveAtEnd(groups), &[])
    }

    /// Requests one zygote process. It takes requests from the other end of `requests` and reports there when
    /// it is ready. The other end of `report` receives the progress of its build.
    pub fn start_zygote(&self, plan: &ZygotePlan, fds: &ZygoteFds) -> io::Result<()> {
        let descriptors = [fds.requests.as_fd(), fds.library.as_fd(), fds.report.as_fd()];
        self.ask(&Request::Zygote(Box::new(plan.clone())), &descriptors)
    }

    fn ask(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        ask(self.requests.as_fd(), request, descriptors)
    }
}

/// Lets a socket send the longest plan as one message. See unix(7), SO_SNDBUF.
pub fn take_plans(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_send_buffer_size(socket, PLAN_BYTES_MAX)?)
}

/// Sends a request to a spawner or a zygote process.
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

/// The spawner's first action is to clean itself.
fn become_spawner(requests: OwnedFd) -> io::Result<OwnedFd> {
    breach::remember();
    sys::scrub_start();
    sys::reset_signals();
    sys::ignore_child_signal();
    // Detached from the terminal: its signals are for the server to handle.
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    // Independent of the server's umask: the inner user must be able to traverse the directories of a root,
    // and programs expect this value.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    drop(nothing);
    // Through a high number first: the original may already have the target number.
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
    // The server takes a while to determine what to request. If this fails, the later request reports why.
    let mut head_start = Head::clone(first, None, &filter, guest).ok();
    let mut removal = Removal::default();
    let mut bytes = vec![0_u8; PLAN_BYTES_MAX];
    loop {
        removal.until_readable(requests);
        let (length, descriptors) = match report::receive_with_descriptors(requests.as_fd(), &mut bytes) {
            Ok((0, _)) => {
                // Closes the door of a clone that was made ahead and is no longer wanted.
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
            Ok(Request::Attach(plan)) => attach::start(&plan, descriptors),
            Ok(Request::Remove(groups)) => removal.add(groups, descriptors),
            Ok(Request::RemoveAtEnd(groups)) => removal.add_at_end(groups),
            // The server is the same binary; an unexpected message is no reason to exit.
            Ok(Request::Clone(..)) | Err(_) => {}
        }
    }
}

/// A clone in its own namespaces, with its id maps written, that waits for a plan. The *door* is the socket
/// on which the plan arrives.
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
        take_plans(door.as_fd()).map_err(at("door"))?;
        let started = Instant::now();
        let flags = ChildFlags::new(namespaces());
        match sys::clone_into_walls(flags, cgroup.as_ref().map(AsFd::as_fd)).map_err(at("clone"))? {
            Cloned::Parent(pid, pidfd) => {
                let clone_us = u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX);
                // On an error the door closes and the clone exits by itself.
                id_map.write(pid).map_err(at(map_step(id_map)))?;
                Ok(Self { id_map: id_map.clone(), pidfd, clone_us, door })
            }
            Cloned::Child => {
                drop((door, cgroup));
                wait_at_door(&inside, filter, guest)
            }
        }
    }

    /// Forwards the request unchanged, with the guest's stream, the report socket and the folders.
    fn hand(&self, request: &[u8], fds: &InheritedFds) -> Result<(), JailError> {
        let announced = Message::Cloned { clone_us: self.clone_us };
        let mut all = vec![fds.stream.as_fd(), fds.report.as_fd()];
        all.extend(fds.folders.iter().map(AsFd::as_fd));
        report::send(fds.report.as_fd(), &announced, Some(self.pidfd.as_fd()))
            .and_then(|()| report::send_with_descriptors(self.door.as_fd(), request, &all))
            .map_err(|error| JailError::new("hand over", &error))
    }
}

/// What a clone does until its plan arrives. A closed door means that it is not needed.
fn wait_at_door(door: &OwnedFd, filter: &Filter, guest: GuestMain) -> ! {
    let mut bytes = vec![0_u8; PLAN_BYTES_MAX];
    let Ok((length @ 1.., descriptors)) = report::receive_with_descriptors(door.as_fd(), &mut bytes) else {
        exit(0)
    };
    let mut descriptors = descriptors.into_iter();
    let (Ok(Request::Jail(plan)), Some(stream), Some(report)) =
        (postcard::from_bytes::<Request>(&bytes[..length]), descriptors.next(), descriptors.next())
    else {
        exit(1)
    };
    become_guest(&plan, filter, InheritedFds { stream, report, folders: descriptors.collect() }, guest)
}

/// Answers one request for a jail: with the clone made ahead, if it fits, else with a new one.
fn answer(
    plan: &JailPlan,
    request: &[u8],
    descriptors: Vec<OwnedFd>,
    head_start: Option<Head>,
    clone: impl FnOnce(&JailPlan) -> Result<Head, JailError>,
) {
    let Ok([stream, report]) = <[OwnedFd; 2]>::try_from(descriptors) else { return };
    let fits = |head: &Head| head.id_map == plan.id_map && plan.unified_cgroup.is_none();
    let mut fds = InheritedFds { stream, report, folders: Vec::new() };
    let folders = folders::hand_over(plan).map_err(|error| JailError::new("folders", &error));
    let handed = folders.and_then(|folders| {
        fds.folders = folders;
        head_start.filter(fits).map_or_else(|| clone(plan), Ok)?.hand(request, &fds)
    });
    if let Err(error) = handed {
        // If the server is gone, no process waits for this report.
        report::send(fds.report.as_fd(), &Message::Failed(error), None).ok();
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

/// Ends process 1 after its stream has ended. The guest has killed everything else. Usually the server kills
/// this process too. If the server is gone, many sandboxes end at this moment. Each frees a compiled filter,
/// and thousands of those at once deadlock the kernel, so each sandbox waits its own time.
pub(crate) fn leave(plan: &JailPlan, status: i32) -> ! {
    std::thread::sleep(Duration::from_millis(u64::from(plan.linger_ms)));
    exit(status)
}

/// Moves the received descriptors to high numbers, and puts a second report socket where no step closes it.
pub(crate) fn settle(fds: InheritedFds) -> io::Result<(InheritedFds, OwnedFd)> {
    let away = |descriptor: OwnedFd| rustix::io::fcntl_dupfd_cloexec(descriptor, 64).map_err(io::Error::from);
    let (stream, report) = (away(fds.stream)?, away(fds.report)?);
    let folders = fds.folders.into_iter().map(away).collect::<io::Result<_>>()?;
    let failures = sys::place(report.try_clone()?, raise::FAILURES_FD)?;
    Ok((InheritedFds { stream, report, folders }, failures))
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}
