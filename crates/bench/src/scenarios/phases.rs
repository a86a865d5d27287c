//! The phases of one run: of a cold run as `palisade run --phases` reports them, and of runs of a warm server
//! from their results.

use std::process::Stdio;

use crate::client::BenchCall;
use crate::measured::{OURS, Series};
use crate::server::Server;
use crate::{Bench, Scenario};

const SCENARIO: Scenario = Scenario::Phases;
const COLD: &str = "cold";

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let Some(program) = super::main_program(bench, "python") else {
        bench.measured.absent(SCENARIO, "python", "it is not installed");
        return Ok(());
    };
    let server = Server::start(&bench.scene.recipe)?;
    let client = server.client()?;
    super::warm(client, &program)?;
    let call = BenchCall::run(&program.language, &program.code);
    let names = ["queued_ms", "start_ms", "wall_ms", "the rest (protocol, end)"];
    let mut parts = names.map(|name| Series::new(SCENARIO, name, OURS));
    for number in 0..bench.sizes.phases {
        let (result, ms) = client.call(&call)?;
        let usage = result.usage;
        let told = [usage.queued_ms, usage.start_ms, usage.wall_ms];
        let rest = ms - told.iter().sum::<f64>();
        parts.iter_mut().zip(told.into_iter().chain([rest])).for_each(|(part, value)| part.take(Ok(value)));
        bench.progress.step(number + 1, bench.sizes.phases * 2);
    }
    bench.measured.series.extend(parts);
    drop(server);
    let mut cold: Vec<Series> = Vec::new();
    for number in 0..bench.sizes.phases {
        for (name, ms) in cold_parts(bench, &program.code)? {
            let at = cold.iter().position(|part| part.name == name);
            let at = at.unwrap_or_else(|| {
                cold.push(Series::new(SCENARIO, &name, COLD));
                cold.len() - 1
            });
            cold[at].take(Ok(ms));
        }
        bench.progress.step(bench.sizes.phases + number + 1, bench.sizes.phases * 2);
    }
    bench.measured.series.extend(cold);
    Ok(())
}

/// Names and milliseconds of the phases of one run on the command line.
fn cold_parts(bench: &Bench, code: &str) -> Result<Vec<(String, f64)>, String> {
    let command = bench.scene.recipe.command(&["run", "python", "--phases"]);
    let mut command = command.map_err(|error| format!("starting a run: {error}"))?;
    command.args(["-c", code]).stdin(Stdio::null()).stderr(Stdio::piped());
    let ended = command.output().map_err(|error| format!("starting a run: {error}"))?;
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    if ended.status.success() { Ok(parse(&said)) } else { Err(format!("a run failed: {said}")) }
}

/// Parses lines such as `  clone   123 us`.
fn parse(said: &str) -> Vec<(String, f64)> {
    let part = |line: &str| {
        let (name, us) = line.trim().strip_suffix(" us")?.rsplit_once(' ')?;
        Some((name.trim().to_owned(), us.parse::<f64>().ok()? / 1000.0))
    };
    said.lines().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_from_what_a_run_says() {
        let said = "palisade: warning: x\n       cgroups     107 us\n  two words    2000 us\n";
        assert_eq!(parse(said), [("cgroups".to_owned(), 0.107), ("two words".to_owned(), 2.0)]);
    }
}
