//! Tables for a terminal: Palisade beside each rival, with the ratio to the plain interpreter.

use std::io::{self, Write};

use crate::measured::{Figure, Measured, OURS, PLAIN, Series, Unit};
use crate::{Report, Scenario};
use terminal::Paint;

const SIDE_WIDTH: usize = 30;

/// Prints the whole report, by scenario.
pub(crate) fn print(out: &mut (impl Write + io::IsTerminal), report: &Report) -> io::Result<()> {
    let paint = Paint::for_stream(out);
    let machine = &report.machine;
    writeln!(
        out,
        "palisade {} on Linux {}, {} cores of {}, {} GB, as {} (load before: {:.2})",
        report.palisade,
        machine.kernel,
        machine.cores,
        machine.cpu,
        machine.memory_mb / 1024,
        machine.user,
        machine.load_before
    )?;
    for scenario in Scenario::ALL {
        print_scenario(out, paint, &report.measured, scenario)?;
    }
    Ok(())
}

fn print_scenario(
    out: &mut impl Write,
    paint: Paint,
    measured: &Measured,
    scenario: Scenario,
) -> io::Result<()> {
    let series: Vec<&Series> = measured.series.iter().filter(|one| one.scenario == scenario).collect();
    let figures: Vec<&Figure> = measured.figures.iter().filter(|one| one.scenario == scenario).collect();
    let absent = measured.absent.iter().filter(|one| one.scenario == scenario).collect::<Vec<_>>();
    if series.is_empty() && figures.is_empty() && absent.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", paint.bold(&format!("{}: {}", scenario.name(), scenario.title())))?;
    if !series.is_empty() {
        writeln!(
            out,
            "{}",
            paint.dim(&format!(
                "{:<SIDE_WIDTH$}      p50      p95      p99      min     mean     n  fail  to plain",
                "milliseconds"
            ))
        )?;
    }
    let mut last = "";
    for one in &series {
        let is_alone = series.iter().filter(|other| other.name == one.name).count() == 1;
        if is_alone {
            print_series(out, paint, one, (&label(&one.name, &one.side), None))?;
            continue;
        }
        if one.name != last {
            writeln!(out, "{}", one.name)?;
            last = &one.name;
        }
        print_series(out, paint, one, (&format!("  {}", one.side), plain_of(&series, one)))?;
    }
    for group in figures.chunk_by(|left, right| left.name == right.name) {
        print_figures(out, group)?;
    }
    for one in absent {
        writeln!(out, "{}", paint.dim(&format!("  not measured: {}: {}", one.name, one.reason)))?;
    }
    Ok(())
}

/// The time of the plain interpreter in the same run.
fn plain_of(series: &[&Series], of: &Series) -> Option<f64> {
    let plain = series.iter().find(|one| one.name == of.name && one.side == PLAIN && one.unit == of.unit)?;
    plain.summary().map(|summary| summary.p50)
}

fn print_series(
    out: &mut impl Write,
    paint: Paint,
    series: &Series,
    (label, plain): (&str, Option<f64>),
) -> io::Result<()> {
    let side = format!("{label:<SIDE_WIDTH$}");
    let side = if series.side == OURS { paint.good(&side) } else { side };
    let Some(summary) = series.summary() else {
        let reason = series.failure.as_deref().unwrap_or("no sample");
        return writeln!(out, "{side} {}", paint.bad(&format!("failed {} times: {reason}", series.failures)));
    };
    let ratio = plain.map(|plain| format!("{:>8.2}x", summary.p50 / plain)).unwrap_or_default();
    let [p50, p95, p99, min, mean] = [summary.p50, summary.p95, summary.p99, summary.min, summary.mean];
    let failures = match series.failures {
        0 => format!("{:>5}", 0),
        count => paint.bad(&format!("{count:>5}")),
    };
    writeln!(
        out,
        "{side} {p50:>8.2} {p95:>8.2} {p99:>8.2} {min:>8.2} {mean:>8.2} {:>5} {failures} {ratio}",
        summary.n
    )?;
    match &series.failure {
        Some(reason) => writeln!(out, "    {}", paint.bad(&format!("first failure: {reason}"))),
        None => Ok(()),
    }
}

/// Prints one line with all sides of a figure.
fn print_figures(out: &mut impl Write, group: &[&Figure]) -> io::Result<()> {
    let name = group.first().map(|figure| figure.name.as_str()).unwrap_or_default();
    write!(out, "{name:<38}")?;
    for figure in group {
        let side = if figure.side == OURS && group.len() == 1 { "" } else { figure.side.as_str() };
        let value = format!("{} {}", number(figure.value, figure.unit), figure.unit.name());
        write!(out, "  {}", format!("{side} {}", value.trim_end()).trim_start())?;
    }
    writeln!(out)
}

fn label(name: &str, side: &str) -> String {
    if side == OURS { name.to_owned() } else { format!("{name}, {side}") }
}

fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => format!("{value:.0}"),
        Unit::PerSecond => format!("{value:.1}"),
        Unit::Milliseconds | Unit::Megabytes | Unit::Ratio => format!("{value:.2}"),
    }
}
