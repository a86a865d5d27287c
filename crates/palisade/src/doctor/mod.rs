//! `palisade doctor`: the guarantees that this machine can enforce and the languages that work, each proved
//! by a real run.
//!
//! Every guarantee has a small program that tries to break it ([`canaries`]). Every language runs its own
//! canary. A failure comes with the command that repairs it ([`remedies`]).

mod canaries;
mod remedies;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use engine::packages::Ecosystem;
use engine::{Caller, Engine, RunRequest, RunResult, Wall};
use sandbox::{Enforced, Enforcement, Guarantee};
use serde::Serialize;
use tokio::sync::oneshot;
use upstreams::ToolHost;

use self::canaries::Canary;
use terminal::{Paint, Spinner};

use crate::cli::DoctorArguments;
use crate::machine::{self, Machine, ServerMode};
use crate::options::Options;
use crate::walls::Named;

/// The reason why nothing could be tried. The remedies say what prevents it.
const NO_WALL: &str = "no sandbox can be built here";

/// The findings.
#[derive(Debug, Serialize)]
struct Findings {
    version: &'static str,
    kernel: String,
    user: String,
    /// What a container runtime has put around the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    /// The wall that was examined.
    wall: &'static str,
    /// Whose kernel programs behind it reach: `shared` or `own`.
    wall_kernel: &'static str,
    guarantees: Vec<GuaranteeFinding>,
    languages: Vec<LanguageFinding>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mirrors: Vec<MirrorFinding>,
    /// Tool servers that run as the user, because the configuration says so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers_without_wall: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remedies: Vec<String>,
}

