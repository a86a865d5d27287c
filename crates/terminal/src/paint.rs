//! Colours and a spinner, only for a terminal.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Colours for a stream, or none.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    is_on: bool,
}

impl Paint {
    /// Colours if the stream is a terminal that supports them and the user wants them.
    pub fn for_stream(stream: &impl IsTerminal) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { is_on: stream.is_terminal() && !is_plain }
    }

    /// No colours.
    pub fn off() -> Self {
        Self { is_on: false }
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.is_on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Green.
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Red.
    pub fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// Yellow.
    pub fn warning(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// Faint.
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// Bold.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }
}

/// A spinner on standard error if that is a terminal; otherwise nothing.
pub struct Spinner {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    /// Spins until it is dropped.
    pub fn start(text: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        if !std::io::stderr().is_terminal() {
            return Self { stop, thread: None };
        }
        let (flag, text) = (Arc::clone(&stop), text.to_owned());
        let thread = std::thread::spawn(move || {
            let mut error = std::io::stderr();
            for sign in ['|', '/', '-', '\\'].iter().cycle() {
                if flag.load(Ordering::Relaxed) {
                    break;
                }
                write!(error, "\r{sign} {text}").and_then(|()| error.flush()).ok();
                std::thread::sleep(Duration::from_millis(80));
            }
            write!(error, "\r\x1b[K").and_then(|()| error.flush()).ok();
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
