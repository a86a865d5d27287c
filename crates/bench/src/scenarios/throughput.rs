//! Fresh Python runs of several callers over one connection. Each caller sends its next call as soon as it
//! has an answer. The plain interpreter, started by as many threads, is the comparison.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::{BenchCall, milliseconds};
use crate::lanes::fresh as fresh_run;
use crate::measured::{OURS, PLAIN, Series, Unit};
use crate::program::Program;
use crate::rivals::{bare, timed};
use crate::server::Server;
use crate::serving::Served;
use crate::{Bench, Scenario};

const SCENARIO: Scenario = Scenario::Throughput;
const CALLERS: [usize; 4] = [1, 2, 8, 32];
const LANGUAGE: &str = "python";
/// `palisade serve` on a unix socket, with one connection per caller.
const OVER_HTTP: &str = "palisade serve";
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let Some(program) = super::main_program(bench, LANGUAGE) else {
        bench.measured.absent(SCENARIO, LANGUAGE, "it is not installed");
        return Ok(());
    };
    let server = Server::start(&bench.scene.recipe)?;
    let client = server.client()?;
    super::warm(client, &program)?;
    let served = Served::start(&bench.scene, &program.stdout);
    if let Err(reason) = &served {
        bench.measured.absent(SCENARIO, OVER_HTTP, reason);
    }
    for (index, callers) in CALLERS.into_iter().enumerate() {
        let call = BenchCall::run(&program.language, &program.code);
        let one = || || fresh_run(client, &call, &program.stdout);
        // Demand-driven pools adapt to the load first.
        load(callers, bench.sizes.throughput / 4, &one);
        let ours = load(callers, bench.sizes.throughput, &one);
        keep(bench, OURS, callers, ours);
        let plain = load(callers, bench.sizes.throughput, &|| || plain_run(&program));
        keep(bench, PLAIN, callers, plain);
        if let Ok(served) = &served {
            let of_caller = || served.caller(&call);
            load(callers, bench.sizes.throughput / 4, &of_caller);
            let ours = load(callers, bench.sizes.throughput, &of_caller);
            keep(bench, OVER_HTTP, callers, ours);
        }
        bench.progress.step(index + 1, CALLERS.len());
    }
    Ok(())
}

/// Number of answers, and the time in which they arrived.
struct Load {
    samples: Vec<Result<f64, String>>,
    took: Duration,
}

/// Runs that many callers for that long, each with its own closure. Calls in progress at the end are awaited
/// and counted, with their time.
fn load<F>(callers: usize, duration: Duration, of_caller: &(impl Fn() -> F + Sync)) -> Load
where
    F: FnMut() -> Result<f64, String>,
{
    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    let samples = std::thread::scope(|scope| {
        let caller = || {
            let mut call = of_caller();
            let mut samples = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                samples.push(call());
            }
            samples
        };
        let threads: Vec<_> = (0..callers).map(|_| scope.spawn(caller)).collect();
        std::thread::sleep(duration);
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    });
    Load { samples, took: began.elapsed() }
}

fn keep(bench: &mut Bench, side: &str, callers: usize, load: Load) {
    let name = format!("{LANGUAGE} x{callers}");
    let at = Some(callers as f64);
    let mut series = Series { at, ..Series::new(SCENARIO, &name, side) };
    load.samples.into_iter().for_each(|sample| series.take(sample));
    let per_s = series.samples.len() as f64 / load.took.as_secs_f64();
    bench.measured.figure_of(SCENARIO, (&format!("{name} rate"), side), Unit::PerSecond, (at, per_s));
    bench.measured.series.push(series);
}

pub(super) fn plain_run(program: &Program) -> Result<f64, String> {
    let line = program.plain_command().ok_or("it cannot be started without a file")?;
    let (interpreter, arguments) = line.split_first().ok_or("it has no command line")?;
    let mut command = bare(interpreter);
    command.args(arguments);
    timed(command, &program.stdout, PATIENCE).map(milliseconds)
}
