//! The scenarios, one file each. Each scenario starts its own servers, so that none is affected by another.

mod bare_engine;
mod fresh;
mod growth;
mod leak;
mod memory;
mod open;
mod paced;
mod phases;
mod rivals;
mod start;
mod throughput;
mod walls;

use std::time::Duration;

use super::client::{BenchCall, Client};
use super::lanes::{Pace, fresh as fresh_run};
use super::program::Program;
use super::{Bench, Scenario};

/// Runs before the first sample, to find interpreters and to fill caches and spares.
const WARMING_RUNS: usize = 3;

/// The sizes of all scenarios.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) fresh: Pace,
    pub(super) open: Pace,
    /// Sandboxes that are opened and closed.
    pub(super) openings: usize,
    pub(super) rivals: Pace,
    /// Duration for each number of callers.
    pub(super) throughput: Duration,
    /// Blocks of arrivals, and arrivals in each.
    pub(super) paced: (usize, usize),
    pub(super) starts: usize,
    /// Sandboxes that are open at once.
    pub(super) sandboxes: usize,
    pub(super) phases: usize,
    pub(super) leak_runs: usize,
    /// Rounds of walls.
    pub(super) walls: usize,
    pub(super) growth: Growth,
}

/// The points of the growth curves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    pub(super) sandboxes: [usize; 4],
    pub(super) stored: [usize; 3],
    pub(super) files: [usize; 3],
}

impl Sizes {
    /// Small or full sizes; the number of runs of the leak check can be set.
    pub(super) fn new(is_quick: bool, leak_runs: Option<usize>) -> Self {
        let settle = Duration::from_millis(10);
        let pace = |rounds| Pace { rounds, settle };
        if is_quick {
            return Self {
                fresh: pace(15),
                open: pace(20),
                openings: 3,
                rivals: pace(10),
                throughput: Duration::from_millis(800),
                paced: (1, 15),
                starts: 5,
                sandboxes: 20,
                phases: 5,
                leak_runs: leak_runs.unwrap_or(200),
                walls: 4,
                growth: Growth { sandboxes: [0, 10, 20, 40], stored: [0, 100, 200], files: [0, 100, 1000] },
            };
        }
        Self {
            fresh: pace(200),
            open: pace(200),
            openings: 20,
            rivals: pace(100),
            throughput: Duration::from_secs(4),
            paced: (4, 50),
            starts: 20,
            sandboxes: 200,
            phases: 50,
            leak_runs: leak_runs.unwrap_or(2000),
            walls: 40,
            growth: Growth {
                sandboxes: [0, 500, 1000, 2000],
                stored: [0, 5000, 10_000],
                files: [0, 1000, 10_000],
            },
        }
    }
}

/// Measures one scenario.
pub(super) fn measure(scenario: Scenario, bench: &mut Bench) -> Result<(), String> {
    bench.progress.begin(scenario.name());
    match scenario {
        Scenario::Fresh => fresh::measure(bench),
        Scenario::Open => open::measure(bench),
        Scenario::Rivals => rivals::measure(bench),
        Scenario::Throughput => throughput::measure(bench),
        Scenario::Paced => paced::measure(bench),
        Scenario::Start => start::measure(bench),
        Scenario::Memory => memory::measure(bench),
        Scenario::Phases => phases::measure(bench),
        Scenario::Leak => leak::measure(bench),
        Scenario::Growth => growth::measure(bench),
        Scenario::Walls => walls::measure(bench),
    }
}

/// Runs several threads at once, each with its index; returns the first failure.
fn together(count: usize, work: impl Fn(usize) -> Result<(), String> + Sync) -> Result<(), String> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.unwrap_or_else(|_| Err("a caller failed".to_owned())))
            .fold(Ok(()), Result::and)
    })
}

/// Programs of all languages here that the server actually runs; failures are reported.
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

/// Runs a program until caches and spares are filled.
fn warm(client: &Client, program: &Program) -> Result<(), String> {
    let call = BenchCall::run(&program.language, &program.code);
    (0..WARMING_RUNS).try_for_each(|_| fresh_run(client, &call, &program.stdout).map(drop))
}

/// The program of a language without imports, if the language is available.
fn main_program(bench: &Bench, language: &str) -> Option<Program> {
    bench.scene.language(language).and_then(|found| Program::of(found).into_iter().next())
}
