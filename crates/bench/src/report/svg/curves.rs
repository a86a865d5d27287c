//! Curves in panels side by side. Each panel has its own axes, and all panels share one legend.

use super::canvas::{Anchor, Canvas};
use super::scale::{Scale, written};

const PANEL: f64 = 420.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 66.0;
const TOP: f64 = 104.0;
const GAP: f64 = 24.0;
const LEGEND_ROW: f64 = 20.0;
/// Distance between the axis and the legend.
const LEGEND_TOP: f64 = 60.0;
const ROW_GAP: f64 = 30.0;
const PANELS_IN_A_ROW: usize = 2;
const COLOURS: usize = 5;

/// One curve.
pub(super) struct Curve {
    pub(super) name: String,
    /// Index of the colour; the curves of one side have the same colour in every panel.
    pub(super) colour: usize,
    pub(super) is_dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// Curves over the same axes.
pub(super) struct Panel {
    pub(super) heading: String,
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) curves: Vec<Curve>,
}

/// The whole drawing; `None` without a point.
pub(super) fn draw(title: &str, subtitle: &str, panels: &[Panel]) -> Option<String> {
    if panels.iter().flat_map(|panel| &panel.curves).all(|curve| curve.points.is_empty()) {
        return None;
    }
    let legend = panels.iter().map(|panel| panel.curves.len()).max().unwrap_or(0) as f64;
    let row = HEIGHT + LEGEND_TOP + legend * LEGEND_ROW + ROW_GAP;
    let width = panels.len().min(PANELS_IN_A_ROW) as f64 * (PANEL + GAP) + GAP;
    let mut canvas = Canvas::new(width, title);
    canvas.text((24.0, 34.0), Anchor::Start, "title", title);
    canvas.text((24.0, 56.0), Anchor::Start, "soft", subtitle);
    for (index, panel) in panels.iter().enumerate() {
        let (column, line) = (index % PANELS_IN_A_ROW, index / PANELS_IN_A_ROW);
        let place = (GAP + column as f64 * (PANEL + GAP), TOP + line as f64 * row);
        draw_panel(&mut canvas, place, panel);
    }
    let lines = panels.len().div_ceil(PANELS_IN_A_ROW) as f64;
    Some(canvas.finish(TOP + lines * row - ROW_GAP))
}

fn draw_panel(canvas: &mut Canvas, (left, top): (f64, f64), panel: &Panel) {
    let points = || panel.curves.iter().flat_map(|curve| &curve.points);
    let greatest = |of: fn(&(f64, f64)) -> f64| points().map(of).max_by(f64::total_cmp).unwrap_or(1.0);
    let (from, to, bottom) = (left + LEFT, left + PANEL, top + HEIGHT);
    let y_scale = Scale::even(greatest(|point| point.1), (bottom, top));
    // The measured positions at equal distances: they grow by factors, and there are few.
    let mut places: Vec<f64> = points().map(|point| point.0).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let gap = (to - from) / places.len().max(1) as f64;
    let x_of = |value: f64| {
        let index = places.iter().position(|place| *place >= value).unwrap_or(0);
        from + gap * (index as f64 + 0.5)
    };
    canvas.text((left, top - 16.0), Anchor::Start, "head", &panel.heading);
    for mark in y_scale.marks() {
        let y = y_scale.at(mark);
        canvas.line((from, y), (to, y), "grid");
        canvas.text((from - 8.0, y + 4.0), Anchor::End, "soft", &written(mark));
    }
    for place in &places {
        canvas.line((x_of(*place), bottom), (x_of(*place), bottom + 4.0), "axis");
        canvas.text((x_of(*place), bottom + 18.0), Anchor::Middle, "soft", &written(*place));
    }
    canvas.line((from, bottom), (to, bottom), "axis");
    canvas.text(((from + to) / 2.0, bottom + 38.0), Anchor::Middle, "soft", &panel.x_label);
    canvas.upright((left + 10.0, top + HEIGHT / 2.0), "soft", &panel.y_label);
    for (index, curve) in panel.curves.iter().enumerate() {
        let colour = curve.colour % COLOURS;
        let placed: Vec<(f64, f64)> = curve.points.iter().map(|(x, y)| (x_of(*x), y_scale.at(*y))).collect();
        let dash = if curve.is_dashed { " dash" } else { "" };
        canvas.curve(&placed, &format!("l{colour}{dash}"));
        for (place, (x, y)) in placed.iter().zip(&curve.points) {
            let told = format!("{}: {} at {}", curve.name, written(*y), written(*x));
            canvas.spot(*place, &format!("c{colour}"), &told);
        }
        let y = bottom + LEGEND_TOP + index as f64 * LEGEND_ROW;
        canvas.curve(&[(from, y - 4.0), (from + 24.0, y - 4.0)], &format!("l{colour}{dash}"));
        let last = curve.points.last().map(|point| written(point.1)).unwrap_or_default();
        canvas.text((from + 32.0, y), Anchor::Start, "soft", &format!("{} (last {last})", curve.name));
    }
}
