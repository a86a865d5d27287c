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

use engine::{Caller, Engine, RunRequest, RunResult};
use sandbox::{Enforced, Enforcement, Guarantee};
use serde::Serialize;
use tokio::sync::oneshot;

use self::canaries::Canary;
use terminal::{Paint, Spinner};

use crate::cli::DoctorArguments;
use crate::machine::{self, Machine, ServerMode};
use crate::options::Options;

/// The reason why nothing could be tried. The remedies say what prevents it.
const NO_WALL: &str = "no sandbox can be built here";

/// The findings.
#[derive(Debug, Serialize)]
struct Findings {
    version: &'static str,
    kernel: String,
    user: String,
    guarantees: Vec<GuaranteeFinding>,
    languages: Vec<LanguageFinding>,
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

pub(crate) fn main(options: &Options, arguments: &DoctorArguments) -> ExitCode {
    let examined = machine::with_engine(options, ServerMode::OneShot, |machine| async move {
        let _spinner = Spinner::start("examining this machine");
        examine(&machine).await
    });
    let findings = match examined {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("palisade: {error}");
            return ExitCode::from(125);
        }
    };
    let mut out = io::stdout().lock();
    let paint = Paint::for_stream(&out);
    let shown =
        if arguments.json { show_json(&mut out, &findings) } else { show(&mut out, paint, &findings) };
    let is_well = findings.guarantees.iter().all(|finding| finding.holds)
        && findings.languages.iter().any(|finding| finding.works);
    // The reader of standard output may be gone; the exit status is unaffected.
    shown.ok();
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn examine(machine: &Machine) -> Findings {
    let (enforced, wall_problem) = match machine.engine.backend().probe().await {
        Ok(enforced) => (enforced, None),
        Err(error) => (Enforced::default(), Some(error)),
    };
    let mut remedies = remedies::for_machine(machine, wall_problem.as_ref());
    let mut guarantees = Vec::new();
    for guarantee in Guarantee::ALL {
        guarantees.push(prove(&machine.engine, &enforced, guarantee, wall_problem.is_some()).await);
    }
    let mut languages = Vec::new();
    let names: Vec<String> = machine.engine.runtimes().names().map(str::to_owned).collect();
    for name in names {
        let finding = match &wall_problem {
            None => try_language(&machine.engine, &name).await,
            Some(_) => look_for(&machine.engine, &name).await,
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
        guarantees,
        languages,
        remedies,
    }
}

/// Names the mechanism that keeps a guarantee, and runs the canary that tries to break it.
async fn prove(
    engine: &Engine,
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
    let result = run(engine, canary.request()).await;
    if let Err(problem) = canary.judge(&result) {
        finding.holds = false;
        finding.note = Some(problem);
    }
    finding
}

/// Without a wall, only the installation of the language is checked.
async fn look_for(engine: &Engine, name: &str) -> LanguageFinding {
    let (version, problem) = match engine.runtimes().find(name).await {
        Ok(runtime) => (Some(runtime.version().to_owned()), NO_WALL.to_owned()),
        Err(error) => (None, error.to_string()),
    };
    let packages = BTreeMap::new();
    LanguageFinding { name: name.to_owned(), works: false, version, problem: Some(problem), packages }
}

async fn try_language(engine: &Engine, name: &str) -> LanguageFinding {
    let finding = |works, version, problem| {
        let packages = BTreeMap::new();
        LanguageFinding { name: name.to_owned(), works, version, problem, packages }
    };
    let runtime = match engine.runtimes().find(name).await {
        Ok(runtime) => runtime,
        Err(error) => return finding(false, None, Some(error.to_string())),
    };
    let version = Some(runtime.version().to_owned());
    let (code, stdout) = runtime.canary();
    // The canary also tests the compiler, so no cached result is used.
    let (language, code, compile_anew) = (name.to_owned(), code.to_owned(), true);
    let result = run(engine, RunRequest { language, code, compile_anew, ..RunRequest::default() }).await;
    if result.execution().stdout == stdout.as_bytes() && !result.outcome.is_error() {
        engine.runtimes().remember_canary(&runtime, &Ok(())).await;
        let packages = runtime.packages().clone();
        return LanguageFinding { packages, ..finding(true, version, None) };
    }
    let said = result.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
    let stderr =
        String::from_utf8_lossy(&result.execution().stderr).trim().chars().take(300).collect::<String>();
    let problem = format!("its canary ended as {}: {said} {stderr}", result.outcome.name());
    engine.runtimes().remember_canary(&runtime, &Err(problem.clone())).await;
    finding(false, version, Some(problem))
}

async fn run(engine: &Engine, request: RunRequest) -> RunResult {
    let (_stop, stopped) = oneshot::channel();
    engine.run(&Caller::local(), request, None, stopped).await
}

fn show_json(out: &mut impl Write, findings: &Findings) -> io::Result<()> {
    let text = serde_json::to_string_pretty(findings).unwrap_or_default();
    writeln!(out, "{text}")
}

fn show(out: &mut impl Write, paint: Paint, findings: &Findings) -> io::Result<()> {
    let mark = |is_good: bool| if is_good { paint.good("ok ") } else { paint.bad("NO ") };
    writeln!(out, "palisade {} on Linux {}, as {}\n", findings.version, findings.kernel, findings.user)?;
    writeln!(out, "{}", paint.bold("Guarantees"))?;
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
            guarantees,
            languages: vec![
                language("python", Some("3.11.2"), None),
                language("ruby", None, Some("no ruby on the PATH")),
            ],
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
