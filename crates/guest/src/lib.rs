//! The agent inside a sandbox: starts programs, carries their streams, reads and writes workspace files.
//!
//! It is process 1 of the sandbox. It runs behind the same walls as the hostile program and with the same
//! user, so the host trusts nothing it reports. It has one thread and one poll loop ([`Guest::turn`]). Every
//! buffer has a maximum: when the host does not read, programs block on their pipes.

#[cfg(any(test, fuzzing))]
pub mod checks;
mod files;
mod host;
mod idle;
mod inputs;
mod links;
mod named_pipe;
mod process;
mod reading;
mod stdin;
mod sys;
mod terminal;
mod waiting;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use wire::{Exit, FailureKind, Fork, FromGuest, ListenAt, OpenProcess, ToGuest, VERSION};

use crate::host::Host;
use crate::idle::IdleQuestions;
use crate::links::{LinkReady, Links};
use crate::named_pipe::NamedPipes;
use crate::process::{Channel, Process};
use crate::reading::ReadQuestion;

/// Maximum number of open programs in one sandbox.
const PROCESSES_MAX: usize = 32;

/// The gate that the guest passes once the host has examined this process and consents: the socket to wait
/// on, and the action.
pub struct Gate {
    /// Readable when the host has answered.
    pub socket: OwnedFd,
    /// Processes the host's answer; an error ends the sandbox.
    pub accept: fn(OwnedFd) -> io::Result<()>,
}

/// A warm interpreter inside this process, as which a copy of the process can continue.
#[derive(Clone, Copy)]
pub struct Carried {
    /// Releases the memory that only the interpreter needs, once no further copy will be requested.
    pub let_go: fn(),
}

/// How [`run_in_interpreter`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The sandbox has ended; the exit status of process 1.
    Ended(i32),
    /// This process is a copy that continues as the interpreter, with its channel as file descriptor 3.
    AsInterpreter,
}

/// Serves the host on `stream` until it closes or orders a shutdown. Returns the exit status of process 1.
pub fn run(stream: OwnedFd, gate: Gate) -> i32 {
    status_of(serve(stream, Some(gate), None))
}

/// The same for a guest that needs no consent: it hid itself before, and the host can examine it all the same.
pub fn run_without_gate(stream: OwnedFd) -> i32 {
    status_of(serve(stream, None, None))
}

fn status_of(served: io::Result<Left>) -> i32 {
    match ended(served) {
        Left::Ended(status) => status,
        Left::AsInterpreter => 1,
    }
}

/// The same in a process that carries a warm interpreter, which is copied on request.
pub fn run_in_interpreter(stream: OwnedFd, gate: Gate, carried: Carried) -> Left {
    ended(serve(stream, Some(gate), Some(carried)))
}

/// The host has released the sandbox, or process 1 cannot continue. No program outlives that, though process
/// 1 may for a while.
fn ended(served: io::Result<Left>) -> Left {
    let left = served.unwrap_or(Left::Ended(1));
    if matches!(left, Left::Ended(_)) {
        sys::kill_rest();
    }
    left
}

fn serve(stream: OwnedFd, gate: Option<Gate>, interpreter: Option<Carried>) -> io::Result<Left> {
    let mut guest = Guest {
        interpreter,
        is_copy: false,
        host: Host::new(stream)?,
        gate,
        deaths: sys::watch_children()?,
        processes: BTreeMap::new(),
        refused_files: 0,
        idle: IdleQuestions::default(),
        links: Links::default(),
        pipes: NamedPipes::default(),
        reading: ReadQuestion::default(),
        ending: false,
    };
    guest.host.send(&FromGuest::Hello { version: VERSION })?;
    guest.host.flush()?;
    while !guest.ending {
        let turned = guest.turn();
        if guest.is_copy {
            // Its file descriptors are closed, and their numbers belong to the interpreter.
            std::mem::forget(guest);
            return Ok(Left::AsInterpreter);
        }
        turned?;
    }
    Ok(Left::Ended(0))
}

