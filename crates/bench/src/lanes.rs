//! Sides that are compared in turns, sample by sample. Other influences on the machine (other work, heat, a
//! slow disk) affect all sides alike.

use std::time::Duration;

use super::Scenario;
use super::client::{BenchCall, Client};
use super::measured::{OURS, Series};
use super::program::Program;
use super::progress::Progress;

/// One side: how it takes a sample, in milliseconds.
pub(super) struct Lane<'a> {
    pub(super) series: Series,
    /// Takes part in every n-th round. Slow sides skip rounds, so that the fast ones get many samples.
    pub(super) every: usize,
    pub(super) shot: Box<dyn FnMut() -> Result<f64, String> + 'a>,
}

impl<'a> Lane<'a> {
    pub(super) fn new(series: Series, shot: impl FnMut() -> Result<f64, String> + 'a) -> Self {
        Self { series, every: 1, shot: Box::new(shot) }
    }

    /// A fresh sandbox for each sample, from the call to its answer.
    pub(super) fn fresh(scenario: Scenario, client: &'a Client, program: &Program) -> Self {
        let call = BenchCall::run(&program.language, &program.code);
        let expected = program.stdout.clone();
        Self::new(Series::new(scenario, &program.label, OURS), move || fresh(client, &call, &expected))
    }
}

/// Runs a program once and checks its output.
pub(super) fn fresh(client: &Client, call: &BenchCall, expected: &str) -> Result<f64, String> {
    let (result, ms) = client.call(call)?;
    if result.stdout == expected { Ok(ms) } else { Err(format!("it printed {:?}", result.stdout)) }
}

/// Number and spacing of the samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) rounds: usize,
    /// Pause between two samples, so that the cleanup after one sample does not slow down the next.
    pub(super) settle: Duration,
}

/// Takes samples in turns. Each round begins with another lane, so that no lane always follows the same one.
pub(super) fn in_turns(mut lanes: Vec<Lane<'_>>, pace: Pace, progress: &mut Progress) -> Vec<Series> {
    let count = lanes.len();
    for round in 0..pace.rounds {
        for turn in 0..count {
            let lane = &mut lanes[(round + turn) % count];
            if round % lane.every == 0 {
                let sample = (lane.shot)();
                lane.series.take(sample);
                std::thread::sleep(pace.settle);
            }
        }
        progress.step(round + 1, pace.rounds);
    }
    lanes.into_iter().map(|lane| lane.series).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn lanes_take_turns_and_slow_ones_sit_out() {
        let order = RefCell::new(String::new());
        let lane = |name: &'static str, every| {
            let shot = || {
                order.borrow_mut().push_str(name);
                Ok(1.0)
            };
            Lane { every, ..Lane::new(Series::new(Scenario::Rivals, "python", name), shot) }
        };
        let lanes = vec![lane("a", 1), lane("b", 1), lane("c", 2)];
        let pace = Pace { rounds: 3, settle: Duration::ZERO };
        let series = in_turns(lanes, pace, &mut Progress::silent());
        assert_eq!(order.borrow().as_str(), "abcbacab");
        assert_eq!(series.iter().map(|one| one.samples.len()).collect::<Vec<_>>(), [3, 3, 2]);
    }
}
