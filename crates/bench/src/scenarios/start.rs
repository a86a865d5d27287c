//! The time from a server's start to its first answer, and its memory while idle.

use std::time::Duration;

use crate::client::milliseconds;
use crate::measured::{OURS, Series, Unit};
use crate::processes::{memory, memory_beneath};
use crate::server::Server;
use crate::{Bench, Scenario};

const SCENARIO: Scenario = Scenario::Start;
/// Time for an idle server to complete its background work.
const QUIET: Duration = Duration::from_secs(2);
const RUNS: usize = 30;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let mut starts = Series::new(SCENARIO, "first answer", OURS);
    for number in 0..bench.sizes.starts {
        let server = Server::start(&bench.scene.recipe);
        starts.take(server.map(|server| milliseconds(server.started_in)));
        bench.progress.step(number + 1, bench.sizes.starts);
    }
    bench.measured.series.push(starts);
    let server = Server::start(&bench.scene.recipe)?;
    std::thread::sleep(QUIET);
    keep(bench, &server, "idle")?;
    if let Some(program) = super::main_program(bench, "python") {
        for _ in 0..RUNS {
            super::warm(server.client()?, &program)?;
        }
        std::thread::sleep(QUIET);
        keep(bench, &server, "after python runs")?;
    }
    Ok(())
}

fn keep(bench: &mut Bench, server: &Server, when: &str) -> Result<(), String> {
    let own = memory(server.pid()).map_err(|error| format!("the server's memory: {error}"))?;
    bench.measured.figure(SCENARIO, &format!("resident {when}"), Unit::Megabytes, own.resident_mb);
    match memory_beneath(server.pid()) {
        Ok(below) => {
            let all = own.proportional_mb + below.proportional_mb;
            let name = format!("all processes {when} (proportional)");
            bench.measured.figure(SCENARIO, &name, Unit::Megabytes, all);
        }
        Err(reason) => bench.measured.absent(SCENARIO, "all processes", reason),
    }
    Ok(())
}