struct Guest {
    interpreter: Option<Carried>,
    /// Whether this process is the copy that becomes the interpreter.
    is_copy: bool,
    host: Host,
    /// Present until the host has consented.
    gate: Option<Gate>,
    /// Readable when a child died.
    deaths: OwnedFd,
    processes: BTreeMap<u32, Process>,
    /// The number of the last files of which one could not be placed; 0 if there are none.
    refused_files: u32,
    /// Processes about which the host wants to know when they become idle.
    idle: IdleQuestions,
    links: Links,
    /// Standard input of runs whose interpreter outlives them.
    pipes: NamedPipes,
    reading: ReadQuestion,
    ending: bool,
}

/// What became ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Host,
    Deaths,
    Gate,
    Process(u32, Channel),
    Links(LinkReady),
    Pipe(u32),
}

impl Guest {
    /// Waits for an event and handles it.
    fn turn(&mut self) -> io::Result<()> {
        let mut links = Vec::new();
        for (ready, flags) in self.wait()? {
            if self.is_copy {
                return Ok(());
            }
            match ready {
                Ready::Host => self.hear()?,
                Ready::Deaths => self.reap()?,
                Ready::Gate => self.pass_gate()?,
                Ready::Process(number, channel) => self.carry(number, channel)?,
                Ready::Pipe(number) => self.flush_pipe(number)?,
                Ready::Links(LinkReady::Listener(number)) => {
                    self.links.accept(number, self.processes.len(), &mut self.host)?;
                }
                Ready::Links(LinkReady::Link(number)) => links.push((number, flags)),
            }
        }
        if self.is_copy {
            return Ok(());
        }
        if !links.is_empty() {
            self.links.serve(links, &mut self.host)?;
        }
        self.idle.answer(&mut self.processes, &mut self.host)?;
        self.look_at_inputs()?;
        self.host.flush()
    }

