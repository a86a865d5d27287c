//! A zygote: a process behind a wall of its own that carries a warm interpreter, and from which sandboxes are cloned.
//!
//! The spawner clones it into namespaces of its own, in which it is nobody outside; it makes the root that its sandboxes
//! will share, read-only, and becomes the interpreter by exec. The interpreter loads what it will need and this very code
//! as a library, and calls [`serve_zygote`]. For each request the process clones itself; the clone makes its own what
//! sandboxes do not share ([`raise::raise_in_zygote`]) and becomes the guest, and when the guest is told to open the
//! interpreter it forks instead: that copy returns from [`serve_zygote`] into the interpreter, behind every wall.
//!
//! No program is ever sent to a zygote, and it has no connection to any sandbox once that stands. Its end is the end of its
//! sandboxes; it ends by itself when its requests have ended and the last of them is gone.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use rustix::io::FdFlags;
use rustix::pipe::PipeFlags;

use crate::breach;
use crate::identity::ZYGOTE_ID;
use crate::raise::{self, InheritedFds, Steps};
use crate::report::{self, JailError, Message};
use crate::root::{self, Root};
use crate::seccomp::Filter;
use crate::spawner::{Enclosed, PLAN_BYTES_MAX, Request, ask, exit, leave, namespaces, settle};
use crate::sys::{self, ChildFlags, Cloned, Dispositions, Namespace};
use crate::{Bind, JailPlan, ZygotePlan, identity, privileges, procfs};

/// Where a zygote finds its requests and its library.
const REQUESTS_FD: i32 = 3;
const LIBRARY_FD: i32 = 4;

/// What a zygote is given.
pub struct ZygoteFds {
    /// Its end of the socket for requests.
    pub requests: OwnedFd,
    /// This crate and the guest as a library that its interpreter can load.
    pub library: OwnedFd,
    /// Where it reports while its wall is raised.
    pub report: OwnedFd,
}

/// How a guest was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The sandbox is over; the exit status of its process 1.
    Ended(i32),
    /// This process is a copy that becomes the interpreter.
    AsInterpreter,
}

/// What a clone of a zygote may be handed that it would make itself otherwise, or cannot reach.
#[derive(Debug, Default)]
pub struct Handover<T> {
    /// The mount of a workspace, where the zygote cannot reach it.
    pub workspace: Option<T>,
    /// A network namespace of an earlier clone of this zygote, in which nothing happened and nobody is.
    pub network: Option<T>,
}

impl Handover<OwnedFd> {
    /// Out of the low numbers, before anything is put there.
    fn away(self) -> io::Result<Self> {
        let away = |descriptor: OwnedFd| rustix::io::fcntl_dupfd_cloexec(descriptor, 64);
        Ok(Self {
            workspace: self.workspace.map(away).transpose()?,
            network: self.network.map(away).transpose()?,
        })
    }
}

/// A handle on a zygote: the server's end of its requests.
#[derive(Debug)]
pub struct Zygote {
    requests: OwnedFd,
}

impl Zygote {
    /// A zygote whose requests are taken from the other end.
    pub fn new(requests: OwnedFd) -> Self {
        Self { requests }
    }

    /// Where it says that it is ready ([`Message::Ready`]).
    pub fn socket(&self) -> &OwnedFd {
        &self.requests
    }

    /// Asks for one jail, as [`crate::Spawner::spawn`] does, with what it is to take over.
    pub fn spawn(
        &self,
        plan: &JailPlan,
        stream: &OwnedFd,
        report: &OwnedFd,
        handover: Handover<&OwnedFd>,
    ) -> io::Result<()> {
        // What they have in common is there already.
        let own = JailPlan { binds: Vec::new(), symlinks: Vec::new(), files: Vec::new(), ..plan.clone() };
        let enclosed =
            Enclosed { workspace: handover.workspace.is_some(), network: handover.network.is_some() };
        let all = [stream, report].into_iter().chain(handover.workspace).chain(handover.network);
        let descriptors: Vec<_> = all.map(AsFd::as_fd).collect();
        ask(self.requests.as_fd(), &Request::Clone(Box::new(own), enclosed), &descriptors)
    }
}

/// The spawner's part: clones the process that becomes the zygote.
pub(crate) fn start_zygote(plan: &ZygotePlan, descriptors: Vec<OwnedFd>) {
    let Ok([requests, library, report]) = <[OwnedFd; 3]>::try_from(descriptors) else { return };
    let fds = ZygoteFds { requests, library, report };
    if let Err(error) = clone_zygote(plan, &fds) {
        // The server may be gone; then nobody waits for this.
        report::send(fds.report.as_fd(), &Message::Failed(error), None).ok();
    }
}

