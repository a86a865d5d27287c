//! The walls that `--wall` names beside the native one, in turns: a fresh Python run with spares, the same without, and the
//! bare runtime with the bundle of such a run, or the bare engine with its image ([`super::bare_engine`]).
//!
//! The bundle is taken from the server while it runs a program. Only the program is another one: the interpreter itself
//! in place of the guest. Roots and mounts are made by the same stage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::bare_engine::EngineRun;
use crate::client::{BenchCall, milliseconds};
use crate::lanes::{Lane, Pace, in_turns};
use crate::measured::{Series, Unit};
use crate::program::Program;
use crate::rivals::{bare, timed};
use crate::server::{Recipe, Server};
use crate::{BareRuntime, BareWall, Bench, Scenario, WallUnderTest};

const SCENARIO: Scenario = Scenario::Walls;
const NATIVE: &str = "native";
const WARM: &str = "warm python";
const COLD: &str = "cold python";
/// The server builds a new spare after each run. The next sample should not share the processors with that.
const SETTLE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Runs as long as it takes to find its bundle.
const LINGER: &str = "import time; time.sleep(3)";

/// One wall with its servers.
struct Side {
    name: &'static str,
    warm: Server,
    cold: Server,
    bare: Option<Bare>,
}

/// What builds the wall, without Palisade.
enum Bare {
    Runtime(RuntimeRun),
    Engine(EngineRun),
}

/// A runtime with the bundle of a run.
struct RuntimeRun {
    runtime: BareRuntime,
    folder: PathBuf,
    guest: PathBuf,
    last: u64,
}

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let Some(program) = super::main_program(bench, "python") else {
        bench.measured.absent(SCENARIO, "python", "it is not installed");
        return Ok(());
    };
    let mut sides = Vec::new();
    let native = WallUnderTest { name: NATIVE, bare: None };
    let named = std::mem::take(&mut bench.walls);
    for wall in std::iter::once(native).chain(named.into_iter().filter(|wall| wall.name != NATIVE)) {
        match Side::start(bench, &wall, &program) {
            Ok(side) => sides.push(side),
            Err(reason) => bench.measured.absent(SCENARIO, wall.name, reason),
        }
    }
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    for side in &mut sides {
        for (name, server) in [(WARM, &side.warm), (COLD, &side.cold)] {
            let lane = Lane::fresh(SCENARIO, server.client()?, &program);
            lanes.push(Lane { series: Series::new(SCENARIO, name, side.name), ..lane });
        }
        if let Some(bare) = &mut side.bare {
            let series = Series::new(SCENARIO, COLD, &bare_name(side.name));
            let program = &program;
            lanes.push(Lane::new(series, move || {
                timed(bare.command()?, &program.stdout, PATIENCE).map(milliseconds)
            }));
        }
    }
    let pace = Pace { rounds: bench.sizes.walls, settle: SETTLE };
    let mut series = in_turns(lanes, pace, &mut bench.progress);
    series.sort_by(|one, other| one.name.cmp(&other.name));
    bench.measured.series.extend(series);
    for side in &sides {
        tell_ratio(bench, side.name);
    }
    Ok(())
}

fn bare_name(wall: &str) -> String {
    format!("bare {wall}")
}

/// How many times the bare runtime's time a cold run takes.
fn tell_ratio(bench: &mut Bench, wall: &str) {
    let p50 = |side: &str| bench.measured.value(&format!("{}/{COLD}/{side}:p50", SCENARIO.name()));
    if let Some((ours, theirs)) = p50(wall).zip(p50(&bare_name(wall))) {
        let place = ("cold, to the bare runtime", wall);
        bench.measured.figure_of(SCENARIO, place, Unit::Ratio, (None, ours / theirs));
    }
}

