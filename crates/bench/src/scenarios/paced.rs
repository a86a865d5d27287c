//! Arrivals at a steady rate, independent of earlier answers.
//!
//! Each run is timed from its scheduled start, so that queueing is included. The arrivals come in short
//! blocks. Between the blocks the plain interpreter is started for comparison.

use std::time::{Duration, Instant};

use super::throughput::plain_run;
use crate::client::{BenchCall, Client, Pending, milliseconds};
use crate::measured::{OURS, PLAIN, Series};
use crate::program::Program;
use crate::server::Server;
use crate::{Bench, Scenario};

const SCENARIO: Scenario = Scenario::Paced;
const LANGUAGES: [&str; 2] = ["python", "javascript"];
/// Ten arrivals a second.
const GAP: Duration = Duration::from_millis(100);
/// Runs of the plain interpreter between two blocks.
const PLAIN_RUNS: usize = 10;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let server = Server::start(&bench.scene.recipe)?;
    let client = server.client()?;
    let (blocks, arrivals) = bench.sizes.paced;
    for (turn, language) in LANGUAGES.into_iter().enumerate() {
        let Some(program) = super::main_program(bench, language) else {
            bench.measured.absent(SCENARIO, language, "it is not installed");
            continue;
        };
        super::warm(client, &program)?;
        let mut ours = Series::new(SCENARIO, &program.label, OURS);
        let mut plain = Series::new(SCENARIO, &program.label, PLAIN);
        for block in 0..blocks {
            arrive(client, &program, arrivals, &mut ours)?;
            (0..PLAIN_RUNS).for_each(|_| plain.take(plain_run(&program)));
            bench.progress.step(turn * blocks + block + 1, LANGUAGES.len() * blocks);
        }
        bench.measured.series.extend([ours, plain]);
    }
    Ok(())
}

fn arrive(client: &Client, program: &Program, arrivals: usize, series: &mut Series) -> Result<(), String> {
    let call = BenchCall::run(&program.language, &program.code);
    let began = Instant::now();
    let mut sent: Vec<(Instant, Pending)> = Vec::with_capacity(arrivals);
    for number in 1..=arrivals {
        let due = began + GAP * u32::try_from(number).unwrap_or(u32::MAX);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        sent.push((due, client.send(&call)?));
    }
    for (due, pending) in sent {
        let sample = pending.wait().and_then(|answer| {
            let result = answer.result?;
            let is_right = result.stdout == program.stdout;
            is_right
                .then(|| milliseconds(answer.at.duration_since(due)))
                .ok_or(format!("it printed {:?}", result.stdout))
        });
        series.take(sample);
    }
    Ok(())
}
