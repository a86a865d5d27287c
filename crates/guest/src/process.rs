//! One program inside the sandbox with its four channels: standard input, output, error, and the driver's
//! socket. Instead of the first three a program may have a terminal ([`crate::terminal`]).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use wire::{CHUNK_BYTES_MAX, FromGuest, OpenProcess, Stream, WindowSize};

use crate::stdin::{self, Stdin};
use crate::waiting::{self, FileId, Look};
use crate::{sys, terminal};

/// Maximum number of bytes in flight to a driver: the longest program, its variables and arguments.
const CONTROL_BYTES_MAX: usize = 16 << 20;
/// Maximum number of bytes still read from one channel after its program ended, in case a daemon keeps
/// writing.
const DRAIN_BYTES_MAX: usize = 1 << 20;

/// A channel of a process that poll reports on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdin,
    Stdout,
    Stderr,
    ControlIn,
    ControlOut,
}

pub(crate) struct Process {
    pid: Pid,
    stdin: Stdin,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    control: Option<OwnedFd>,
    control_waiting: VecDeque<u8>,
    /// The driver's end of the control socket.
    channel: Option<FileId>,
}

impl Process {
    /// Starts a program with pipes or a terminal for its streams, and a driver with a socket as file descriptor 3.
    /// With `forks` it makes a copy of this process with those instead; `None` is returned in the copy.
    pub(crate) fn start(open: &OpenProcess, forks: bool) -> io::Result<Option<Self>> {
        let (Streams { stdin, stdout, stderr }, mut theirs) = match open.terminal {
            Some(size) => Streams::terminal(size)?,
            None => Streams::pipes()?,
        };
        let (mut control, mut channel_id) = (None, None);
        if open.has_channel {
            let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
            let (ours, channel) = rustix::net::socketpair(kind.0, kind.1, kind.2, None)?;
            channel_id = Some(FileId::of(&channel)?);
            theirs.push(channel);
            control = Some(ours);
        }
        // Only the guest's ends: a program may rely on blocking streams.
        for descriptor in [&stdin, &stdout].into_iter().chain(&stderr).chain(&control) {
            rustix::io::ioctl_fionbio(descriptor, true)?;
        }
        let started = if forks { sys::copy(open, theirs)? } else { Some(sys::start(open, &theirs)?) };
        let Some(pid) = started else {
            std::mem::forget((stdin, stdout, stderr, control));
            return Ok(None);
        };
        Ok(Some(Self {
            pid,
            stdin: Stdin::new(stdin),
            stdout: Some(stdout),
            stderr,
            control,
            control_waiting: VecDeque::new(),
            channel: channel_id,
        }))
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Channels to poll. Nothing is read from the program while the host has no room.
    pub(crate) fn interests(
        &self,
        host_has_room: bool,
    ) -> impl Iterator<Item = (Channel, BorrowedFd<'_>, PollFlags)> + '_ {
        let stdin = self.stdin.interest();
        let control_out = self.control.as_ref().filter(|_| !self.control_waiting.is_empty());
        let read = |descriptor: &'_ Option<OwnedFd>| host_has_room && descriptor.is_some();
        let outputs = [
            (Channel::ControlOut, control_out, PollFlags::OUT),
            (Channel::Stdout, self.stdout.as_ref().filter(|_| read(&self.stdout)), PollFlags::IN),
            (Channel::Stderr, self.stderr.as_ref().filter(|_| read(&self.stderr)), PollFlags::IN),
            (Channel::ControlIn, self.control.as_ref().filter(|_| read(&self.control)), PollFlags::IN),
        ];
        let outputs = outputs.into_iter().filter_map(|(channel, descriptor, flags)| {
            descriptor.map(|found| (channel, found.as_fd(), flags))
        });
        stdin.map(|found| (Channel::Stdin, found, PollFlags::OUT)).into_iter().chain(outputs)
    }

    /// Queues bytes for the driver. More than the maximum is an error of the host, and they are dropped.
    pub(crate) fn send_control(&mut self, data: Vec<u8>) {
        if self.control_waiting.len() + data.len() <= CONTROL_BYTES_MAX {
            self.control_waiting.extend(data);
            self.flush_control();
        }
    }

    pub(crate) fn flush_control(&mut self) {
        stdin::flush(&mut self.control, &mut self.control_waiting);
    }

    pub(crate) fn stdin(&mut self) -> &mut Stdin {
        &mut self.stdin
    }

    /// Changes the size of its terminal. A process with pipes has none, and the kernel refuses.
    pub(crate) fn resize(&self, size: WindowSize) {
        if let Some(terminal) = &self.stdout {
            terminal::resize(terminal, size).ok();
        }
    }

    pub(crate) fn signal(&mut self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            // The process may have ended in this instant; its end is reported in any case.
            rustix::process::kill_process_group(self.pid, signal).ok();
        }
    }

    /// Resumes the process if it is stopped; otherwise the kernel ignores the signal. Only the process itself
    /// is resumed: processes that a program itself stopped stay stopped.
    pub(crate) fn let_go_on(&self) {
        rustix::process::kill_process(self.pid, Signal::CONT).ok();
    }

    /// Whether it reads its input: it is not stopped, or has read everything before it was stopped.
    pub(crate) fn hears(&self) -> bool {
        let is_unread = !self.control_waiting.is_empty() || self.control.as_ref().is_some_and(sys::is_unread);
        !(is_unread && is_stopped(self.pid))
    }

    /// Whether it waits for the next message to its driver, as far as that can be observed.
    pub(crate) fn look(&self) -> Look {
        self.channel.map_or(Look::Busy, |channel| waiting::look(self.pid, channel))
    }

    /// Reads one piece of a channel as a message for the host; a channel at its end is closed.
    pub(crate) fn read(&mut self, number: u32, channel: Channel) -> Option<FromGuest> {
        let (slot, wrap): (_, fn(u32, Vec<u8>) -> FromGuest) = match channel {
            Channel::Stdout => (&mut self.stdout, |process, data| FromGuest::Output {
                process,
                stream: Stream::Stdout,
                data,
            }),
            Channel::Stderr => (&mut self.stderr, |process, data| FromGuest::Output {
                process,
                stream: Stream::Stderr,
                data,
            }),
            Channel::ControlIn => (&mut self.control, |process, data| FromGuest::Control { process, data }),
            Channel::Stdin | Channel::ControlOut => return None,
        };
        let descriptor = slot.as_ref()?;
        // Unwritten capacity costs no memory.
        let mut data = Vec::with_capacity(CHUNK_BYTES_MAX);
        match rustix::io::read(descriptor, rustix::buffer::spare_capacity(&mut data)) {
            Ok(0) => {
                *slot = None;
                None
            }
            Ok(_) => Some(wrap(number, data)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => None,
            Err(_) => {
                *slot = None;
                None
            }
        }
    }

    /// Everything that is in the pipes now, up to a bound.
    pub(crate) fn drain(&mut self, number: u32) -> Vec<FromGuest> {
        self.drain_of(number, &[Channel::Stdout, Channel::Stderr, Channel::ControlIn])
    }

    /// All output that is in the pipes now, up to a bound.
    pub(crate) fn drain_output(&mut self, number: u32) -> Vec<FromGuest> {
        self.drain_of(number, &[Channel::Stdout, Channel::Stderr])
    }

    /// The next message of the driver. It is read first; the output written before it is in the pipes by
    /// then. A host that receives the end of a run has therefore received all of its output.
    pub(crate) fn hear_driver(&mut self, number: u32) -> Vec<FromGuest> {
        let Some(said) = self.read(number, Channel::ControlIn) else { return Vec::new() };
        let mut messages = self.drain_output(number);
        messages.push(said);
        messages
    }

    fn drain_of(&mut self, number: u32, channels: &[Channel]) -> Vec<FromGuest> {
        let mut messages = Vec::new();
        for channel in channels.iter().copied() {
            let mut pieces = 0;
            while let Some(message) = self.read(number, channel) {
                messages.push(message);
                pieces += 1;
                if pieces * CHUNK_BYTES_MAX >= DRAIN_BYTES_MAX {
                    break;
                }
            }
        }
        messages
    }
}

/// Whether a child is stopped. The child stays waitable. See waitid(2), WNOWAIT.
fn is_stopped(pid: Pid) -> bool {
    let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(rustix::process::waitid(WaitId::Pid(pid), look), Ok(Some(_)))
}

/// The guest's ends of the standard streams.
struct Streams {
    stdin: OwnedFd,
    stdout: OwnedFd,
    /// `None` if it is the same as standard output.
    stderr: Option<OwnedFd>,
}

impl Streams {
    /// Three pipes, and the ends of the program.
    fn pipes() -> io::Result<(Self, Vec<OwnedFd>)> {
        let (stdin_theirs, stdin) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, stdout_theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, stderr_theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self { stdin, stdout, stderr: Some(stderr) }, vec![stdin_theirs, stdout_theirs, stderr_theirs]))
    }

