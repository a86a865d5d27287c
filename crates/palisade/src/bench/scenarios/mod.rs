//! What is measured, one file each. Each starts servers of its own, so that none sees what another left.

mod fresh;
mod paced;
mod rivals;
mod throughput;

use std::time::Duration;

use super::client::{Call, Client};
use super::lanes::{Pace, fresh as fresh_run};
use super::program::Program;
use super::{Bench, Scenario};

/// Runs before the first sample: interpreters are found, caches and spares filled.
const WARMING_RUNS: usize = 3;

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) fresh: Pace,
    pub(super) rivals: Pace,
    /// Of each number of callers.
    pub(super) throughput: Duration,
    /// Blocks of arrivals, and arrivals in each.
    pub(super) paced: (usize, usize),
}

impl Sizes {
    pub(super) fn new(is_quick: bool, _runs: Option<usize>) -> Self {
        let settle = Duration::from_millis(10);
        if is_quick {
            return Self {
                fresh: Pace { rounds: 15, settle },
                rivals: Pace { rounds: 10, settle },
                throughput: Duration::from_millis(800),
                paced: (1, 15),
            };
        }
        Self {
            fresh: Pace { rounds: 200, settle },
            rivals: Pace { rounds: 100, settle },
            throughput: Duration::from_secs(5),
            paced: (4, 50),
        }
    }
}

/// Measures one of them.
pub(super) fn measure(scenario: Scenario, bench: &mut Bench) -> Result<(), String> {
    bench.progress.begin(scenario.name());
    match scenario {
        Scenario::Fresh => fresh::measure(bench),
        Scenario::Rivals => rivals::measure(bench),
        Scenario::Throughput => throughput::measure(bench),
        Scenario::Paced => paced::measure(bench),
    }
}

/// Programs of all languages here that the server really runs; those that fail are told.
fn working(scenario: Scenario, bench: &mut Bench, client: &Client) -> Vec<Program> {
    let missing = std::mem::take(&mut bench.scene.missing);
    for (name, reason) in &missing {
        bench.measured.absent(scenario, name, reason);
    }
    bench.scene.missing = missing;
    let all: Vec<Program> = bench.scene.languages.iter().flat_map(Program::of).collect();
    let mut kept = Vec::new();
    for program in all {
        match warm(client, &program) {
            Ok(()) => kept.push(program),
            Err(reason) => bench.measured.absent(scenario, &program.label, reason),
        }
    }
    kept
}

/// Runs a program until it is warm.
fn warm(client: &Client, program: &Program) -> Result<(), String> {
    let call = Call::run(&program.language, &program.code);
    (0..WARMING_RUNS).try_for_each(|_| fresh_run(client, &call, &program.stdout).map(drop))
}

/// The program of a language without imports, if the language is here.
fn main_program(bench: &Bench, language: &str) -> Option<Program> {
    bench.scene.language(language).and_then(|found| Program::of(found).into_iter().next())
}
