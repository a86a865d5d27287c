//! A progress bar on standard error if that is a terminal, drawn between samples.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const CELLS: usize = 24;
/// Minimum time between two redraws, because drawing uses time of the measured machine.
const REDRAW: Duration = Duration::from_millis(200);

/// The progress of a benchmark.
pub(super) struct Progress {
    is_shown: bool,
    title: String,
    drawn: Option<Instant>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { is_shown: std::io::stderr().is_terminal(), title: String::new(), drawn: None }
    }

    #[cfg(test)]
    pub(super) fn silent() -> Self {
        Self { is_shown: false, title: String::new(), drawn: None }
    }

    /// Begins a new part.
    pub(super) fn begin(&mut self, title: &str) {
        title.clone_into(&mut self.title);
        self.drawn = None;
        self.step(0, 1);
    }

    /// Sets the number of completed steps.
    pub(super) fn step(&mut self, done: usize, all: usize) {
        if !self.is_shown || self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW) {
            return;
        }
        self.drawn = Some(Instant::now());
        let full = CELLS * done.min(all) / all.max(1);
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(CELLS - full));
        let mut error = std::io::stderr();
        write!(error, "\r\x1b[K[{bar}] {}", self.title).and_then(|()| error.flush()).ok();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let mut error = std::io::stderr();
            write!(error, "\r\x1b[K").and_then(|()| error.flush()).ok();
        }
    }
}
