//! Maps values to positions on a drawing, and places the marks of an axis. Pure.

/// The distribution of values on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    Even,
    /// Logarithmic: every factor of ten has the same length.
    Decades,
}

/// A range of values mapped to a range of positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    spread: Spread,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// From zero to at least `high`, ending at a round number.
    pub(super) fn even(high: f64, (from, to): (f64, f64)) -> Self {
        let step = round_step(high);
        let high = (high / step).ceil().max(1.0) * step;
        Self { spread: Spread::Even, low: 0.0, high, from, to }
    }

    /// From a round number below `low` to one above `high`, both above zero.
    pub(super) fn decades(low: f64, high: f64, (from, to): (f64, f64)) -> Self {
        let low = if low > 0.0 && low.is_finite() { low } else { 1.0 };
        let high = if high > low { high } else { low * 10.0 };
        let low = marks_from(low).into_iter().rev().find(|mark| *mark <= low).unwrap_or(low);
        let high = marks_from(high).into_iter().find(|mark| *mark >= high).unwrap_or(high);
        Self { spread: Spread::Decades, low, high, from, to }
    }

    /// The position of a value; values outside the range are clamped.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = match self.spread {
            Spread::Even => (value - self.low) / (self.high - self.low),
            Spread::Decades => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share * (self.to - self.from)
    }

    /// Values with a mark.
    pub(super) fn marks(&self) -> Vec<f64> {
        match self.spread {
            Spread::Even => {
                let step = round_step(self.high);
                (0..=(self.high / step).round() as usize).map(|number| number as f64 * step).collect()
            }
            Spread::Decades => {
                let all = (-9..=9).flat_map(decade);
                all.filter(|mark| (self.low * 0.999..=self.high * 1.001).contains(mark)).collect()
            }
        }
    }
}

/// 1, 2 and 5 of a decade.
fn decade(power: i32) -> [f64; 3] {
    [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power))
}

/// Marks around a value.
fn marks_from(value: f64) -> Vec<f64> {
    let power = value.log10().floor() as i32;
    (power - 1..=power + 1).flat_map(decade).collect()
}

/// A round step that gives about five marks.
fn round_step(high: f64) -> f64 {
    const STEPS: f64 = 5.0;
    let high = if high > 0.0 && high.is_finite() { high } else { 1.0 };
    let rough = high / STEPS;
    let marks = marks_from(rough);
    marks.into_iter().find(|mark| *mark >= rough * 0.999).unwrap_or(rough)
}

/// The value with three significant digits.
pub(super) fn written(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 10_000.0 => return format!("{:.0}k", value / 1000.0),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    #[test]
    fn decades_take_the_same_room() {
        let scale = Scale::decades(1.0, 100.0, (0.0, 200.0));
        assert!(close(scale.at(1.0), 0.0) && close(scale.at(10.0), 100.0) && close(scale.at(100.0), 200.0));
    }

    #[test]
    fn decades_end_at_round_numbers_around_the_values() {
        let scale = Scale::decades(1.3, 342.0, (0.0, 1.0));
        assert_eq!(scale.marks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
    }

    #[test]
    fn even_scales_begin_at_zero_and_end_at_a_round_number() {
        let scale = Scale::even(106.7, (300.0, 0.0));
        assert_eq!(scale.marks(), [0.0, 50.0, 100.0, 150.0]);
        assert!(close(scale.at(0.0), 300.0) && close(scale.at(75.0), 150.0));
    }

    #[test]
    fn what_is_outside_stands_at_the_end() {
        let scale = Scale::decades(1.0, 10.0, (0.0, 100.0));
        assert!(close(scale.at(0.0), 0.0) && close(scale.at(1e6), 100.0));
    }

    #[test]
    fn nothing_and_nonsense_give_a_usable_scale() {
        for scale in [Scale::even(0.0, (0.0, 1.0)), Scale::decades(0.0, f64::NAN, (0.0, 1.0))] {
            assert!(scale.at(1.0).is_finite() && !scale.marks().is_empty());
        }
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0042, 0.25, 2.0, 18.64, 342.7, 12_000.0].map(written);
        assert_eq!(shown, ["0.004", "0.25", "2", "18.6", "343", "12k"]);
    }
}
