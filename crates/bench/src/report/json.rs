//! The report as JSON: every sample, with a summary and a histogram.

use serde_json::{Value, json};

use crate::Report;
use crate::statistics::Histogram;

/// The ranges of the histograms grow by this factor, from a twentieth of a millisecond.
const HISTOGRAM_FACTOR: f64 = 1.5;
const HISTOGRAM_FIRST: f64 = 0.05;

/// The whole report.
pub(crate) fn value(report: &Report) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(report)?;
    let written: Vec<Value> = report
        .measured
        .series
        .iter()
        .map(|series| {
            let mut one = serde_json::to_value(series)?;
            one["summary"] = json!(series.summary());
            one["histogram"] = json!(Histogram::of(&series.samples, HISTOGRAM_FIRST, HISTOGRAM_FACTOR));
            one["samples"] = series.samples.iter().map(|sample| json!(rounded(*sample))).collect();
            Ok(one)
        })
        .collect::<serde_json::Result<_>>()?;
    value["series"] = Value::Array(written);
    Ok(value)
}

/// Rounds to a tenth of a microsecond, which is below the resolution of every clock here.
fn rounded(sample: f64) -> f64 {
    (sample * 10_000.0).round() / 10_000.0
}
