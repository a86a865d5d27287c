//! Shows the output of programs: unchanged bytes, or text that cannot control the terminal.

use std::io::{self, IsTerminal, Write};

use terminal::Visible;
use wire::Stream;

/// What becomes of control sequences on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlSequences {
    /// They are shown as text such as `^[`.
    MadeVisible,
    /// They reach the terminal.
    Obeyed,
}

impl ControlSequences {
    /// From the option `--raw`.
    pub(crate) fn of_raw(is_raw: bool) -> Self {
        if is_raw { Self::Obeyed } else { Self::MadeVisible }
    }
}

/// Both output streams of this process.
#[derive(Debug)]
pub(crate) struct Screen {
    stdout: Option<Visible>,
    stderr: Option<Visible>,
}

impl Screen {
    /// A stream that is not a terminal gets unchanged bytes.
    pub(crate) fn new(sequences: ControlSequences) -> Self {
        let filter = |is_terminal: bool| {
            (is_terminal && sequences == ControlSequences::MadeVisible).then(Visible::default)
        };
        Self { stdout: filter(io::stdout().is_terminal()), stderr: filter(io::stderr().is_terminal()) }
    }

    /// Shows a piece of output. The reader may be gone; that does not affect the program.
    pub(crate) fn show(&mut self, stream: Stream, piece: &[u8]) {
        let filter = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        match filter {
            Some(filter) => write(stream, filter.feed(piece).as_bytes()),
            None => write(stream, piece),
        }
    }

    /// Shows what is left of a character that never became whole.
    pub(crate) fn end(&mut self) {
        for (stream, filter) in [(Stream::Stdout, &mut self.stdout), (Stream::Stderr, &mut self.stderr)] {
            if let Some(filter) = filter {
                write(stream, filter.end().as_bytes());
            }
        }
    }
}

fn write(stream: Stream, bytes: &[u8]) {
    match stream {
        Stream::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush()).ok();
        }
        Stream::Stderr => {
            io::stderr().lock().write_all(bytes).ok();
        }
    }
}
