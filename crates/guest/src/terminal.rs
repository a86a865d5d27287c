//! A terminal inside the sandbox, of the sandbox's own devpts. The guest holds the master, the program the other end.
//!
//! Nothing of the host's terminal is passed into the sandbox: bytes and the window size travel as messages. See pty(7).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use wire::WindowSize;

const MASTER: &str = "/dev/ptmx";

/// Opens a terminal of that size: the master and the end for the program.
pub(crate) fn open(size: WindowSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::open(MASTER, flags, Mode::empty())?;
    rustix::pty::unlockpt(&master)?;
    // By the master instead of a path, which a program could replace. See ioctl_tty(2), TIOCGPTPEER.
    let program = rustix::pty::ioctl_tiocgptpeer(
        &master,
        OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
    )?;
    resize(&master, size)?;
    Ok((master, program))
}

/// Sets the window size. The kernel sends SIGWINCH to the foreground process group if it changed.
pub(crate) fn resize(master: impl AsFd, size: WindowSize) -> io::Result<()> {
    let WindowSize { rows, columns } = size;
    Ok(rustix::termios::tcsetwinsize(
        master,
        Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 },
    )?)
}

#[cfg(test)]
mod tests {
    use wire::{Fork, FromGuest, OpenProcess};

    use super::*;
    use crate::process::{Channel, Process};

    const SIZE: WindowSize = WindowSize { rows: 30, columns: 90 };

    fn on_terminal(script: &str) -> Process {
        let open = OpenProcess {
            process: 1,
            after: 0,
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            cwd: "/".to_owned(),
            has_channel: false,
            fork: Fork::Never,
            terminal: Some(SIZE),
        };
        Process::start(&open, false).unwrap().unwrap()
    }

    /// Reads until the terminal shows the text.
    fn until_shown(process: &mut Process, wanted: &str) -> String {
        let mut shown = String::new();
        while !shown.contains(wanted) {
            match process.read(1, Channel::Stdout) {
                Some(FromGuest::Output { data, .. }) => shown.push_str(&String::from_utf8_lossy(&data)),
                _ => std::thread::yield_now(),
            }
        }
        shown
    }

    #[test]
    fn a_program_on_a_terminal_reads_lines_and_learns_of_a_new_size() {
        let mut process = on_terminal(
            "trap 'stty size' WINCH; test -t 0 && test -t 1 && test -t 2 && stty size; read x; echo \"<$x>\"; \
             while :; do sleep 0.01; done",
        );
        until_shown(&mut process, "30 90");
        process.stdin().send(b"word\n".to_vec());
        process.stdin().flush();
        until_shown(&mut process, "<word>");
        process.resize(WindowSize { rows: 11, columns: 22 });
        until_shown(&mut process, "11 22");
        process.signal(libc::SIGKILL);
    }

    #[test]
    fn ctrl_c_is_a_signal_to_the_program() {
        let mut process =
            on_terminal("trap 'echo interrupted; exit' INT; echo ready; while :; do sleep 0.01; done");
        until_shown(&mut process, "ready");
        process.stdin().send(vec![3]);
        process.stdin().flush();
        until_shown(&mut process, "interrupted");
        process.signal(libc::SIGKILL);
    }
}