fn clone_zygote(plan: &ZygotePlan, fds: &ZygoteFds) -> Result<(), JailError> {
    let at = |step: &'static str| move |error: io::Error| JailError::new(step, &error);
    let (mapped, tell_mapped) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| JailError::new("pipe", &error.into()))?;
    let started = Instant::now();
    match sys::clone_into_walls(ChildFlags::new(namespaces()), None).map_err(at("clone"))? {
        Cloned::Parent(pid, pidfd) => {
            let clone_us = u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX);
            // On an error the pipe closes and the clone ends by itself.
            plan.ids.write(pid).map_err(at("id maps"))?;
            rustix::io::write(&tell_mapped, &[1]).map_err(|error| JailError::new("pipe", &error.into()))?;
            let announced = Message::Cloned { clone_us };
            report::send(fds.report.as_fd(), &announced, Some(pidfd.as_fd())).map_err(at("report"))
        }
        Cloned::Child => {
            drop(tell_mapped);
            let mut word = [0_u8; 1];
            if !matches!(rustix::io::read(&mapped, &mut word), Ok(1)) {
                exit(1)
            }
            drop(mapped);
            let Err(error) = become_zygote(plan, fds);
            report::send(fds.report.as_fd(), &Message::Failed(error), None).ok();
            exit(1)
        }
    }
}

/// Raises the wall of a zygote, by the zygote itself, and becomes its interpreter.
fn become_zygote(plan: &ZygotePlan, fds: &ZygoteFds) -> Result<Infallible, JailError> {
    let mut steps = Steps::start();
    sys::reset_signals();
    let wall = &plan.wall;
    let sources = steps.take("bind sources", || root::open_sources(&wall.binds))?;
    let workspaces = plan.workspaces.as_ref().map(|path| Bind::in_place(path.clone(), false));
    let workspaces = steps.take("workspaces", || root::open_sources(workspaces.as_slice()))?;
    steps.take("identity", || identity::take(ZYGOTE_ID, plan.ids.is_single()))?;
    steps.take("visible to the host", privileges::be_visible_to_host)?;
    let root = steps.take("root", Root::new)?;
    steps.take("places", || root.places(wall))?;
    // Packages may want to write something when they are loaded. No sandbox sees it.
    steps.take("scratch", || root.scratch(&wall.scratch))?;
    steps.take("workspaces", || workspaces.into_iter().try_for_each(|source| root.workspaces(source)))?;
    steps.take("binds", || root.binds(sources))?;
    steps.take("files", || root.files(wall))?;
    steps.take("devices", || root.devices())?;
    steps.take("procfs", || root.bare_procfs().map(drop))?;
    steps.take("cgroups", sys::unshare_cgroup_namespace)?;
    steps.take("host name", || privileges::set_hostname(&wall.hostname))?;
    steps.take("pivot", || root.enter())?;
    // Over its own namespaces, in which its clones raise their walls.
    steps.take("privileges", privileges::keep_over_exec)?;
    steps.take("parent death", privileges::die_with_parent)?;
    let program = steps.take("descriptors", || prepare_exec(plan, fds))?;
    steps.take("interpreter", || Err(become_program(program)))
}

