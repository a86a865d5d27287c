//! Horizontal bars in groups: the length is the median on a logarithmic axis, with whiskers to p95 and p99.

use super::canvas::{Anchor, Canvas};
use super::scale::{Scale, written};
use crate::statistics::Summary;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 84.0;
const ROW: f64 = 24.0;
const BAR: f64 = 14.0;
const GROUP_HEAD: f64 = 30.0;
const BOTTOM: f64 = 50.0;
/// The axis begins at this fraction of the shortest bar, which keeps that bar visible.
const SHORTEST: f64 = 0.5;

/// One bar.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) is_ours: bool,
    pub(super) summary: Summary,
    /// Ratio to the plain interpreter.
    pub(super) ratio: Option<f64>,
}

/// Bars with a common heading.
pub(super) struct Group {
    pub(super) heading: String,
    pub(super) bars: Vec<Bar>,
}

/// The whole drawing; `None` without a bar.
pub(super) fn draw(title: &str, subtitle: &str, groups: &[Group]) -> Option<String> {
    let all = || groups.iter().flat_map(|group| &group.bars).map(|bar| bar.summary);
    let low = all().map(|summary| summary.p50).min_by(f64::total_cmp)?;
    let high = all().map(|summary| summary.p99).max_by(f64::total_cmp)?;
    let scale = Scale::decades(low * SHORTEST, high, (LEFT, WIDTH - RIGHT));
    let rows: usize = groups.iter().map(|group| group.bars.len()).sum();
    let heads = groups.iter().filter(|group| !group.heading.is_empty()).count();
    let end = TOP + heads as f64 * GROUP_HEAD + rows as f64 * ROW;
    let mut canvas = Canvas::new(WIDTH, title);
    canvas.text((24.0, 34.0), Anchor::Start, "title", title);
    canvas.text((24.0, 56.0), Anchor::Start, "soft", subtitle);
    for mark in scale.marks() {
        let x = scale.at(mark);
        canvas.line((x, TOP - 6.0), (x, end + 4.0), "grid");
        canvas.text((x, end + 20.0), Anchor::Middle, "soft", &written(mark));
    }
    canvas.text((LEFT, end + 40.0), Anchor::Start, "soft", "milliseconds, logarithmic");
    let has_ratios = groups.iter().flat_map(|group| &group.bars).any(|bar| bar.ratio.is_some());
    let ratios = if has_ratios { "; x: times the plain interpreter" } else { "" };
    let legend = format!("bar: p50; whiskers: p95 and p99{ratios}");
    canvas.text((WIDTH - 24.0, end + 40.0), Anchor::End, "soft", &legend);
    let mut y = TOP;
    for group in groups {
        if !group.heading.is_empty() {
            canvas.text((24.0, y + 18.0), Anchor::Start, "head", &group.heading);
            y += GROUP_HEAD;
        }
        for bar in &group.bars {
            row(&mut canvas, &scale, y, bar);
            y += ROW;
        }
    }
    canvas.line((LEFT, TOP - 6.0), (LEFT, end + 4.0), "axis");
    Some(canvas.finish(end + BOTTOM + 6.0))
}

fn row(canvas: &mut Canvas, scale: &Scale, y: f64, bar: &Bar) {
    let Summary { p50, p95, p99, .. } = bar.summary;
    let middle = y + ROW / 2.0;
    let (label, fill) = if bar.is_ours { ("strong", "c0") } else { ("", "c9") };
    canvas.text((LEFT - 10.0, middle + 4.5), Anchor::End, label, &bar.label);
    canvas.bar((LEFT, middle - BAR / 2.0), (scale.at(p50) - LEFT, BAR), fill);
    canvas.line((scale.at(p50), middle), (scale.at(p99), middle), "whisker");
    for (value, height) in [(p95, 4.0), (p99, 3.0)] {
        canvas.line((scale.at(value), middle - height), (scale.at(value), middle + height), "whisker");
    }
    let ratio = bar.ratio.map(|ratio| format!(" \u{b7} {}x", written(ratio))).unwrap_or_default();
    let text = format!("{} ms{ratio}", written(p50));
    canvas.text((scale.at(p99) + 8.0, middle + 4.5), Anchor::Start, label, &text);
}
