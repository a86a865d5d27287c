//! The host's questions whether an interpreter is idle, kept until they can be answered.
//!
//! [`crate::waiting`] observes the interpreter. Usually it waits already when the question arrives. If not,
//! the guest looks again at growing intervals. A host may forbid every process to inspect another (for
//! example with Yama's `ptrace_scope`). The guest distinguishes this from a program that hides itself. On
//! such a host an interpreter counts as idle when its first thread sleeps and continues to sleep.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use wire::FromGuest;

use crate::host::Host;
use crate::process::Process;
use crate::waiting::{self, Look};
use crate::{PROCESSES_MAX, sys};

const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// How long a thread that cannot be inspected must sleep to count as idle.
const SLEEP_MIN: Duration = Duration::from_millis(5);

/// The open questions, one per process.
#[derive(Default)]
pub(crate) struct IdleQuestions {
    open: Vec<Question>,
    /// Whether the host lets this process inspect others; `None` until that had to be determined.
    can_look: Option<bool>,
}

struct Question {
    request: u32,
    process: u32,
    next: Instant,
    pause: Duration,
    /// Since when a thread that cannot be inspected sleeps, and its count of context switches.
    asleep: Option<(Instant, u64)>,
}

impl IdleQuestions {
    pub(crate) fn ask(&mut self, request: u32, process: u32) {
        self.open.retain(|known| known.process != process);
        if self.open.len() < PROCESSES_MAX {
            let next = Instant::now();
            self.open.push(Question { request, process, next, pause: PAUSE_MIN, asleep: None });
        }
    }

    /// How long until the next look is due; `None` if no question is open.
    pub(crate) fn pause(&self) -> Option<Timespec> {
        let next = self.open.iter().map(|question| question.next).min()?;
        Timespec::try_from(next.saturating_duration_since(Instant::now())).ok()
    }

    /// Answers every question that can be answered now.
    pub(crate) fn answer(
        &mut self,
        processes: &mut BTreeMap<u32, Process>,
        host: &mut Host,
    ) -> io::Result<()> {
        let now = Instant::now();
        for mut question in std::mem::take(&mut self.open) {
            // The end of this process has been reported already.
            let Some(process) = processes.get_mut(&question.process) else { continue };
            if question.next > now {
                self.open.push(question);
            } else if self.is_idle(process, &mut question) {
                for message in process.hear_driver(question.process) {
                    host.send(&message)?;
                }
                host.send(&FromGuest::Done { request: question.request })?;
            } else {
                question.next = Instant::now() + question.pause;
                question.pause = (question.pause * 2).min(PAUSE_MAX);
                self.open.push(question);
            }
        }
        Ok(())
    }

    fn is_idle(&mut self, process: &Process, question: &mut Question) -> bool {
        match process.look() {
            Look::Waits => true,
            Look::Busy => false,
            Look::Hidden => {
                self.can_look = self.can_look.or_else(sys::can_look_at_children);
                self.can_look == Some(false) && sleeps_on(process, question)
            }
        }
    }
}

/// Whether a process has slept without interruption since the look some milliseconds ago.
fn sleeps_on(process: &Process, question: &mut Question) -> bool {
    let Some(count) = waiting::sleep_count(process.pid()) else {
        question.asleep = None;
        return false;
    };
    match question.asleep.filter(|(_, known)| *known == count) {
        Some((since, _)) => since.elapsed() >= SLEEP_MIN,
        None => {
            question.asleep = Some((Instant::now(), count));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::shell;

    fn question() -> Question {
        Question { request: 1, process: 1, next: Instant::now(), pause: PAUSE_MIN, asleep: None }
    }

    #[test]
    fn where_nobody_may_look_a_thread_must_sleep_for_a_while() {
        let (mut sleeps, mut computes) =
            (shell("read -r line <&3"), shell("while [ ! -e /nowhere ]; do :; done"));
        let mut asked = question();
        assert!(!sleeps_on(&sleeps, &mut asked), "a first look shows nothing");
        while !sleeps_on(&sleeps, &mut asked) {
            std::thread::yield_now();
        }
        assert!(asked.asleep.is_some_and(|(since, _)| since.elapsed() >= SLEEP_MIN));
        let (mut asked, began) = (question(), Instant::now());
        while began.elapsed() < 4 * SLEEP_MIN {
            assert!(!sleeps_on(&computes, &mut asked), "it computes");
        }
        sleeps.signal(libc::SIGKILL);
        computes.signal(libc::SIGKILL);
    }

    #[test]
    fn questions_are_one_per_process_and_bounded() {
        let mut questions = IdleQuestions::default();
        for number in 0..1000 {
            questions.ask(number, 7);
            questions.ask(number, number + 8);
        }
        assert_eq!(questions.open.len(), PROCESSES_MAX);
        assert_eq!(questions.open.iter().filter(|question| question.process == 7).count(), 1);
    }
}