/// Its streams are ends of pipes, as those of its copies will be: what an interpreter finds out about them stays true.
fn prepare_exec(plan: &ZygotePlan, fds: &ZygoteFds) -> io::Result<Command> {
    let away = |descriptor: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(descriptor, 64);
    let (requests, library) = (away(&fds.requests)?, away(&fds.library)?);
    let (input, no_writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (_no_reader, output) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    drop(no_writer);
    rustix::stdio::dup2_stdin(&input)?;
    rustix::stdio::dup2_stdout(&output)?;
    rustix::stdio::dup2_stderr(&output)?;
    // The report socket may be at one of these numbers: it was moved away by who received it, or is not needed any more.
    for (descriptor, number) in [(requests, REQUESTS_FD), (library, LIBRARY_FD)] {
        let placed = sys::place(descriptor, number)?;
        rustix::io::fcntl_setfd(&placed, FdFlags::empty())?;
        std::mem::forget(placed);
    }
    let (program, arguments) = plan.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(plan.env.iter().map(|(name, value)| (name, value)));
    breach::pass_on(&mut command);
    Ok(command)
}

fn become_program(mut command: Command) -> io::Error {
    command.exec()
}

/// Serves requests for sandboxes, in the interpreter's process, until they end: then gives back the exit status.
/// Returns too, with [`Left::AsInterpreter`], in each copy that a guest was told to make.
pub fn serve_zygote(requests: OwnedFd, guest: fn(OwnedFd, OwnedFd) -> Left) -> Left {
    let before = Dispositions::save();
    let arguments = sys::Arguments::find();
    // Here, and not in every clone.
    sys::reset_signals();
    sys::ignore_child_signal();
    let filter = Filter::compile();
    procfs::look_at_procfs().ok();
    sys::fill_heap();
    let mut bytes = vec![0_u8; PLAN_BYTES_MAX];
    let mut is_first = true;
    if report::send(requests.as_fd(), &Message::Ready, None).is_err() {
        return Left::Ended(1);
    }
    loop {
        let (length, descriptors) = match report::receive_with_descriptors(requests.as_fd(), &mut bytes) {
            Ok((0, _)) => break,
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Left::Ended(1),
        };
        let mut descriptors = descriptors.into_iter();
        let (Ok(Request::Clone(plan, enclosed)), Some(stream), Some(report)) =
            (postcard::from_bytes::<Request>(&bytes[..length]), descriptors.next(), descriptors.next())
        else {
            continue;
        };
        let workspace = enclosed.workspace.then(|| descriptors.next()).flatten();
        let network = enclosed.network.then(|| descriptors.next()).flatten();
        if std::mem::take(&mut is_first) && prepare_to_clone(&plan).is_err() {
            return Left::Ended(1);
        }
        match clone_sandbox(&report, network.is_none()) {
            Ok(Cloned::Parent(..)) => {}
            Ok(Cloned::Child) => {
                // Its number is the stream's from now on.
                std::mem::forget(requests);
                // Process 1 shows nothing of how it came to be; the interpreter does, as any program.
                arguments.iter().for_each(sys::Arguments::hide);
                let handover = Handover { workspace, network };
                become_guest(&plan, &filter, (InheritedFds { stream, report }, handover), guest);
                arguments.iter().for_each(sys::Arguments::show);
                before.restore();
                return Left::AsInterpreter;
            }
            Err(error) => drop(report::send(report.as_fd(), &Message::Failed(error), None)),
        }
    }
    sys::wait_for_children();
    Left::Ended(0)
}

/// What a zygote does when it knows for what: all its clones are alike in that.
fn prepare_to_clone(plan: &JailPlan) -> io::Result<()> {
    if plan.memory_counted {
        // Where each process is measured instead, every clone would be told that it uses them.
        sys::enlarge_program();
    }
    INTERPRETER_MEMORY.get_or_init(sys::InterpreterMemory::find);
    // Its own writable space is in the way of those of its clones, and of nobody's use any more: none may find it.
    Root::of_zygote()?.leave_scratch(&plan.scratch)
}

/// What a clone carries only for its copy.
static INTERPRETER_MEMORY: OnceLock<sys::InterpreterMemory> = OnceLock::new();

/// In a clone that will make no copy any more, before a program comes: gives back the interpreter's memory, which it would
/// have to give back when it dies, and then others wait for that.
pub fn let_go_of_interpreter() {
    INTERPRETER_MEMORY.get().into_iter().for_each(sys::InterpreterMemory::drop);
}

/// In the clone this returns at once; the zygote announces it.
fn clone_sandbox(report: &OwnedFd, with_network: bool) -> Result<Cloned, JailError> {
    let at = |step: &'static str| move |error: io::Error| JailError::new(step, &error);
    let started = Instant::now();
    let new = namespaces().filter(|namespace| with_network || *namespace != Namespace::Network);
    let cloned = sys::clone_into_walls(ChildFlags::of_zygote(new), None).map_err(at("clone"))?;
    if let Cloned::Parent(_, pidfd) = &cloned {
        let clone_us = u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX);
        let announced = Message::Cloned { clone_us };
        report::send(report.as_fd(), &announced, Some(pidfd.as_fd())).map_err(at("report"))?;
    }
    Ok(cloned)
}

/// Comes back only in the copy that becomes the interpreter.
fn become_guest(
    plan: &JailPlan,
    filter: &Filter,
    (fds, handover): (InheritedFds, Handover<OwnedFd>),
    guest: fn(OwnedFd, OwnedFd) -> Left,
) {
    sys::heed_child_signal();
    let (Ok(handover), Ok((fds, failures))) = (handover.away(), settle(fds)) else { exit(1) };
    match raise::raise_in_zygote(plan, filter, fds, handover) {
        Ok((stream, report)) => {
            drop(failures);
            if let Left::Ended(status) = guest(stream, report) {
                leave(plan, status)
            }
        }
        Err(error) => {
            report::send(failures.as_fd(), &Message::Failed(error), None).ok();
            exit(1)
        }
    }
}
