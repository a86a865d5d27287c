//! Plots of the measurements, written as plain SVG: no plotting library, no fonts, no scripts.

mod bars;
mod canvas;
mod curves;
mod scale;

use self::bars::{Bar, Group};
use self::curves::{Curve, Panel};
use crate::measured::{Figure, Measured, OURS, PLAIN, Series};
use crate::{Report, Scenario};

/// File names and drawings of all plots with data.
pub(super) fn plots(report: &Report) -> Vec<(&'static str, String)> {
    let machine = &report.machine;
    let subtitle = format!(
        "palisade {}, {} cores of {}, Linux {}, {} run",
        report.palisade, machine.cores, machine.cpu, machine.kernel, report.mode
    );
    let measured = &report.measured;
    let plots = [
        (
            "fresh.svg",
            bars::draw(
                "A fresh sandbox for each run, through MCP",
                &subtitle,
                &groups(measured, Scenario::Fresh),
            ),
        ),
        (
            "open.svg",
            bars::draw("A run in a sandbox that stays open", &subtitle, &groups(measured, Scenario::Open)),
        ),
        (
            "rivals.svg",
            bars::draw(
                "The same program, here and elsewhere",
                &subtitle,
                &groups(measured, Scenario::Rivals),
            ),
        ),
        (
            "paced.svg",
            bars::draw(
                "Ten runs a second, from when each was due",
                &subtitle,
                &groups(measured, Scenario::Paced),
            ),
        ),
        (
            "throughput.svg",
            curves::draw("Fresh Python runs of callers that never pause", &subtitle, &throughput(measured)),
        ),
        (
            "growth.svg",
            curves::draw("What is there already, and what the next run costs", &subtitle, &growth(measured)),
        ),
    ];
    plots.into_iter().filter_map(|(name, plot)| Some((name, plot?))).collect()
}

/// The series grouped by name. If each name has only one side, the names become the bars, without headings.
fn groups(measured: &Measured, scenario: Scenario) -> Vec<Group> {
    // The table shows the times that remain after a subtraction.
    let is_shown = |one: &&Series| one.scenario == scenario && !one.side.starts_with("beyond");
    let series: Vec<&Series> = measured.series.iter().filter(is_shown).collect();
    let names = once(series.iter().map(|one| one.name.clone()));
    if names.len() == series.len() {
        let label = |one: &Series| {
            if one.side == OURS { one.name.clone() } else { format!("{}: {}", one.name, one.side) }
        };
        let bars: Vec<Bar> = series.iter().filter_map(|one| bar(one, &label(one), None)).collect();
        return if bars.is_empty() { Vec::new() } else { vec![Group { heading: String::new(), bars }] };
    }
    let group = |name: String| {
        let own: Vec<&&Series> = series.iter().filter(|one| one.name == name).collect();
        let plain =
            own.iter().find(|one| one.side == PLAIN).and_then(|one| one.summary()).map(|plain| plain.p50);
        let bars: Vec<Bar> = own.iter().filter_map(|one| bar(one, &one.side, plain)).collect();
        Group { heading: name, bars }
    };
    names.into_iter().map(group).filter(|group| !group.bars.is_empty()).collect()
}

fn bar(series: &Series, label: &str, plain: Option<f64>) -> Option<Bar> {
    let summary = series.summary()?;
    let ratio = plain.map(|plain| summary.p50 / plain);
    Some(Bar { label: label.to_owned(), is_ours: series.side == OURS, summary, ratio })
}

fn throughput(measured: &Measured) -> Vec<Panel> {
    let series: Vec<&Series> =
        measured.series.iter().filter(|one| one.scenario == Scenario::Throughput).collect();
    let figures: Vec<&Figure> =
        measured.figures.iter().filter(|one| one.scenario == Scenario::Throughput).collect();
    let sides = once(series.iter().map(|one| one.side.clone()));
    let rates = sides.iter().enumerate().map(|(colour, side)| {
        let own = figures.iter().filter(|one| one.side == *side);
        let points = own.filter_map(|one| Some((one.at?, one.value))).collect();
        Curve { name: side.clone(), colour, is_dashed: false, points }
    });
    let latencies = sides.iter().enumerate().flat_map(|(colour, side)| {
        [("p50", false), ("p99", true)].map(|(statistic, is_dashed)| {
            let own = series.iter().filter(|one| one.side == *side);
            let points = own.filter_map(|one| Some((one.at?, one.summary()?.figure(statistic)?))).collect();
            Curve { name: format!("{side}, {statistic}"), colour, is_dashed, points }
        })
    });
    let panel = |heading: &str, y_label: &str, curves: Vec<Curve>| Panel {
        heading: heading.to_owned(),
        x_label: "callers at once".to_owned(),
        y_label: y_label.to_owned(),
        curves,
    };
    vec![
        panel("rate", "runs a second", rates.collect()),
        panel("latency", "milliseconds", latencies.collect()),
    ]
}

fn growth(measured: &Measured) -> Vec<Panel> {
    let series: Vec<&Series> =
        measured.series.iter().filter(|one| one.scenario == Scenario::Growth).collect();
    // Points of one curve are named `what xN`.
    let what =
        |one: &Series| one.name.rsplit_once(" x").map_or(one.name.clone(), |(what, _)| what.to_owned());
    let names = once(series.iter().map(|one| what(one)));
    let panel = |name: &String| {
        let curve = |(colour, side, statistic): (usize, &str, &str)| {
            let own = series.iter().filter(|one| what(one) == *name && one.side == side);
            let points = own.filter_map(|one| Some((one.at?, one.summary()?.figure(statistic)?))).collect();
            Curve { name: format!("{side}, {statistic}"), colour, is_dashed: statistic != "p50", points }
        };
        let curves = [(0, OURS, "p50"), (0, OURS, "p95"), (1, PLAIN, "p50")].map(curve);
        Panel {
            heading: format!("a run beside {name}").replace("beside files: ", "beside files, "),
            x_label: name.split(':').next().unwrap_or(name).to_owned(),
            y_label: "milliseconds".to_owned(),
            curves: curves.into_iter().filter(|curve| !curve.points.is_empty()).collect(),
        }
    };
    names.iter().map(panel).collect()
}

/// The distinct values, in order of their first occurrence.
fn once(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut once = Vec::new();
    for name in all {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}
