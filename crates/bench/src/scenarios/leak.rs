//! Whether resources leak: the resources of a server after its first runs, and after many more.
//!
//! The first runs have the same number of callers as the others, so that demand-driven pools already have
//! their size. The server then gets time for its cleanup before it is measured.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::client::{BenchCall, Client};
use crate::lanes::fresh as fresh_run;
use crate::measured::{Series, Unit};
use crate::processes::Holdings;
use crate::program::Program;
use crate::server::Server;
use crate::{Bench, Scenario};

const SCENARIO: Scenario = Scenario::Leak;
const CALLERS: usize = 8;
const QUIET: Duration = Duration::from_secs(2);
/// Maximum time for the cleanup.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let Some(program) = super::main_program(bench, "python") else {
        bench.measured.absent(SCENARIO, "python", "it is not installed");
        return Ok(());
    };
    let server = Server::start(&bench.scene.recipe)?;
    let client = server.client()?;
    let runs = bench.sizes.leak_runs;
    let first = (runs / 10).clamp(CALLERS, 200);
    load(client, &program, first, &|_| ());
    let look = || Holdings::of(server.pid(), &bench.scene.recipe.state_dir);
    std::thread::sleep(QUIET);
    let before = look();
    let progress = &mut bench.progress;
    let done = AtomicUsize::new(0);
    let failures = std::thread::scope(|scope| {
        let load =
            scope.spawn(|| load(client, &program, runs, &|count| done.store(count, Ordering::Relaxed)));
        while !load.is_finished() {
            std::thread::sleep(LOOK_AGAIN);
            progress.step(done.load(Ordering::Relaxed), runs);
        }
        load.join().unwrap_or_else(|_| vec!["a caller failed".to_owned()])
    });
    std::thread::sleep(QUIET);
    let deadline = Instant::now() + PATIENCE;
    let mut after = look();
    while !after.is_back_to(&before) && Instant::now() < deadline {
        std::thread::sleep(LOOK_AGAIN);
        after = look();
    }
    let mut series = Series::new(SCENARIO, "python", "failures");
    failures.into_iter().for_each(|reason| series.take(Err(reason)));
    bench.measured.figure(SCENARIO, "runs", Unit::Count, runs as f64);
    bench.measured.figure(SCENARIO, "failures", Unit::Count, series.failures as f64);
    if let Some(reason) = &series.failure {
        bench.measured.absent(SCENARIO, "the runs that failed", reason);
    }
    for ((name, before), (_, after)) in before.parts().into_iter().zip(after.parts()) {
        let unit = if name.ends_with("MB") { Unit::Megabytes } else { Unit::Count };
        bench.measured.figure_of(SCENARIO, (name, "before"), unit, (None, before));
        bench.measured.figure_of(SCENARIO, (name, "after"), unit, (None, after));
        bench.measured.figure_of(SCENARIO, (name, "more"), unit, (None, after - before));
    }
    Ok(())
}

/// Executes that many runs by several callers; returns the failures.
fn load(client: &Client, program: &Program, runs: usize, tell: &(impl Fn(usize) + Sync)) -> Vec<String> {
    let call = BenchCall::run(&program.language, &program.code);
    let begun = AtomicUsize::new(0);
    let caller = || {
        let mut failures = Vec::new();
        loop {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            if number >= runs {
                return failures;
            }
            failures.extend(fresh_run(client, &call, &program.stdout).err());
            tell(number);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CALLERS).map(|_| scope.spawn(caller)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    })
}
