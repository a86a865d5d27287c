//! `palisade bench`: compares this program with the other sandboxes installed here, in one run on one
//! machine.
//!
//! The benchmark starts this binary as `palisade mcp` and calls it over MCP ([`client`]), so it measures what
//! a client gets. The sides are compared in turns, sample by sample ([`lanes`]). Every sample is kept
//! ([`measured`]). Tables, plots and budgets are computed from the samples afterwards ([`report`],
//! [`budgets`]).

mod budgets;
mod client;
mod facts;
mod lanes;
mod measured;
mod processes;
mod program;
mod progress;
mod report;
mod rivals;
mod scenarios;
mod scene;
mod server;
mod serving;
mod statistics;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;
use terminal::{OWN_FAILURE, complain};

use self::budgets::Budgets;
use self::facts::Facts;
use self::measured::Measured;
use self::progress::Progress;
use self::scenarios::Sizes;
pub use self::scene::Language;
use self::scene::{MAIN_LANGUAGES, Scene};
use self::server::Server;

const BREACH: u8 = 1;

const EXIT_CODES: &str = "\
Exit status: 0; with --check 1 when a budget is not kept; 2 for a mistake in the command line; 125 when the
benchmark itself failed. A rival that is not installed or does not work here is told, and is no error.";

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct BenchArguments {
    /// Few samples, in about half a minute: whether it works rather than how fast it is
    #[arg(long)]
    quick: bool,
    /// Only these, separated by commas; all but growth by default
    #[arg(long, value_name = "SCENARIO,...", value_delimiter = ',')]
    only: Vec<Scenario>,
    /// Measure as well what open sandboxes, stored runs and files cost the next run; takes long
    #[arg(long)]
    growth: bool,
    /// Measure these walls beside the native one and the bare runtime, instead of everything else; repeatable
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with_all = ["only", "growth"])]
    wall: Vec<String>,
    /// Every language that is offered here, not the four main ones alone
    #[arg(long)]
    all_languages: bool,
    /// Runs of the leak check
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Write results.json with every sample, and plots as SVG, into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print everything as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Compare with the budgets, and fail when one is not kept
    #[arg(long)]
    check: bool,
    /// Budgets to compare with, instead of those built in
    #[arg(long, value_name = "FILE", requires = "check")]
    budgets: Option<PathBuf>,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// A fresh sandbox for each run, one after the other, by language
    Fresh,
    /// Runs in a sandbox that stays open
    Open,
    /// The same against the plain interpreter and other walls, in turns
    Rivals,
    /// Fresh Python runs of 1 to 32 callers that never pause
    Throughput,
    /// Ten runs a second, each timed from when it should have begun
    Paced,
    /// From the start of a server to its first answer, and what it holds
    Start,
    /// What an idle open Python sandbox holds
    Memory,
    /// The parts of one run
    Phases,
    /// What is left behind after many runs
    Leak,
    /// What open sandboxes, stored runs and files cost the next run; takes long
    Growth,
    /// Fresh Python runs behind the walls of --wall, beside native and the bare runtime
    #[value(skip)]
    Walls,
}

impl Scenario {
    const ALL: [Self; 11] = [
        Self::Fresh,
        Self::Open,
        Self::Rivals,
        Self::Throughput,
        Self::Paced,
        Self::Start,
        Self::Memory,
        Self::Phases,
        Self::Leak,
        Self::Growth,
        Self::Walls,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Open => "open",
            Self::Rivals => "rivals",
            Self::Throughput => "throughput",
            Self::Paced => "paced",
            Self::Start => "start",
            Self::Memory => "memory",
            Self::Phases => "phases",
            Self::Leak => "leak",
            Self::Growth => "growth",
            Self::Walls => "walls",
        }
    }

    /// The title above the table.
    fn title(self) -> &'static str {
        match self {
            Self::Fresh => "one run after the other, each in a sandbox of its own",
            Self::Open => "runs in a sandbox that stays open",
            Self::Rivals => "the same program elsewhere, in turns",
            Self::Throughput => "callers that never pause, a fresh sandbox for each run",
            Self::Paced => "ten arrivals a second, timed from when each was due",
            Self::Start => "a server from its start to its first answer, and what it holds",
            Self::Memory => "what one more idle open Python sandbox holds",
            Self::Phases => "the parts of one Python run",
            Self::Leak => "what is left behind after many runs",
            Self::Growth => "a run beside open sandboxes, stored runs and files",
            Self::Walls => "fresh Python runs by wall, with spares and without, in turns",
        }
    }

    /// Whether it is measured by default.
    fn is_customary(self) -> bool {
        !matches!(self, Self::Growth | Self::Walls)
    }
}

/// One benchmark in progress.
struct Bench {
    scene: Scene,
    sizes: Sizes,
    progress: Progress,
    measured: Measured,
    walls: Vec<WallUnderTest>,
}

/// The report that is written.
#[derive(Serialize)]
struct Report {
    palisade: &'static str,
    protocol: &'static str,
    mode: &'static str,
    machine: Facts,
    languages: Vec<(String, String)>,
    #[serde(flatten)]
    measured: Measured,
}

