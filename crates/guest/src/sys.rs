//! Starts and reaps programs: the few kernel calls of the guest that no safe crate offers.
//!
//! The guest is single-threaded, so a forked child may run any code before it execs.
#![allow(unsafe_code, reason = "the fence: fork, exec, signal masks and waiting")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;
use rustix::process::Pid;
use wire::{Exit, OpenProcess};

/// When memory is short the kernel kills programs first, never the guest. See proc(5).
const OOM_SCORE_OF_PROGRAMS: &str = "1000";

/// System calls that wait for data from the file descriptor in their first argument.
pub(crate) const READS: [libc::c_long; 4] =
    [libc::SYS_read, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmsg];
/// System calls that wait for events of the epoll in their first argument.
#[cfg(target_arch = "x86_64")]
pub(crate) const EPOLL_WAITS: [libc::c_long; 3] =
    [libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
/// The same.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const EPOLL_WAITS: [libc::c_long; 2] = [libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];

/// How long the child of [`can_look_at_children`] may take to become ready.
const PROBE_PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// The largest number of a file descriptor, which is a non-negative `int`. gVisor refuses a larger one with EINVAL.
const LAST_DESCRIPTOR: u32 = i32::MAX.unsigned_abs();

/// Blocks SIGCHLD and returns a file descriptor that is readable when a child died.
pub(crate) fn watch_children() -> io::Result<OwnedFd> {
    let mut set = empty_set();
    // SAFETY: the set is valid and ours.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGCHLD) };
    set_mask(&set);
    // SAFETY: the set is valid; -1 asks for a new descriptor.
    let descriptor = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if descriptor == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just created this descriptor for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Consumes the notification that children died; waiting determines how many. The signal is pending at most
/// once, and an unread notification is seen again.
pub(crate) fn acknowledge(deaths: &OwnedFd) {
    let mut bytes = [0_u8; 256];
    // An empty descriptor is no failure: the death was noticed by other means.
    rustix::io::read(deaths, &mut bytes).ok();
}

/// The next dead child, if any.
pub(crate) fn next_death() -> io::Result<Option<(Pid, Exit)>> {
    let mut status = 0;
    // SAFETY: the status is valid for writing; any child will do, and the call does not block.
    let number = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    if number == -1 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(error) };
    }
    let exit = if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    };
    Ok(Pid::from_raw(number).map(|pid| (pid, exit)))
}

/// Whether the other end of a socket has not read everything yet. See unix(7) and tcp(7), SIOCOUTQ.
pub(crate) fn is_unread(socket: &OwnedFd) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one number there, for a descriptor that is open.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    asked == 0 && bytes > 0
}

/// Whether a pipe holds bytes that its reader has not read. See pipe(7), FIONREAD.
pub(crate) fn has_readable(pipe: &OwnedFd) -> bool {
    rustix::io::ioctl_fionread(pipe).is_ok_and(|bytes| bytes > 0)
}

/// Kills every process of the sandbox except this one. See kill(2): -1 leaves out the caller and process 1.
pub(crate) fn kill_rest() {
    if !rustix::process::getpid().is_init() {
        return;
    }
    // SAFETY: takes no pointers; process 1 of a namespace reaches only its own namespace.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Forks and execs a program whose file descriptors, from 0 on, are the given ones.
pub(crate) fn start(open: &OpenProcess, descriptors: &[OwnedFd]) -> io::Result<Pid> {
    let text = |value: &str| CString::new(value).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let arguments = open.argv.iter().map(|argument| text(argument)).collect::<io::Result<Vec<_>>>()?;
    let pairs = open.env.iter().map(|(name, value)| text(&format!("{name}={value}")));
    let environment = pairs.collect::<io::Result<Vec<_>>>()?;
    let directory = text(&open.cwd)?;
    let (failure, tell_failure) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: this process is single-threaded.
    let number = unsafe { libc::fork() };
    if number == -1 {
        return Err(io::Error::last_os_error());
    }
    if number == 0 {
        let error = match prepare(&directory, descriptors).and_then(|()| control_terminal(open)) {
            Ok(()) => exec(&arguments, &environment),
            Err(error) => error,
        };
        // The parent reads the error number. If writing it fails, the parent sees the exit status.
        rustix::io::write(&tell_failure, &error.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes()).ok();
        // SAFETY: ends the child without running anything of the guest.
        unsafe { libc::_exit(127) }
    }
    drop(tell_failure);
    let mut errno = [0_u8; 4];
    match rustix::io::read(&failure, &mut errno) {
        Ok(4) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
        _ => Pid::from_raw(number).ok_or_else(|| io::Error::other("fork gave no process")),
    }
}

/// Forks a copy of this process whose only file descriptors, from 0 on, are the given ones. Returns `None` in
/// the copy.
pub(crate) fn copy(open: &OpenProcess, descriptors: Vec<OwnedFd>) -> io::Result<Option<Pid>> {
    let directory =
        CString::new(open.cwd.as_str()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: this process is single-threaded.
    let number = unsafe { libc::fork() };
    match number {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            if settle_copy(&directory, &descriptors).is_err() {
                // SAFETY: ends the child without running anything of the guest.
                unsafe { libc::_exit(127) }
            }
            // They are closed already, and their numbers may be in use again.
            std::mem::forget(descriptors);
            Ok(None)
        }
        number => Ok(Pid::from_raw(number)),
    }
}

/// Whether this host lets process 1 see in which system call a process of the sandbox sleeps. It tests this
/// on a child that does not hide and does nothing. `None` if that cannot be determined.
pub(crate) fn can_look_at_children() -> Option<bool> {
    let (told, tell) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?;
    // SAFETY: this process is single-threaded.
    let number = unsafe { libc::fork() };
    if number == 0 {
        hold_still(&tell);
    }
    drop(tell);
    let child = Pid::from_raw(number).filter(|_| number > 0)?;
    // A program may stop the child; that must not block process 1.
    let mut list = [PollFd::new(&told, PollFlags::IN)];
    let is_told = rustix::event::poll(&mut list, Some(&PROBE_PATIENCE)).is_ok_and(|count| count > 0);
    let is_there = is_told && matches!(rustix::io::read(&told, &mut [0_u8]), Ok(1));
    let opened = std::fs::read(format!("/proc/{number}/syscall"));
    rustix::process::kill_process(child, rustix::process::Signal::KILL).ok();
    match opened {
        _ if !is_there => None,
        Ok(_) => Some(true),
        Err(error) if is_withheld(&error) => Some(false),
        Err(_) => None,
    }
}

/// Whether the kernel does not tell about a process, for want of permission or because it never does.
pub(crate) fn is_withheld(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound)
}

