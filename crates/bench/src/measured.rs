//! The measured samples and figures, and the measurements that were not possible, with the reason.
//!
//! Everything has an address, `scenario/name/side`: `rivals/python/bubblewrap`. Budgets name figures by it,
//! with the statistic after a colon: `rivals/python/palisade:p50`.

use serde::Serialize;

use super::Scenario;
use super::statistics::Summary;

/// The side of Palisade.
pub(super) const OURS: &str = "palisade";
/// The same interpreter file without any wall.
pub(super) const PLAIN: &str = "plain";

/// The unit of samples and figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "1/s")]
    PerSecond,
    #[serde(rename = "MB")]
    Megabytes,
    #[serde(rename = "1")]
    Count,
    #[serde(rename = "x")]
    Ratio,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::PerSecond => "/s",
            Self::Megabytes => "MB",
            Self::Count => "",
            Self::Ratio => "x",
        }
    }
}

/// Samples of one measurement.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Series {
    pub(super) scenario: Scenario,
    pub(super) name: String,
    pub(super) side: String,
    pub(super) unit: Unit,
    /// The position on a curve, such as the number of callers or of open sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<f64>,
    pub(super) failures: usize,
    /// The message of the first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    pub(super) samples: Vec<f64>,
}

impl Series {
    pub(super) fn new(scenario: Scenario, name: &str, side: &str) -> Self {
        Self {
            scenario,
            name: name.to_owned(),
            side: side.to_owned(),
            unit: Unit::Milliseconds,
            at: None,
            failures: 0,
            failure: None,
            samples: Vec::new(),
        }
    }

    /// Adds a sample, or counts a failure.
    pub(super) fn take(&mut self, sample: Result<f64, String>) {
        match sample {
            Ok(sample) => self.samples.push(sample),
            Err(reason) => {
                self.failures += 1;
                self.failure.get_or_insert(reason);
            }
        }
    }

    pub(super) fn summary(&self) -> Option<Summary> {
        Summary::of(&self.samples)
    }

    fn is_at(&self, address: &str) -> bool {
        is_at(address, &[self.scenario.name(), &self.name, &self.side])
    }
}

/// A single number.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    pub(super) scenario: Scenario,
    pub(super) name: String,
    pub(super) side: String,
    pub(super) unit: Unit,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<f64>,
    pub(super) value: f64,
}

/// A measurement that was not possible here.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Absent {
    pub(super) scenario: Scenario,
    pub(super) name: String,
    pub(super) reason: String,
}

/// All measurements.
#[derive(Debug, Default, Serialize)]
pub(super) struct Measured {
    pub(super) figures: Vec<Figure>,
    pub(super) absent: Vec<Absent>,
    pub(super) series: Vec<Series>,
}

impl Measured {
    pub(super) fn figure(&mut self, scenario: Scenario, name: &str, unit: Unit, value: f64) {
        self.figure_of(scenario, (name, OURS), unit, (None, value));
    }

    /// Adds a figure of a side, optionally as a point of a curve.
    pub(super) fn figure_of(
        &mut self,
        scenario: Scenario,
        (name, side): (&str, &str),
        unit: Unit,
        (at, value): (Option<f64>, f64),
    ) {
        let (name, side) = (name.to_owned(), side.to_owned());
        self.figures.push(Figure { scenario, name, side, unit, at, value });
    }

    pub(super) fn absent(&mut self, scenario: Scenario, name: &str, reason: impl Into<String>) {
        let (name, reason) = (name.to_owned(), reason.into());
        self.absent.push(Absent { scenario, name, reason });
    }

    /// The number at an address with a statistic; a figure needs no statistic.
    pub(super) fn value(&self, place: &str) -> Option<f64> {
        match place.split_once(':') {
            Some((address, "failures")) => {
                self.series.iter().find(|series| series.is_at(address)).map(|series| series.failures as f64)
            }
            Some((address, statistic)) => {
                self.series.iter().find(|series| series.is_at(address))?.summary()?.figure(statistic)
            }
            None => {
                let named =
                    |figure: &&Figure| is_at(place, &[figure.scenario.name(), &figure.name, &figure.side]);
                self.figures.iter().find(named).map(|figure| figure.value)
            }
        }
    }
}

fn is_at(address: &str, parts: &[&str]) -> bool {
    address.split('/').eq(parts.iter().flat_map(|part| part.split('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_address() {
        let mut measured = Measured::default();
        let mut series = Series::new(Scenario::Fresh, "python", OURS);
        [Ok(1.0), Ok(3.0), Err("busy".to_owned()), Ok(2.0)]
            .into_iter()
            .for_each(|sample| series.take(sample));
        measured.series.push(series);
        measured.figure(Scenario::Memory, "idle sandbox", Unit::Megabytes, 2.5);
        assert_eq!(measured.value("fresh/python/palisade:p50"), Some(2.0));
        assert_eq!(measured.value("fresh/python/palisade:failures"), Some(1.0));
        assert_eq!(measured.value("memory/idle sandbox/palisade"), Some(2.5));
        assert_eq!(measured.value("fresh/python/plain:p50"), None);
        assert_eq!(measured.value("fresh/python/palisade:p42"), None);
    }
}