/// The environment that the calling command provides.
pub struct Surroundings<'a> {
    /// The requested state directory. The benchmark's folder is beneath it, so that its disk is measured.
    pub state_dir: Option<&'a Path>,
    /// Flags for the measured servers.
    pub flags: Vec<String>,
    /// Finds languages with an engine over this state directory. Called before any thread exists.
    pub find_languages: &'a FindLanguages<'a>,
    /// The wall of that name, or why there is none.
    pub find_wall: &'a dyn Fn(&str) -> Result<WallUnderTest, String>,
}

/// A wall to measure.
#[derive(Debug, Clone)]
pub struct WallUnderTest {
    /// Its name.
    pub name: &'static str,
    /// What builds it, if that can run the same alone.
    pub bare: Option<BareWall>,
}

/// What builds a wall, without Palisade.
#[derive(Debug, Clone)]
pub enum BareWall {
    /// An OCI runtime.
    Runtime(BareRuntime),
    /// Docker or Podman.
    Engine(BareEngine),
}

/// An engine without Palisade.
#[derive(Debug, Clone)]
pub struct BareEngine {
    /// Its client.
    pub client: PathBuf,
    /// The option with which the client is told the socket.
    pub socket_option: &'static str,
    /// The socket of the engine.
    pub socket: PathBuf,
}

impl BareEngine {
    fn options(&self) -> [String; 2] {
        [self.socket_option.to_owned(), format!("unix://{}", self.socket.display())]
    }
}

/// An OCI runtime without Palisade.
#[derive(Debug, Clone)]
pub struct BareRuntime {
    /// Its executable.
    pub program: PathBuf,
    /// Options before every command.
    pub options: Vec<String>,
    /// The first argument with which the static guest prepares the mounts of a bundle.
    pub stage_role: &'static str,
}

/// Finds the named languages with an engine over a state directory.
pub type FindLanguages<'a> = dyn Fn(&Path, &[&'static str]) -> io::Result<Vec<FoundLanguage>> + 'a;

/// A language, or the reason why it is not available.
pub type FoundLanguage = (&'static str, Result<Language, String>);

/// Runs `palisade bench`.
pub fn main(surroundings: &Surroundings<'_>, arguments: &BenchArguments) -> ExitCode {
    match bench(surroundings, arguments) {
        Ok(code) => code,
        Err(message) => {
            complain(&message, None);
            ExitCode::from(OWN_FAILURE)
        }
    }
}

fn bench(surroundings: &Surroundings<'_>, arguments: &BenchArguments) -> Result<ExitCode, String> {
    let budgets = arguments.check.then(|| Budgets::load(arguments.budgets.as_deref())).transpose()?;
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let machine = Facts::find();
    let languages: Vec<&'static str> = if arguments.all_languages {
        engine::runtimes::languages().collect()
    } else {
        MAIN_LANGUAGES.to_vec()
    };
    let walls = arguments.wall.iter().map(|name| (surroundings.find_wall)(name));
    let walls = walls.collect::<Result<Vec<_>, String>>()?;
    let scene = Scene::set(surroundings, &languages).map_err(|error| format!("preparing: {error}"))?;
    let sizes = Sizes::new(arguments.quick, arguments.runs);
    let mut bench = Bench { scene, sizes, progress: Progress::new(), measured: Measured::default(), walls };
    if !arguments.quick && bench.walls.is_empty() {
        Server::start(&bench.scene.recipe)?.settle(&mut bench.progress)?;
    }
    for scenario in chosen(arguments) {
        scenarios::measure(scenario, &mut bench).map_err(|error| format!("{}: {error}", scenario.name()))?;
    }
    let Bench { scene, progress, measured, .. } = bench;
    drop(progress);
    let report = Report {
        palisade: env!("CARGO_PKG_VERSION"),
        protocol: client::PROTOCOL,
        mode: if arguments.quick { "quick" } else { "full" },
        languages: scene.languages.iter().map(|one| (one.name.clone(), one.version.clone())).collect(),
        machine,
        measured,
    };
    drop(scene);
    if let Some(folder) = &arguments.out {
        report::write(folder, &report).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let verdicts = budgets.map(|budgets| budgets.judge(&report.measured, report.machine.cores));
    show(arguments, &report, verdicts.as_deref()).ok();
    let is_breach = verdicts.iter().flatten().any(budgets::Verdict::is_breach);
    Ok(if is_breach { ExitCode::from(BREACH) } else { ExitCode::SUCCESS })
}

fn chosen(arguments: &BenchArguments) -> Vec<Scenario> {
    let is_chosen = |scenario: &Scenario| {
        let is_asked_for = arguments.only.contains(scenario);
        let is_added = arguments.growth && *scenario == Scenario::Growth;
        let is_usual = arguments.only.is_empty() && scenario.is_customary();
        match arguments.wall.is_empty() {
            true => is_asked_for || is_added || is_usual,
            false => *scenario == Scenario::Walls,
        }
    };
    Scenario::ALL.into_iter().filter(is_chosen).collect()
}

/// The reader of standard output may be gone; the results are already written.
fn show(
    arguments: &BenchArguments,
    report: &Report,
    verdicts: Option<&[budgets::Verdict]>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if arguments.json {
        let mut value = report::value(report).map_err(io::Error::other)?;
        if let Some(verdicts) = verdicts {
            value["budgets"] = serde_json::to_value(verdicts).map_err(io::Error::other)?;
        }
        writeln!(out, "{value}")?;
    } else {
        report::print(&mut out, report)?;
        if let Some(verdicts) = verdicts {
            budgets::print(&mut out, verdicts)?;
        }
    }
    out.flush()
}