    fn wait(&self) -> io::Result<Vec<(Ready, PollFlags)>> {
        let mut names = vec![Ready::Host, Ready::Deaths];
        let host_flags = if self.host.has_waiting() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut list = vec![
            PollFd::from_borrowed_fd(self.host.as_fd(), host_flags),
            PollFd::from_borrowed_fd(self.deaths.as_fd(), PollFlags::IN),
        ];
        if let Some(gate) = &self.gate {
            names.push(Ready::Gate);
            list.push(PollFd::from_borrowed_fd(gate.socket.as_fd(), PollFlags::IN));
        }
        let host_has_room = self.host.has_room();
        for (number, process) in &self.processes {
            for (channel, descriptor, flags) in process.interests(host_has_room) {
                names.push(Ready::Process(*number, channel));
                list.push(PollFd::from_borrowed_fd(descriptor, flags));
            }
        }
        for (number, stdin) in self.pipes.all_open() {
            names.extend(stdin.interest().map(|_| Ready::Pipe(number)));
            list.extend(stdin.interest().map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::OUT)));
        }
        let inputs = [self.pipes.pause(), self.reading.pause()].into_iter().flatten().min();
        let inputs = inputs.and_then(|pause| Timespec::try_from(pause).ok());
        let mut pause = sooner(self.idle.pause(), inputs);
        if !self.links.is_empty() {
            for (ready, descriptor, flags) in self.links.interests(host_has_room, self.processes.len()) {
                names.push(Ready::Links(ready));
                list.push(PollFd::from_borrowed_fd(descriptor, flags));
            }
            // A longer list is an error, see poll(2).
            list.truncate(links::descriptors_max());
            let rest = self.links.pause().and_then(|rest| Timespec::try_from(rest).ok());
            pause = sooner(pause, rest);
        }
        match rustix::event::poll(&mut list, pause.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = list.iter().zip(names).filter(|(polled, _)| !polled.revents().is_empty());
        Ok(ready.map(|(polled, name)| (name, polled.revents())).collect())
    }

    fn pass_gate(&mut self) -> io::Result<()> {
        self.gate.take().map_or(Ok(()), |gate| (gate.accept)(gate.socket))
    }

    fn hear(&mut self) -> io::Result<()> {
        if !self.host.fill()? {
            self.ending = true;
        }
        // An order is answered by a program, and what is held leaves with that.
        let mut has_order = false;
        while !self.is_copy
            && let Some(message) = self.host.next()?
        {
            match &message {
                ToGuest::Open(_) | ToGuest::Control { .. } => has_order = true,
                ToGuest::Listen { .. } => has_order = false,
                _ => {}
            }
            self.obey(message)?;
        }
        if !has_order {
            self.host.release();
        }
        Ok(())
    }

    fn obey(&mut self, message: ToGuest) -> io::Result<()> {
        match message {
            ToGuest::Open(OpenProcess { after, .. })
            | ToGuest::Control { after, .. }
            | ToGuest::Stdin { after, .. }
                if self.lacks_files(after) =>
            {
                Ok(())
            }
            ToGuest::Open(open) => self.open(&open),
            ToGuest::Control { process, data, .. } => self.with(process, |open| open.send_control(data)),
            ToGuest::Resize { process, size } => self.with(process, |open| open.resize(size)),
            ToGuest::Signal { process, signal } => self.with(process, |open| open.signal(signal)),
            ToGuest::Drain { request, process } => self.drain(request, process),
            ToGuest::Hears { request, process } => self.tell_whether_it_hears(request, process),
            ToGuest::AwaitIdle { request, process } => {
                self.idle.ask(request, process);
                Ok(())
            }
            ToGuest::KillRest => {
                sys::kill_rest();
                Ok(())
            }
            ToGuest::PutFile { request, .. }
            | ToGuest::Listen { request, .. }
            | ToGuest::OpenInput { request, .. }
                if self.lacks_files(request) =>
            {
                Ok(())
            }
            message @ (ToGuest::Stdin { .. }
            | ToGuest::StdinEnd { .. }
            | ToGuest::OpenInput { .. }
            | ToGuest::CloseInput { .. }
            | ToGuest::AwaitRead { .. }) => self.obey_about_input(message),
            ToGuest::Listen { request, listener, at } => self.listen(request, listener, &at),
            ToGuest::EndLinks { request } => {
                self.links.end();
                self.host.send(&FromGuest::Done { request })
            }
            ToGuest::Link { link, data } => self.links.receive(link, &data, &mut self.host),
            ToGuest::LinkTaken { link, bytes } => self.links.taken(link, bytes, &mut self.host),
            ToGuest::LinkEnd { link } => self.links.host_ended(link, &mut self.host),
            ToGuest::LinkClosed { link } => self.links.host_closed(link, &mut self.host),
            ToGuest::PutFile { request, path, append, data } => {
                self.note_placed(request, files::put(&path, append, &data))
            }
            ToGuest::ReadFile { request, path, offset, bytes } => {
                let data =
                    files::read(&path, offset, bytes).map(|data| FromGuest::FileData { request, data });
                self.answer(request, data)
            }
            ToGuest::ListFiles { request, entries_max } => self.list(request, entries_max),
            ToGuest::Shutdown => {
                self.ending = true;
                Ok(())
            }
        }
    }

    /// Answers only a failure, after which the orders that need these files are dropped.
    fn note_placed(&mut self, request: u32, placed: io::Result<()>) -> io::Result<()> {
        let Err(error) = placed else { return Ok(()) };
        self.refused_files = request;
        self.answer(request, Err(error))
    }

    /// Whether one of the files with that number could not be placed.
    fn lacks_files(&self, number: u32) -> bool {
        number != 0 && number == self.refused_files
    }

    /// Listens for programs. If that fails, the orders that need it are dropped as those that lack a file.
    fn listen(&mut self, request: u32, listener: u32, at: &ListenAt) -> io::Result<()> {
        match self.links.listen(listener, at) {
            // The host waits for the program, not for this.
            Ok(()) => self.host.hold(&FromGuest::Listening { request, listener }),
            Err(error) => {
                self.refused_files = request;
                let errno = error.raw_os_error().unwrap_or(0);
                self.host.send(&FromGuest::Failed { request, kind: FailureKind::Listen, errno })
            }
        }
    }

    fn open(&mut self, open: &OpenProcess) -> io::Result<()> {
        let number = open.process;
        if self.processes.len() >= PROCESSES_MAX || self.processes.contains_key(&number) {
            return self.host.send(&FromGuest::Failed {
                request: number,
                kind: FailureKind::Refused,
                errno: 0,
            });
        }
        let interpreter = self.interpreter.filter(|_| open.fork != Fork::Never);
        match Process::start(open, interpreter.is_some()) {
            Ok(Some(process)) => {
                self.processes.insert(number, process);
                if let Some(interpreter) = interpreter.filter(|_| open.fork == Fork::Once) {
                    self.interpreter = None;
                    (interpreter.let_go)();
                }
                Ok(())
            }
            Ok(None) => {
                self.is_copy = true;
                Ok(())
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                self.host.send(&FromGuest::Failed { request: number, kind: FailureKind::Start, errno })
            }
        }
    }

    /// Sends what was written before this request, and reports processes that died before it, before the
    /// answer. The answer precedes the effects of any later request.
    fn drain(&mut self, request: u32, number: u32) -> io::Result<()> {
        self.reap()?;
        if let Some(process) = self.processes.get_mut(&number) {
            process.let_go_on();
            for message in process.drain(number) {
                self.host.send(&message)?;
            }
        }
        self.host.send(&FromGuest::Done { request })?;
        self.host.flush()
    }

    /// A process that is gone counts as reading, because its end is about to be reported.
    fn tell_whether_it_hears(&mut self, request: u32, number: u32) -> io::Result<()> {
        let hears = self.processes.get(&number).is_none_or(Process::hears);
        let answer = if hears {
            FromGuest::Done { request }
        } else {
            FromGuest::Failed { request, kind: FailureKind::Refused, errno: 0 }
        };
        self.host.send(&answer)
    }

    /// Acts on an open process. A process that is gone already is no error, because its end is about to be
    /// reported.
    fn with(&mut self, number: u32, work: impl FnOnce(&mut Process)) -> io::Result<()> {
        if let Some(process) = self.processes.get_mut(&number) {
            work(process);
        }
        Ok(())
    }

    fn answer(&mut self, request: u32, result: io::Result<FromGuest>) -> io::Result<()> {
        let message = result.unwrap_or_else(|error| {
            let errno = error.raw_os_error().unwrap_or(0);
            let kind = if errno == 0 { FailureKind::Refused } else { FailureKind::File };
            FromGuest::Failed { request, kind, errno }
        });
        self.host.send(&message)
    }

    fn list(&mut self, request: u32, entries_max: u32) -> io::Result<()> {
        match files::list(entries_max) {
            Ok(entries) => {
                for part in entries.chunks(wire::LIST_ENTRIES_MAX) {
                    self.host.send(&FromGuest::Files { request, entries: part.to_vec() })?;
                }
                self.host.send(&FromGuest::Done { request })
            }
            Err(error) => self.answer(request, Err(error)),
        }
    }

    fn carry(&mut self, number: u32, channel: Channel) -> io::Result<()> {
        let Some(process) = self.processes.get_mut(&number) else { return Ok(()) };
        match channel {
            Channel::Stdin => {
                let bytes = process.stdin().flush();
                self.tell_taken(number, bytes)?;
            }
            Channel::ControlOut => process.flush_control(),
            Channel::Stdout | Channel::Stderr => {
                if let Some(message) = process.read(number, channel) {
                    self.host.send(&message)?;
                }
            }
            Channel::ControlIn => {
                for message in process.hear_driver(number) {
                    self.host.send(&message)?;
                }
            }
        }
        Ok(())
    }

    /// Reaps every dead child. Programs of the guest are reported; orphans that they left are only reaped.
    fn reap(&mut self) -> io::Result<()> {
        sys::acknowledge(&self.deaths);
        while let Some((pid, exit)) = sys::next_death()? {
            let found = self.processes.iter().find(|(_, process)| process.pid() == pid);
            if let Some(number) = found.map(|(number, _)| *number) {
                self.report_exit(number, exit)?;
            }
        }
        Ok(())
    }

    /// Sends what is left in the pipes, without waiting for a daemon that holds them open, then reports the
    /// end.
    fn report_exit(&mut self, number: u32, exit: Exit) -> io::Result<()> {
        let Some(mut process) = self.processes.remove(&number) else { return Ok(()) };
        for message in process.drain(number) {
            self.host.send(&message)?;
        }
        self.host.send(&FromGuest::Exited { process: number, exit })
    }
}

/// The shorter of two pauses, if there is any.
fn sooner(one: Option<Timespec>, other: Option<Timespec>) -> Option<Timespec> {
    [one, other].into_iter().flatten().min_by_key(|time| (time.tv_sec, time.tv_nsec))
}
