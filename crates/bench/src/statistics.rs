//! Plain statistics over samples: quantiles, mean, a histogram. Pure; this file does not know what was
//! measured.

use serde::Serialize;

/// Summary of samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) n: usize,
    pub(super) min: f64,
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Summary {
    /// `None` without samples.
    pub(super) fn of(samples: &[f64]) -> Option<Self> {
        let ordered = ordered(samples);
        let (min, max) = (*ordered.first()?, *ordered.last()?);
        let mean = ordered.iter().sum::<f64>() / ordered.len() as f64;
        let at = |share| quantile(&ordered, share);
        Some(Self { n: ordered.len(), min, mean, p50: at(0.50), p95: at(0.95), p99: at(0.99), max })
    }

    /// One of the figures by its name in budgets.
    pub(super) fn figure(&self, name: &str) -> Option<f64> {
        Some(match name {
            "n" => self.n as f64,
            "min" => self.min,
            "mean" => self.mean,
            "p50" => self.p50,
            "p95" => self.p95,
            "p99" => self.p99,
            "max" => self.max,
            _ => return None,
        })
    }
}

/// Nearest rank: the smallest sample that at least this share of all samples does not exceed. The result is
/// always a measured sample, never an interpolation.
fn quantile(ordered: &[f64], share: f64) -> f64 {
    let rank = (share * ordered.len() as f64).ceil() as usize;
    ordered.get(rank.clamp(1, ordered.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

fn ordered(samples: &[f64]) -> Vec<f64> {
    let mut ordered: Vec<f64> = samples.iter().copied().filter(|sample| sample.is_finite()).collect();
    ordered.sort_by(f64::total_cmp);
    ordered
}

/// Samples counted in ranges that grow by a factor: `counts[i]` counts those up to `bounds[i]`, the last one
/// those beyond.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Histogram {
    pub(super) bounds: Vec<f64>,
    pub(super) counts: Vec<usize>,
}

impl Histogram {
    /// Bounds `first`, `first * factor` ... until one includes the largest sample.
    pub(super) fn of(samples: &[f64], first: f64, factor: f64) -> Self {
        const RANGES_MAX: usize = 64;
        let ordered = ordered(samples);
        let largest = ordered.last().copied().unwrap_or(0.0);
        let mut bounds = vec![first];
        while bounds.len() < RANGES_MAX && bounds.last().is_some_and(|bound| *bound < largest) {
            bounds.push(bounds.last().copied().unwrap_or(first) * factor);
        }
        let mut counts = vec![0; bounds.len() + 1];
        for sample in ordered {
            counts[bounds.partition_point(|bound| *bound < sample)] += 1;
        }
        Self { bounds, counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_by_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let summary = Summary::of(&hundred).unwrap();
        assert_eq!((summary.p50, summary.p95, summary.p99), (50.0, 95.0, 99.0));
        assert_eq!((summary.n, summary.min, summary.max, summary.mean), (100, 1.0, 100.0, 50.5));
    }

    #[test]
    fn few_samples_have_the_largest_as_their_tail() {
        let summary = Summary::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((summary.p50, summary.p95, summary.p99), (2.0, 3.0, 3.0));
        assert_eq!(Summary::of(&[7.0]).unwrap().p50, 7.0);
    }

    #[test]
    fn nothing_has_no_summary_and_what_is_no_number_does_not_count() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(Summary::of(&[f64::NAN, 1.0]).unwrap().n, 1);
    }

    #[test]
    fn figures_are_found_by_name() {
        let summary = Summary::of(&[1.0, 2.0]).unwrap();
        assert_eq!(summary.figure("max"), Some(2.0));
        assert_eq!(summary.figure("n"), Some(2.0));
        assert_eq!(summary.figure("p42"), None);
    }

    #[test]
    fn a_histogram_counts_every_sample_once() {
        let histogram = Histogram::of(&[0.5, 1.0, 1.5, 3.0, 9.0], 1.0, 2.0);
        assert_eq!(histogram.bounds, [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!(histogram.counts, [2, 1, 1, 0, 1, 0]);
    }

    #[test]
    fn a_histogram_has_a_last_range_for_what_is_beyond_all() {
        let histogram = Histogram::of(&[1.0, f64::MAX], 1.0, 1.01);
        assert_eq!(histogram.counts.iter().sum::<usize>(), 2);
        assert_eq!(histogram.counts.last(), Some(&1));
    }
}
