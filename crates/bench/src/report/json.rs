//! Everything as JSON: every sample, with its summary and a histogram beside it.

use serde_json::{Value, json};

use crate::Report;
use crate::statistics::Histogram;

/// Ranges of the histograms grow by this, from a twentieth of a millisecond.
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

/// A tenth of a microsecond is less than any clock here can tell.
fn rounded(sample: f64) -> f64 {
    (sample * 10_000.0).round() / 10_000.0
}
