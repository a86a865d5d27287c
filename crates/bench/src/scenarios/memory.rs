//! Memory of an idle open Python sandbox.
//!
//! Many sandboxes are opened and used once. The increase of all processes is divided by their number. Memory
//! that several share therefore counts once, and spares hardly count.

use std::time::Duration;

use super::open::open;
use super::together;
use crate::client::{BenchCall, Client};
use crate::measured::Unit;
use crate::processes::{memory, memory_beneath};
use crate::server::Server;
use crate::{Bench, Scenario};

const SCENARIO: Scenario = Scenario::Memory;
const QUIET: Duration = Duration::from_secs(1);
const OPENERS: usize = 4;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let server = Server::start(&bench.scene.recipe_in("memory")?)?;
    let client = server.client()?;
    let Some(program) = super::main_program(bench, "python") else {
        bench.measured.absent(SCENARIO, "python", "it is not installed");
        return Ok(());
    };
    super::warm(client, &program)?;
    // The first sandbox adds the memory that all later ones share.
    awake(client, 1)?;
    std::thread::sleep(QUIET);
    let look = || -> Result<_, String> {
        let own = memory(server.pid()).map_err(|error| format!("the server's memory: {error}"))?;
        Ok((own, memory_beneath(server.pid())?))
    };
    let (own_before, before) = match look() {
        Ok(found) => found,
        Err(reason) => {
            bench.measured.absent(SCENARIO, "python", reason);
            return Ok(());
        }
    };
    let count = bench.sizes.sandboxes;
    awake(client, count)?;
    std::thread::sleep(QUIET);
    let (own_after, after) = look()?;
    let each = |before: f64, after: f64| (after - before) / count as f64;
    let private = each(before.private_mb, after.private_mb);
    let proportional = each(before.proportional_mb, after.proportional_mb);
    let own = each(own_before.private_mb, own_after.private_mb);
    bench.measured.figure(SCENARIO, "open sandboxes", Unit::Count, count as f64);
    bench.measured.figure(SCENARIO, "idle python sandbox (private)", Unit::Megabytes, private);
    bench.measured.figure(SCENARIO, "idle python sandbox (proportional)", Unit::Megabytes, proportional);
    bench.measured.figure(SCENARIO, "in the server for each", Unit::Megabytes, own);
    Ok(())
}

/// Opens that many sandboxes and runs a program in each.
pub(super) fn awake(client: &Client, count: usize) -> Result<(), String> {
    let one = || client.call(&BenchCall::run_in(&open(client)?, "python", "x = 1")).map(drop);
    together(OPENERS, |number| (number..count).step_by(OPENERS).try_for_each(|_| one()))
}