impl Side {
    fn start(bench: &Bench, wall: &WallUnderTest, program: &Program) -> Result<Self, String> {
        let name = wall.name;
        let recipe = |kind: &str, pool: &str| -> Result<Recipe, String> {
            let mut recipe = bench.scene.recipe_in(&format!("{kind}-{name}"))?;
            recipe.env.push(("PALISADE_WALL_DEFAULT", name.to_owned()));
            recipe.env.push(("PALISADE_POOL_ENABLED", pool.to_owned()));
            Ok(recipe)
        };
        let (warm, cold) = (recipe("warm", "true")?, recipe("cold", "false")?);
        let state_dir = cold.state_dir.clone();
        let (warm, cold) = (Server::start(&warm)?, Server::start(&cold)?);
        super::warm(warm.client()?, program)?;
        super::warm(cold.client()?, program)?;
        let bare = match &wall.bare {
            None => None,
            Some(bare) => {
                let folder =
                    bench.scene.folder.within(&bare_name(name)).map_err(|error| error.to_string())?;
                let above = state_dir.join("walls").join(name);
                Some(Bare::from_run(bare, (&cold, &above), program, folder)?)
            }
        };
        Ok(Self { name, warm, cold, bare })
    }
}

impl Bare {
    /// Takes what a run on that server is made of, whose directory is beneath `above`.
    fn from_run(
        wall: &BareWall,
        (server, above): (&Server, &Path),
        program: &Program,
        folder: PathBuf,
    ) -> Result<Self, String> {
        let run = server.client()?.send(&BenchCall::run(&program.language, LINGER))?;
        let taken = match wall {
            BareWall::Runtime(runtime) => RuntimeRun::of(runtime, above, program, folder).map(Self::Runtime),
            BareWall::Engine(engine) => EngineRun::of(engine, above, program).map(Self::Engine),
        };
        run.wait()?.result?;
        taken
    }

    fn command(&mut self) -> Result<Command, String> {
        match self {
            Self::Runtime(runtime) => Ok(runtime.command()),
            Self::Engine(engine) => engine.command(),
        }
    }
}

impl RuntimeRun {
    fn of(runtime: &BareRuntime, above: &Path, program: &Program, folder: PathBuf) -> Result<Self, String> {
        let told = |error: std::io::Error| format!("its bundle: {error}");
        let bundle = find_bundle(above)?;
        let config = fs::read(bundle.join("config.json")).map_err(told)?;
        let mut config: Value = serde_json::from_slice(&config).map_err(|error| error.to_string())?;
        config["process"]["args"] = json!(program.plain_command().ok_or("it has no command line")?);
        config["process"]["env"] = json!(["PATH=/usr/local/bin:/usr/bin:/bin"]);
        let group = config["linux"]["cgroupsPath"].as_str().unwrap_or_default();
        config["linux"]["cgroupsPath"] = json!(format!("{group}-bare"));
        fs::write(folder.join("config.json"), config.to_string()).map_err(told)?;
        fs::copy(bundle.join("stage"), folder.join("stage")).map_err(told)?;
        let guest = bundle.with_file_name("guest");
        Ok(Self { runtime: runtime.clone(), folder, guest, last: 0 })
    }

    fn command(&mut self) -> Command {
        self.last += 1;
        let id = format!("palisade-bench-{}-{}", std::process::id(), self.last);
        let mut command = bare(&self.guest.to_string_lossy());
        command.arg(self.runtime.stage_role).arg(self.folder.join("stage")).arg(&self.runtime.program);
        command.args(&self.runtime.options).arg("--root").arg(self.folder.join("state"));
        command.arg("run").arg("--bundle").arg(&self.folder).arg(id).current_dir("/");
        command
    }
}

/// The bundle of the only container of the only server beneath that directory.
fn find_bundle(above: &Path) -> Result<PathBuf, String> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
        let bundles = entries(above).flat_map(|server| entries(&server.path()).map(|entry| entry.path()));
        // The process number is told when the container exists.
        let mut whole = bundles.filter(|bundle| bundle.join("pid").exists());
        if let Some(bundle) = whole.next() {
            return Ok(bundle);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Err("no bundle appeared".to_owned())
}