/// Runs in the child of [`can_look_at_children`]. Only the pipe is open when other processes may inspect it.
fn hold_still(tell: &OwnedFd) -> ! {
    // SAFETY: takes no pointers; nothing of the guest runs in this child any more.
    unsafe { libc::dup2(tell.as_raw_fd(), 0) };
    // SAFETY: takes no pointers; nothing in this child uses the closed descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, 1, LAST_DESCRIPTOR, 0) };
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable).ok();
    // SAFETY: descriptor 0 is the pipe, and stays open.
    let pipe = unsafe { BorrowedFd::borrow_raw(0) };
    rustix::io::write(pipe, &[0]).ok();
    loop {
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
}

/// Runs in the copy.
fn settle_copy(directory: &CString, descriptors: &[OwnedFd]) -> io::Result<()> {
    prepare(directory, descriptors)?;
    // SAFETY: takes no pointers. The callers forget the owners of the closed descriptors.
    let result = unsafe { libc::syscall(libc::SYS_close_range, descriptors.len(), LAST_DESCRIPTOR, 0) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    // Like any program of the sandbox, the copy may be inspected by its user, but only after it holds nothing
    // of the guest any more. A process that an earlier program left running could wait for that moment.
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?)
}

/// Runs in the child: its terminal becomes the one that controls its session, so that Ctrl-C is a signal to it.
fn control_terminal(open: &OpenProcess) -> io::Result<()> {
    if open.terminal.is_some() {
        // SAFETY: descriptor 0 is the terminal, and stays open.
        let terminal = unsafe { BorrowedFd::borrow_raw(0) };
        rustix::process::ioctl_tiocsctty(terminal)?;
    }
    Ok(())
}

fn exec(arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| {
        list.iter().map(|entry| entry.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    let Some(program) = arguments.first().copied().filter(|program| !program.is_null()) else {
        return io::Error::from(io::ErrorKind::InvalidInput);
    };
    // SAFETY: both arrays end with a null pointer and their strings outlive the call.
    unsafe { libc::execve(program, arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// setsid(2). The number that it returns is not used: gVisor returned 0 for years, which is no process number.
fn new_session() -> io::Result<()> {
    // SAFETY: takes no pointers.
    if unsafe { libc::setsid() } == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Runs in the child: session, directory, descriptors, signals.
fn prepare(directory: &CString, descriptors: &[OwnedFd]) -> io::Result<()> {
    // A new session, so that signals to its process group reach only this group.
    new_session()?;
    rustix::process::chdir(directory.as_c_str())?;
    // Best effort: where procfs forbids it, the guest's size alone determines how likely the kernel kills it.
    std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_OF_PROGRAMS).ok();
    // First above the numbers 0 to 3, then into place.
    let mut away = Vec::with_capacity(descriptors.len());
    for descriptor in descriptors {
        away.push(rustix::io::fcntl_dupfd_cloexec(descriptor, 16)?);
    }
    for (target, descriptor) in (0..).zip(&away) {
        // SAFETY: takes no pointers; the targets are the program's own first descriptors.
        let result = unsafe { libc::dup2(descriptor.as_raw_fd(), target) };
        if result == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    set_mask(&empty_set());
    Ok(())
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: an all-zero signal set is a valid value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid and ours.
    unsafe { libc::sigemptyset(&raw mut set) };
    set
}

fn set_mask(set: &libc::sigset_t) {
    // SAFETY: the set is valid; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, set, std::ptr::null_mut()) };
}