/// The finding about one guarantee.
#[derive(Debug, Serialize)]
struct GuaranteeFinding {
    name: &'static str,
    holds: bool,
    by: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// The finding about one language.
#[derive(Debug, Serialize)]
struct LanguageFinding {
    name: String,
    works: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Name and version of the packages that programs can import.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    packages: BTreeMap<String, String>,
}

/// The finding about a mirror of packages.
#[derive(Debug, Serialize)]
struct MirrorFinding {
    name: &'static str,
    address: String,
    /// Absent if the mirror was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<bool>,
    note: String,
}

pub(crate) fn main(options: &Options, arguments: &DoctorArguments) -> ExitCode {
    let walls = match Named::of_doctor(arguments.wall.as_deref()) {
        Ok(walls) => walls,
        Err(problem) => {
            eprintln!("palisade: {problem}");
            return ExitCode::from(2);
        }
    };
    let options = &Options { walls, ..options.clone() };
    let examined = machine::with_engine(options, ServerMode::OneShot, |machine| async move {
        let _spinner = Spinner::start("examining this machine");
        let mut findings = Vec::new();
        for wall in machine.engine.walls().take(walls_examined(arguments)) {
            findings.push(examine(&machine, wall, arguments.mirrors).await);
        }
        (findings, machine.settings.wall.names())
    });
    let (findings, configured) = match examined {
        Ok(examined) => examined,
        Err(error) => {
            eprintln!("palisade: {error}");
            return ExitCode::from(125);
        }
    };
    let mut out = io::stdout().lock();
    let paint = Paint::for_stream(&out);
    let shown = match findings.as_slice() {
        [one] if arguments.json => show_json(&mut out, one),
        all if arguments.json => show_json(&mut out, &all),
        all => all.iter().try_for_each(|one| show(&mut out, paint, one)),
    };
    // A wall that is not configured may be absent.
    let counts = |one: &&Findings| findings.len() == 1 || configured.contains(&one.wall);
    let is_well = findings.iter().filter(counts).all(Findings::is_well);
    // The reader of standard output may be gone; the exit status is unaffected.
    shown.ok();
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Without `--wall` only the default wall is examined.
fn walls_examined(arguments: &DoctorArguments) -> usize {
    if arguments.wall.is_some() { usize::MAX } else { 1 }
}

impl Findings {
    fn is_well(&self) -> bool {
        self.guarantees.iter().all(|finding| finding.holds)
            && self.languages.iter().any(|finding| finding.works)
    }
}

async fn examine(machine: &Machine, wall: &Wall, asks: bool) -> Findings {
    let (enforced, wall_problem) = match wall.backend().probe().await {
        Ok(enforced) => (enforced, None),
        Err(error) => (Enforced::default(), Some(error)),
    };
    let mut remedies = remedies::for_machine(machine, wall, wall_problem.as_ref());
    if wall_problem.is_none() {
        remedies.extend(remedies::for_engine(machine, wall).await);
    }
    let mut guarantees = Vec::new();
    let examined = Examined { engine: &machine.engine, wall };
    for guarantee in Guarantee::ALL {
        guarantees.push(prove(examined, &enforced, guarantee, wall_problem.is_some()).await);
    }
    let mut languages = Vec::new();
    let names: Vec<String> = wall.runtimes().names().map(str::to_owned).collect();
    for name in names {
        let finding = match &wall_problem {
            None => try_language(examined, &name).await,
            Some(_) => look_for(wall, &name).await,
        };
        if !finding.works && wall_problem.is_none() {
            remedies.extend(remedies::for_language(&machine.engine, &finding));
        }
        languages.push(finding);
    }
    Findings {
        version: env!("CARGO_PKG_VERSION"),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        user: if rustix::process::geteuid().is_root() {
            "root".to_owned()
        } else {
            "an ordinary user".to_owned()
        },
        container: backends::native::Surroundings::read().told(),
        wall: wall.name(),
        wall_kernel: wall.kernel().name(),
        guarantees,
        languages,
        mirrors: mirrors(machine, asks).await,
        servers_without_wall: servers_without_wall(machine),
        remedies,
    }
}

/// The tool servers for which the configuration says `wall = "none"`.
fn servers_without_wall(machine: &Machine) -> Vec<String> {
    let servers = machine
        .upstreams
        .as_ref()
        .map(|host| host.servers(upstreams::Viewer::of(&engine::Principal::local())))
        .unwrap_or_default();
    servers.into_iter().filter(|server| server.is_walled == Some(false)).map(|server| server.name).collect()
}

/// Where packages come from. Mirrors are asked if the operator named some, or says so: `doctor` alone sends nothing.
async fn mirrors(machine: &Machine, asks: bool) -> Vec<MirrorFinding> {
    let settings = &machine.settings.packages;
    if settings.enabled.value == Some(false) {
        return Vec::new();
    }
    let proxy = machine.settings.access.upstream.value.clone();
    let config = settings.config(machine.state_dir.clone(), proxy);
    if !asks && settings.mirrors.value.is_empty() {
        let unasked = |(ecosystem, mirror): (&Ecosystem, &packages::Mirror)| MirrorFinding {
            name: ecosystem.name(),
            address: mirror.base.to_string(),
            answers: None,
            note: "not asked: `palisade doctor --mirrors` does".to_owned(),
        };
        return config.mirrors.iter().map(unasked).collect();
    }
    let health = packages::Packages::new(config, &machine.engine).health().await;
    let asked = |(ecosystem, address, health): (Ecosystem, String, packages::MirrorHealth)| MirrorFinding {
        name: ecosystem.name(),
        address,
        answers: Some(health.answer.is_ok()),
        note: match health.answer {
            Ok(time) => format!("answers in {} ms", time.as_millis()),
            Err(reason) => reason,
        },
    };
    health.into_iter().map(asked).collect()
}

/// The wall under examination.
#[derive(Clone, Copy)]
struct Examined<'a> {
    engine: &'a Engine,
    wall: &'a Wall,
}

/// Names the mechanism that keeps a guarantee, and runs the canary that tries to break it.
async fn prove(
    examined: Examined<'_>,
    enforced: &Enforced,
    guarantee: Guarantee,
    has_no_wall: bool,
) -> GuaranteeFinding {
    let (by, note) = match enforced.get(guarantee) {
        Enforcement::By { mechanisms, note } => {
            (mechanisms.iter().map(|mechanism| mechanism.name()).collect(), note)
        }
        Enforcement::Absent { .. } if has_no_wall => (Vec::new(), Some(NO_WALL.to_owned())),
        Enforcement::Absent { reason } => (Vec::new(), Some(reason)),
    };
    let mut finding = GuaranteeFinding { name: guarantee.name(), holds: !by.is_empty(), by, note };
    if !finding.holds {
        return finding;
    }
    let canary = Canary::of(guarantee);
    let result = run(examined, canary.request()).await;
    if let Err(problem) = canary.judge(&result) {
        finding.holds = false;
        finding.note = Some(problem);
    }
    finding
}

/// Without a wall, only the installation of the language is checked.
async fn look_for(wall: &Wall, name: &str) -> LanguageFinding {
    let (version, problem) = match wall.runtimes().find(name).await {
        Ok(runtime) => (Some(runtime.version().to_owned()), NO_WALL.to_owned()),
        Err(error) => (None, error.to_string()),
    };
    let packages = BTreeMap::new();
    LanguageFinding { name: name.to_owned(), works: false, version, problem: Some(problem), packages }
}

async fn try_language(examined: Examined<'_>, name: &str) -> LanguageFinding {
    let runtimes = examined.wall.runtimes();
    let finding = |works, version, problem| {
        let packages = BTreeMap::new();
        LanguageFinding { name: name.to_owned(), works, version, problem, packages }
    };
    let runtime = match runtimes.find(name).await {
        Ok(runtime) => runtime,
        Err(error) => return finding(false, None, Some(error.to_string())),
    };
    let version = Some(runtime.version().to_owned());
    let (code, stdout) = runtime.canary();
    // The canary also tests the compiler, so no cached result is used.
    let (language, code, compile_anew) = (name.to_owned(), code.to_owned(), true);
    let result = run(examined, RunRequest { language, code, compile_anew, ..RunRequest::default() }).await;
    if result.execution().stdout == stdout.as_bytes() && !result.outcome.is_error() {
        runtimes.remember_canary(&runtime, &Ok(())).await;
        let packages = runtime.packages().clone();
        return LanguageFinding { packages, ..finding(true, version, None) };
    }
    let said = result.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
    let stderr =
        String::from_utf8_lossy(&result.execution().stderr).trim().chars().take(300).collect::<String>();
    let problem = format!("its canary ended as {}: {said} {stderr}", result.outcome.name());
    runtimes.remember_canary(&runtime, &Err(problem.clone())).await;
    finding(false, version, Some(problem))
}

async fn run(Examined { engine, wall }: Examined<'_>, request: RunRequest) -> RunResult {
    let (_stop, stopped) = oneshot::channel();
    let request = RunRequest { wall: Some(wall.name().to_owned()), ..request };
    engine.run(&Caller::local(), request, None, stopped).await
}

fn show_json(out: &mut impl Write, findings: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(findings).unwrap_or_default();
    writeln!(out, "{text}")
}

fn show(out: &mut impl Write, paint: Paint, findings: &Findings) -> io::Result<()> {
    let mark = |is_good: bool| if is_good { paint.good("ok ") } else { paint.bad("NO ") };
    writeln!(out, "palisade {} on Linux {}, as {}", findings.version, findings.kernel, findings.user)?;
    if let Some(container) = &findings.container {
        writeln!(out, "{container}")?;
    }
    writeln!(out, "wall {}, {} kernel", findings.wall, findings.wall_kernel)?;
    writeln!(out, "\n{}", paint.bold("Guarantees"))?;
    for finding in &findings.guarantees {
        let note = finding.note.as_ref().map(|note| format!("  {}", paint.dim(note))).unwrap_or_default();
        writeln!(out, "  {}{:<18} {}{note}", mark(finding.holds), finding.name, finding.by.join(", "))?;
    }
    writeln!(out, "\n{}", paint.bold("Languages"))?;
    for finding in &findings.languages {
        let text = finding.problem.as_ref().or(finding.version.as_ref()).map_or("", String::as_str);
        let packages = match finding.packages.len() {
            0 => String::new(),
            count => paint.dim(&format!("  {count} packages, which --json lists")),
        };
        writeln!(out, "  {}{:<18} {text}{packages}", mark(finding.works), finding.name)?;
    }
    if !findings.mirrors.is_empty() {
        writeln!(out, "\n{}", paint.bold("Packages"))?;
        for finding in &findings.mirrors {
            let mark = finding.answers.map_or_else(|| "-  ".to_owned(), mark);
            writeln!(out, "  {mark}{:<18} {}  {}", finding.name, finding.address, paint.dim(&finding.note))?;
        }
    }
    if !findings.servers_without_wall.is_empty() {
        writeln!(out, "\n{}", paint.bold("Tool servers without a wall"))?;
        for name in &findings.servers_without_wall {
            writeln!(out, "  -  {name:<18} {}", paint.dim("wall = \"none\": it runs as this user"))?;
        }
    }
    if !findings.remedies.is_empty() {
        writeln!(out, "\n{}", paint.bold("What to do"))?;
        for remedy in &findings.remedies {
            writeln!(out, "  - {remedy}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Findings of a machine that lacks one guarantee and one language.
    fn findings() -> Findings {
        let guarantee = |guarantee: Guarantee| GuaranteeFinding {
            name: guarantee.name(),
            holds: true,
            by: vec!["cgroup", "watchdog"],
            note: None,
        };
        let mut guarantees: Vec<_> = Guarantee::ALL.into_iter().map(guarantee).collect();
        guarantees[0] = GuaranteeFinding {
            holds: false,
            by: Vec::new(),
            note: Some(NO_WALL.to_owned()),
            ..guarantee(Guarantee::ALL[0])
        };
        let language = |name: &str, version: Option<&str>, problem: Option<&str>| LanguageFinding {
            name: name.to_owned(),
            works: problem.is_none(),
            version: version.map(str::to_owned),
            problem: problem.map(str::to_owned),
            packages: version.iter().map(|_| ("numpy".to_owned(), "2.0.1".to_owned())).collect(),
        };
        Findings {
            version: "0.0.0",
            kernel: "6.1.0".to_owned(),
            user: "an ordinary user".to_owned(),
            container: None,
            wall: "native",
            wall_kernel: "shared",
            guarantees,
            languages: vec![
                language("python", Some("3.11.2"), None),
                language("ruby", None, Some("no ruby on the PATH")),
            ],
            mirrors: Vec::new(),
            servers_without_wall: Vec::new(),
            remedies: vec!["install ruby".to_owned()],
        }
    }

    #[test]
    fn the_report_for_people_is_as_before() {
        let mut out = Vec::new();
        show(&mut out, Paint::off(), &findings()).unwrap();
        insta::assert_snapshot!("report", String::from_utf8(out).unwrap());
    }

    #[test]
    fn the_report_for_programs_is_as_before() {
        let mut out = Vec::new();
        show_json(&mut out, &findings()).unwrap();
        insta::assert_snapshot!("report_json", String::from_utf8(out).unwrap());
    }
}
