//! The host's question whether a program waits for standard input, kept until it can be answered.
//!
//! [`crate::waiting`] looks at the threads of the sandbox, at growing intervals. Where the host lets no process inspect
//! another, an empty pipe that has a reader counts as a program that waits.

use std::time::{Duration, Instant};

use crate::stdin::Stdin;
use crate::{sys, waiting};

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The open question, if there is one.
#[derive(Default)]
pub(crate) struct ReadQuestion {
    open: Option<Question>,
    /// Whether the host lets this process inspect others; `None` until that had to be determined.
    can_look: Option<bool>,
}

struct Question {
    request: u32,
    process: u32,
    next: Instant,
    pause: Duration,
}

impl ReadQuestion {
    pub(crate) fn ask(&mut self, request: u32, process: u32) {
        self.open = Some(Question { request, process, next: Instant::now(), pause: PAUSE_MIN });
    }

    /// Withdraws a question about that process.
    pub(crate) fn forget(&mut self, process: u32) {
        self.open.take_if(|question| question.process == process);
    }

    /// How long until the next look is due; `None` if no question is open.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.open.as_ref().map(|question| question.next.saturating_duration_since(Instant::now()))
    }

    /// The number whose input must be looked at now.
    pub(crate) fn due(&self) -> Option<u32> {
        self.open.as_ref().filter(|question| question.next <= Instant::now()).map(|question| question.process)
    }

    /// Looks. Returns the number of the answer, if the program waits.
    pub(crate) fn answer(&mut self, stdin: Option<&mut Stdin>) -> Option<u32> {
        let question = self.open.as_mut()?;
        let can_look = &mut self.can_look;
        let waits = stdin.and_then(|stdin| stdin.drained()).is_some_and(|pipe| {
            waiting::is_awaited(pipe) || {
                *can_look = can_look.or_else(sys::can_look_at_children);
                *can_look == Some(false)
            }
        });
        if waits {
            return self.open.take().map(|question| question.request);
        }
        question.next = Instant::now() + question.pause;
        question.pause = (question.pause * 2).min(PAUSE_MAX);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::shell;

    fn answered(question: &mut ReadQuestion, stdin: &mut Stdin) -> Option<u32> {
        question.due().and_then(|_| question.answer(Some(stdin)))
    }

    #[test]
    fn a_program_waits_for_its_input_only_while_it_reads_and_nothing_is_there() {
        let mut process = shell("read -r line; read -r line; while [ ! -e /nowhere ]; do :; done");
        let mut question = ReadQuestion::default();
        for _ in 0..2 {
            question.ask(7, 1);
            while answered(&mut question, process.stdin()) != Some(7) {
                std::thread::yield_now();
            }
            process.stdin().send(b"word\n".to_vec());
            process.stdin().flush();
        }
        question.ask(8, 1);
        let began = Instant::now();
        while began.elapsed() < 4 * PAUSE_MAX {
            assert_eq!(answered(&mut question, process.stdin()), None, "it computes");
        }
        process.signal(libc::SIGKILL);
    }
}
