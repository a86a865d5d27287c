//! Palisade and every installed rival in turns, with the same programs and the same interpreters.

use std::time::Duration;

use crate::client::milliseconds;
use crate::lanes::{Lane, in_turns};
use crate::measured::{PLAIN, Series};
use crate::program::Program;
use crate::rivals::{self, Ready, bare, timed};
use crate::server::Server;
use crate::{Bench, Scenario};

const SCENARIO: Scenario = Scenario::Rivals;
/// A rival whose run takes longer takes part only in every fifth round.
const SLOW: Duration = Duration::from_millis(200);
const SLOW_EVERY: usize = 5;
/// Timeout for one run of a rival.
const PATIENCE: Duration = Duration::from_secs(30);
/// The system's Python, besides the one on the PATH.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";
const SYSTEM_SIDE: &str = "plain /usr/bin/python3";

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let server = Server::start(&bench.scene.recipe)?;
    let client = server.client()?;
    let programs: Vec<Program> = super::working(SCENARIO, bench, client)
        .into_iter()
        .filter(|program| program.plain.is_some())
        .collect();
    let Some(canary) = programs.first() else { return Err("no language works here".to_owned()) };
    let mut found = rivals::find(&bench.scene, canary);
    for (name, reason) in found.absent.drain(..) {
        bench.measured.absent(SCENARIO, &name, reason);
    }
    // Several programs take turns on the same rival.
    let commands = std::cell::RefCell::new(found.ready);
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    for program in &programs {
        lanes.push(Lane::fresh(SCENARIO, client, program));
        let count = commands.borrow().len();
        let mut others = (0..count).filter_map(|index| rival_lane(&commands, index, program));
        lanes.extend(others.next());
        lanes.extend(system_python(program));
        lanes.extend(others);
    }
    let series = in_turns(lanes, bench.sizes.rivals, &mut bench.progress);
    bench.measured.series.extend(series);
    Ok(())
}

/// Imports are only compared with the plain interpreter, because the cost of a wall does not depend on them.
fn rival_lane<'a>(
    ready: &'a std::cell::RefCell<Vec<Ready>>,
    index: usize,
    program: &'a Program,
) -> Option<Lane<'a>> {
    let (name, is_slow) = {
        let all = ready.borrow();
        let one = all.get(index)?;
        (one.rival.name().to_owned(), one.took > SLOW && one.rival.name() != PLAIN)
    };
    let has_imports = program.label != program.language;
    if has_imports && name != PLAIN {
        return None;
    }
    let series = Series::new(SCENARIO, &program.label, &name);
    let lane = Lane::new(series, move || {
        let mut all = ready.borrow_mut();
        let one = all.get_mut(index).ok_or("the rival is gone")?;
        timed(one.rival.command(program)?, &program.stdout, PATIENCE).map(milliseconds)
    });
    Some(Lane { every: if is_slow { SLOW_EVERY } else { 1 }, ..lane })
}

/// If the server's Python is not the system's, the system's Python is measured as well.
fn system_python(program: &Program) -> Option<Lane<'_>> {
    let own = program.plain.as_ref().and_then(|plain| plain.first())?;
    let is_other = std::fs::canonicalize(own).ok()? != std::fs::canonicalize(SYSTEM_PYTHON).ok()?;
    if program.label != "python" || !is_other {
        return None;
    }
    let line = program.with_interpreter(SYSTEM_PYTHON).plain_command()?;
    let lane = Lane::new(Series::new(SCENARIO, &program.label, SYSTEM_SIDE), move || {
        let mut command = bare(SYSTEM_PYTHON);
        command.args(line.iter().skip(1));
        timed(command, &program.stdout, PATIENCE).map(milliseconds)
    });
    Some(lane)
}