    /// A terminal, and the end of the program three times.
    fn terminal(size: WindowSize) -> io::Result<(Self, Vec<OwnedFd>)> {
        let (ours, theirs) = terminal::open(size)?;
        let again = |descriptor: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(descriptor, 0);
        let streams = Self { stdin: again(&ours)?, stdout: ours, stderr: None };
        Ok((streams, vec![again(&theirs)?, again(&theirs)?, theirs]))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use wire::Fork;

    use super::*;

    /// Waits until the process is stopped, or resumed.
    fn until_stopped(process: &Process, wanted: bool) {
        while is_stopped(process.pid) != wanted {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_stopped_process_does_not_hear_until_it_goes_on() {
        let argv = ["/bin/sh", "-c", "read -r line <&3; echo \"$line\"; read -r line <&3"];
        let open = OpenProcess {
            process: 1,
            after: 0,
            argv: argv.map(str::to_owned).to_vec(),
            env: Vec::new(),
            cwd: "/".to_owned(),
            has_channel: true,
            fork: Fork::Never,
            terminal: None,
        };
        let mut process = Process::start(&open, false).unwrap().unwrap();
        process.signal(libc::SIGSTOP);
        until_stopped(&process, true);
        assert!(process.hears(), "nothing was said");
        process.send_control(b"word\n".to_vec());
        assert!(!process.hears());
        process.let_go_on();
        let heard = loop {
            if let Some(heard) = process.read(1, Channel::Stdout) {
                break heard;
            }
            std::thread::yield_now();
        };
        assert!(matches!(heard, FromGuest::Output { data, .. } if data == b"word\n"));
        // Stopped after it has read its message: that is the program's own decision.
        process.signal(libc::SIGSTOP);
        until_stopped(&process, true);
        assert!(process.hears());
        process.signal(libc::SIGKILL);
    }

    /// A shell that runs `script`, with a channel as a driver has it.
    pub(crate) fn shell(script: &str) -> Process {
        let open = OpenProcess {
            process: 1,
            after: 0,
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: Vec::new(),
            cwd: "/".to_owned(),
            has_channel: true,
            fork: Fork::Never,
            terminal: None,
        };
        Process::start(&open, false).unwrap().unwrap()
    }

    fn until_seen(process: &Process, wanted: Look) {
        while process.look() != wanted {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_is_seen_to_wait_for_its_channel_and_for_nothing_else() {
        let mut process = shell("read -r line <&3; while [ ! -e /nowhere ]; do :; done");
        until_seen(&process, Look::Waits);
        process.send_control(b"word\n".to_vec());
        until_seen(&process, Look::Busy);
        for _ in 0..100 {
            assert_eq!(process.look(), Look::Busy, "it computes");
        }
        process.signal(libc::SIGKILL);
        let mut other = shell("read -r line <&3; read -r line");
        until_seen(&other, Look::Waits);
        other.send_control(b"word\n".to_vec());
        until_seen(&other, Look::Busy);
        for _ in 0..100 {
            assert_eq!(other.look(), Look::Busy, "it waits for something else");
        }
        other.signal(libc::SIGKILL);
    }

    #[test]
    fn a_thread_that_sleeps_is_told_from_one_that_does_not() {
        let process = shell("read -r line <&3");
        until_seen(&process, Look::Waits);
        let count = waiting::sleep_count(process.pid).unwrap();
        assert_eq!(waiting::sleep_count(process.pid), Some(count));
        process_ends(process);
        assert!(sys::can_look_at_children().is_some());
    }

    fn process_ends(mut process: Process) {
        process.signal(libc::SIGKILL);
        while waiting::sleep_count(process.pid).is_some() {
            std::thread::yield_now();
        }
    }
}
