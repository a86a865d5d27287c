//! One caller, one run after the other, each in a fresh sandbox: the languages in turns, with a pause between
//! two runs. This is the time that an agent waits.

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
