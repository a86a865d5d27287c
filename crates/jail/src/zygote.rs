//! A zygote: a process behind its own walls that carries a warm interpreter, and from which sandboxes are
//! cloned.
//!
//! 1. The spawner clones it into new namespaces. Its identity there has no rights outside.
//! 2. It builds the root that its sandboxes will share, read-only, and becomes the interpreter by exec.
//! 3. The interpreter loads its packages and this code as a library, and calls [`serve_zygote`].
//! 4. For each request the process clones itself. The clone replaces the parts that sandboxes do not share
//!    ([`raise::raise_in_zygote`]) and becomes the guest.
//! 5. When the guest is told to open the interpreter, it forks instead. That copy returns from
//!    [`serve_zygote`] into the interpreter, behind every wall.
//!
//! No program is ever sent to a zygote process, and it has no connection to any sandbox once that sandbox is
//! built. When it ends, its sandboxes end. It ends by itself when its request socket is closed and its last
//! sandbox is gone.

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

/// The numbers of a zygote's request socket and its library.
const REQUESTS_FD: i32 = 3;
const LIBRARY_FD: i32 = 4;

/// The file descriptors that a zygote process receives.
pub struct ZygoteFds {
    /// Its end of the request socket.
    pub requests: OwnedFd,
    /// This crate and the guest as a library that its interpreter can load.
    pub library: OwnedFd,
    /// Where it reports while its walls are raised.
    pub report: OwnedFd,
}

/// How a guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The sandbox has ended; the exit status of its process 1.
    Ended(i32),
    /// This process is a copy that becomes the interpreter.
    AsInterpreter,
}

/// Resources passed to a clone of a zygote process, which it would otherwise create itself or cannot reach.
#[derive(Debug, Default)]
pub struct Handover<T> {
    /// The mount of a workspace, if the zygote process cannot reach it.
    pub workspace: Option<T>,
    /// A network namespace of an earlier clone of this zygote, which is unused and has no processes.
    pub network: Option<T>,
}

impl Handover<OwnedFd> {
    /// Moves the descriptors to high numbers, before the low ones are assigned.
    fn away(self) -> io::Result<Self> {
        let away = |descriptor: OwnedFd| rustix::io::fcntl_dupfd_cloexec(descriptor, 64);
        Ok(Self {
            workspace: self.workspace.map(away).transpose()?,
            network: self.network.map(away).transpose()?,
        })
    }
}

/// A handle on a zygote process: the server's end of its request socket.
#[derive(Debug)]
pub struct Zygote {
    requests: OwnedFd,
}

impl Zygote {
    /// A zygote process that reads its requests from the other end.
    pub fn new(requests: OwnedFd) -> Self {
        Self { requests }
    }

    /// The socket on which it reports that it is ready ([`Message::Ready`]).
    pub fn socket(&self) -> &OwnedFd {
        &self.requests
    }

    /// Requests one jail, as [`crate::Spawner::spawn`] does, with the resources handed over to it.
    pub fn spawn(
        &self,
        plan: &JailPlan,
        stream: &OwnedFd,
        report: &OwnedFd,
        handover: Handover<&OwnedFd>,
    ) -> io::Result<()> {
        // The parts that all sandboxes have in common are in the zygote's root already.
        let none = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (binds, symlinks, files, directories) = none;
        let own = JailPlan { binds, symlinks, files, directories, ..plan.clone() };
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
        // If the server is gone, no process waits for this report.
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
            // On an error the pipe closes and the clone exits by itself.
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

/// Raises the walls of a zygote process, from within, and becomes its interpreter.
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
    // Packages may write files while they are loaded. No sandbox sees them.
    steps.take("scratch", || root.scratch(&wall.scratch))?;
    steps.take("workspaces", || workspaces.into_iter().try_for_each(|source| root.workspaces(source)))?;
    steps.take("binds", || root.binds(sources))?;
    steps.take("files", || root.files(wall))?;
    steps.take("devices", || root.devices())?;
    steps.take("procfs", || root.bare_procfs().map(drop))?;
    steps.take("cgroups", sys::unshare_cgroup_namespace)?;
    steps.take("host name", || privileges::set_hostname(&wall.hostname))?;
    steps.take("pivot", || root.enter())?;
    // Privileges over its own namespaces, in which its clones raise their walls.
    steps.take("privileges", privileges::keep_over_exec)?;
    steps.take("parent death", privileges::die_with_parent)?;
    let program = steps.take("descriptors", || prepare_exec(plan, fds))?;
    steps.take("interpreter", || Err(become_program(program)))
}

/// Its standard streams are ends of pipes, as those of its copies will be, so that what an interpreter
/// determines about its streams stays true.
fn prepare_exec(plan: &ZygotePlan, fds: &ZygoteFds) -> io::Result<Command> {
    let away = |descriptor: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(descriptor, 64);
    let (requests, library) = (away(&fds.requests)?, away(&fds.library)?);
    let (input, no_writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (_no_reader, output) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    drop(no_writer);
    rustix::stdio::dup2_stdin(&input)?;
    rustix::stdio::dup2_stdout(&output)?;
    rustix::stdio::dup2_stderr(&output)?;
    // The report socket may have one of these numbers. Its receiver has moved it away, or it is not needed
    // any more.
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

/// Serves requests for sandboxes, in the interpreter's process, until the socket is closed; then returns the
/// exit status. It also returns, with [`Left::AsInterpreter`], in each copy that a guest was told to make.
pub fn serve_zygote(requests: OwnedFd, guest: fn(OwnedFd, OwnedFd) -> Left) -> Left {
    let before = Dispositions::save();
    let arguments = sys::Arguments::find();
    // Done once here instead of in every clone.
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
                // Its number belongs to the stream from now on.
                std::mem::forget(requests);
                // Process 1 does not show the command line that started it. The interpreter does, like any
                // program.
                arguments.iter().for_each(sys::Arguments::hide);
                let handover = Handover { workspace, network };
                become_guest(
                    &plan,
                    &filter,
                    (InheritedFds { stream, report, folders: Vec::new() }, handover),
                    guest,
                );
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

/// Preparation of a zygote process after its first request arrived: all its clones are alike in what it
/// depends on.
fn prepare_to_clone(plan: &JailPlan) -> io::Result<()> {
    if plan.memory_counted {
        // Where each process is measured instead, these pages would be charged to every clone.
        sys::enlarge_program();
    }
    INTERPRETER_MEMORY.get_or_init(sys::InterpreterMemory::find);
    // The zygote's own writable space occupies the paths where its clones attach theirs. It is not used any
    // more, and no clone may find it.
    Root::of_zygote()?.leave_scratch(&plan.scratch)
}

/// Memory that a clone carries only for its copy.
static INTERPRETER_MEMORY: OnceLock<sys::InterpreterMemory> = OnceLock::new();

/// Called in a clone that will make no further copy, before a program arrives. It releases the interpreter's
/// memory. The clone would otherwise release it when it dies, and a caller would wait for that.
pub fn let_go_of_interpreter() {
    INTERPRETER_MEMORY.get().into_iter().for_each(sys::InterpreterMemory::drop);
}

/// Returns immediately in the clone; the zygote process announces it.
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

/// Returns only in the copy that becomes the interpreter.
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
