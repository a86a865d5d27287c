//! One caller, one run after the other, each in a sandbox of its own: the languages in turns, with a moment of
//! quiet between two runs. What an agent waits for.

use crate::lanes::{Lane, in_turns};
use crate::server::Server;
use crate::{Bench, Scenario};

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let server = Server::start(&bench.scene.recipe)?;
    let client = server.client()?;
    let programs = super::working(Scenario::Fresh, bench, client);
    let lanes = programs.iter().map(|program| Lane::fresh(Scenario::Fresh, client, program)).collect();
    let series = in_turns(lanes, bench.sizes.fresh, &mut bench.progress);
    bench.measured.series.extend(series);
    Ok(())
}
