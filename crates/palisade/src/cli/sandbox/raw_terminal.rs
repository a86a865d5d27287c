//! The terminal of this command while a program in a sandbox uses it (`palisade sandbox exec -t`).
//!
//! Raw mode passes every key on, also Ctrl-C. The earlier mode comes back however the command ends: by return and by
//! error when [`RawTerminal`] is dropped, by a panic through a hook, because a release build does not unwind. The command
//! receives SIGTERM and SIGHUP as wishes and returns. Only SIGKILL leaves the terminal raw.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, Once, PoisonError};

use engine::WindowSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// What a program that was ended in the middle may have left switched on: alternate screen, mouse reports, bracketed
/// paste, hidden cursor, colours. See the control sequences of xterm.
const RESET: &[u8] =
    b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m\r\n";
const SIZE_DEFAULT: WindowSize = WindowSize { rows: 24, columns: 80 };

/// The mode to return to, while the terminal is raw.
static EARLIER: Mutex<Option<Termios>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// The terminal in raw mode, until it is dropped.
pub(super) struct RawTerminal(());

impl RawTerminal {
    /// Switches to raw mode. Fails if standard input or output is no terminal.
    pub(super) fn new() -> io::Result<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(io::Error::from(io::ErrorKind::NotConnected));
        }
        let earlier = tcgetattr(io::stdin())?;
        let mut raw = earlier.clone();
        raw.make_raw();
        HOOK.call_once(|| {
            let next = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                next(panic);
            }));
        });
        *EARLIER.lock().unwrap_or_else(PoisonError::into_inner) = Some(earlier);
        let terminal = Self(());
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        Ok(terminal)
    }

    /// Switches off what a program that was ended may have switched on.
    pub(super) fn reset(&self) {
        // The terminal may be gone.
        io::stdout().lock().write_all(RESET).ok();
        io::stdout().flush().ok();
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some(earlier) = EARLIER.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // The terminal may be gone.
        tcsetattr(io::stdin(), OptionalActions::Drain, &earlier).ok();
    }
}

/// The size of the window now.
pub(super) fn size() -> WindowSize {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            WindowSize { rows: size.ws_row, columns: size.ws_col }
        }
        _ => SIZE_DEFAULT,
    }
}

/// New sizes of the window, as the kernel reports them (SIGWINCH).
pub(super) fn sizes() -> io::Result<mpsc::Receiver<WindowSize>> {
    let mut changed = signal(SignalKind::window_change())?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move { while changed.recv().await.is_some() && sender.send(size()).await.is_ok() {} });
    Ok(receiver)
}
