//! Whether the next run takes longer as the server's state grows: open sandboxes, stored runs, files in a
//! sandbox. Each has a curve.
//!
//! Open sandboxes have a running interpreter, as far as the server allows. Each curve begins with an empty
//! state directory.

use serde_json::json;

use super::memory::awake;
use super::open::open;
use super::throughput::plain_run;
use super::together;
use crate::client::{BenchCall, Client};
use crate::lanes::{Lane, Pace, fresh as fresh_run, in_turns};
use crate::measured::{OURS, PLAIN, Series};
use crate::program::Program;
use crate::server::Server;
use crate::{Bench, Scenario};

const SCENARIO: Scenario = Scenario::Growth;
const CALLERS: usize = 4;
/// Number of files that one run creates.
const FILES_AT_ONCE: usize = 1000;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let Some(program) = super::main_program(bench, "python") else {
        bench.measured.absent(SCENARIO, "python", "it is not installed");
        return Ok(());
    };
    stored_runs(bench, &program)?;
    files(bench, &program)?;
    open_sandboxes(bench, &program)
}

fn open_sandboxes(bench: &mut Bench, program: &Program) -> Result<(), String> {
    let server = Server::start(&bench.scene.recipe_in("growth-sandboxes")?)?;
    let client = server.client()?;
    super::warm(client, program)?;
    let mut there = 0;
    for count in bench.sizes.growth.sandboxes {
        awake(client, count - there)?;
        there = count;
        fresh_runs(bench, client, program, ("open sandboxes", count));
    }
    Ok(())
}

fn stored_runs(bench: &mut Bench, program: &Program) -> Result<(), String> {
    let server = Server::start(&bench.scene.recipe_in("growth-runs")?)?;
    let client = server.client()?;
    super::warm(client, program)?;
    // A run in a persistent sandbox is always stored, and is the cheapest to make.
    let sandboxes = (0..CALLERS).map(|_| open(client)).collect::<Result<Vec<_>, _>>()?;
    let mut there = 0;
    for count in bench.sizes.growth.stored {
        let each = (count - there) / CALLERS;
        together(CALLERS, |number| {
            let call = BenchCall::run_in(&sandboxes[number], "python", "x = 1");
            (0..each).try_for_each(|_| client.call(&call).map(drop))
        })?;
        there = count;
        fresh_runs(bench, client, program, ("stored runs", count));
    }
    Ok(())
}

/// Files in the workspace of one sandbox: their cost for the next run in it, which looks for changed files,
/// and for a fresh run elsewhere.
fn files(bench: &mut Bench, program: &Program) -> Result<(), String> {
    let server = Server::start(&bench.scene.recipe_in("growth-files")?)?;
    let client = server.client()?;
    super::warm(client, program)?;
    let opened = client.call(&BenchCall::tool("sandbox_open", &json!({ "limits": { "disk_mb": 1024 } })))?;
    let sandbox = opened.0.sandbox_id;
    let mut there = 0;
    for count in bench.sizes.growth.files {
        for first in (there..count).step_by(FILES_AT_ONCE) {
            let last = (first + FILES_AT_ONCE).min(count);
            let code = format!("for n in range({first}, {last}): open(f'file-{{n}}', 'w').write('x')");
            client.call(&BenchCall::run_in(&sandbox, "python", &code))?;
        }
        there = count;
        let call = BenchCall::run_in(&sandbox, "python", "print(1)");
        let name = format!("files: in their sandbox x{count}");
        let series = Series { at: Some(count as f64), ..Series::new(SCENARIO, &name, OURS) };
        let lane = Lane::new(series, || fresh_run(client, &call, "1\n"));
        let series = in_turns(vec![lane], pace(bench), &mut bench.progress);
        bench.measured.series.extend(series);
        fresh_runs(bench, client, program, ("files: elsewhere", count));
    }
    Ok(())
}

fn fresh_runs(bench: &mut Bench, client: &Client, program: &Program, (name, count): (&str, usize)) {
    // Points are minutes apart. The plain interpreter is measured in turns, to show changes of the machine in
    // that time.
    let plain = Lane::new(Series::new(SCENARIO, &program.label, PLAIN), || plain_run(program));
    let mut lanes = vec![Lane::fresh(SCENARIO, client, program), plain];
    for lane in &mut lanes {
        lane.series.name = format!("{name} x{count}");
        lane.series.at = Some(count as f64);
    }
    let series = in_turns(lanes, pace(bench), &mut bench.progress);
    bench.measured.series.extend(series);
}

fn pace(bench: &Bench) -> Pace {
    bench.sizes.fresh
}
