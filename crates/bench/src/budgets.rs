//! Upper and lower bounds of figures, and their verdicts.
//!
//! `benches/budgets.toml` is built in, so that an installed binary can check itself. A budget names figures
//! by their address ([`super::measured`]). A figure that this run did not measure is reported and breaks no
//! budget.

use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::measured::Measured;
use terminal::Paint;

const BUILT_IN: &str = include_str!("../../../benches/budgets.toml");

/// All budgets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budgets {
    budget: Vec<Budget>,
}

/// One figure, optionally divided by or minus another, and its bound.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    name: String,
    figure: String,
    /// Divides by this figure: ratios differ less between machines than times.
    over: Option<String>,
    /// Subtracts this figure.
    minus: Option<String>,
    max: Option<f64>,
    min: Option<f64>,
    /// The minimum applies to this many cores, and is reduced in proportion on machines with fewer.
    cores: Option<usize>,
}

/// The result of one budget.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Verdict {
    name: String,
    bound: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    /// Absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<bool>,
}

impl Verdict {
    pub(super) fn is_breach(&self) -> bool {
        self.kept == Some(false)
    }
}

impl Budgets {
    /// The budgets of a file, or the built-in ones.
    pub(super) fn load(file: Option<&Path>) -> Result<Self, String> {
        let Some(file) = file else {
            return Self::parse(BUILT_IN).map_err(|error| format!("built-in budgets: {error}"));
        };
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", file.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let budgets: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let unbound = budgets.budget.iter().find(|budget| budget.max.is_some() == budget.min.is_some());
        match unbound {
            Some(budget) => Err(format!("`{}` needs either max or min", budget.name)),
            None => Ok(budgets),
        }
    }

    /// Compares the budgets with the measured figures.
    pub(super) fn judge(&self, measured: &Measured, cores: usize) -> Vec<Verdict> {
        self.budget.iter().map(|budget| budget.judge(measured, cores)).collect()
    }
}

impl Budget {
    fn judge(&self, measured: &Measured, cores: usize) -> Verdict {
        let value = self.value(measured);
        let (bound, kept) = match (self.max, self.min) {
            (Some(max), _) => (format!("<= {max}"), value.map(|value| value <= max)),
            (None, min) => {
                let share = self.cores.map_or(1.0, |meant| (cores as f64 / meant as f64).min(1.0));
                let least = min.unwrap_or(f64::NAN) * share;
                (format!(">= {least}"), value.map(|value| value >= least))
            }
        };
        Verdict { name: self.name.clone(), bound, value, kept }
    }

    fn value(&self, measured: &Measured) -> Option<f64> {
        let mut value = measured.value(&self.figure)?;
        if let Some(over) = &self.over {
            value /= measured.value(over).filter(|over| *over > 0.0)?;
        }
        if let Some(minus) = &self.minus {
            value -= measured.value(minus)?;
        }
        Some(value)
    }
}

/// Prints one line per verdict.
pub(super) fn print(out: &mut (impl Write + io::IsTerminal), verdicts: &[Verdict]) -> io::Result<()> {
    let paint = Paint::for_stream(out);
    writeln!(out, "\n{}", paint.bold("budgets"))?;
    for verdict in verdicts {
        let value = verdict.value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let word = match verdict.kept {
            Some(true) => paint.good("kept        "),
            Some(false) => paint.bad("BROKEN      "),
            None => paint.dim("not measured"),
        };
        writeln!(out, "  {word} {value:>10} {:<9} {}", verdict.bound, verdict.name)?;
    }
    let count = |kept| verdicts.iter().filter(|verdict| verdict.kept == kept).count();
    let (kept, broken, unknown) = (count(Some(true)), count(Some(false)), count(None));
    writeln!(out, "  {kept} kept, {broken} broken, {unknown} not measured")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use crate::measured::Unit;

    fn measured() -> Measured {
        let mut measured = Measured::default();
        measured.figure(Scenario::Fresh, "ours", Unit::Milliseconds, 2.0);
        measured.figure(Scenario::Fresh, "plain", Unit::Milliseconds, 16.0);
        measured.figure(Scenario::Throughput, "rate", Unit::PerSecond, 250.0);
        measured
    }

    fn judge(text: &str, cores: usize) -> Option<bool> {
        Budgets::parse(text).unwrap().judge(&measured(), cores)[0].kept
    }

    #[test]
    fn built_in_budgets_parse_and_name_scenarios() {
        let budgets = Budgets::load(None).unwrap();
        assert!(budgets.budget.len() > 5);
        for place in
            budgets.budget.iter().flat_map(|one| [Some(&one.figure), one.over.as_ref(), one.minus.as_ref()])
        {
            let scenario = place.map(|place| place.split('/').next().unwrap_or_default());
            assert!(
                scenario.is_none_or(|name| Scenario::ALL.iter().any(|one| one.name() == name)),
                "{place:?}"
            );
        }
    }

    #[test]
    fn ratios_and_differences_are_compared() {
        let ratio = "[[budget]]\nname='r'\nfigure='fresh/ours/palisade'\nover='fresh/plain/palisade'\n";
        assert_eq!(judge(&format!("{ratio}max=0.125"), 2), Some(true));
        assert_eq!(judge(&format!("{ratio}max=0.12"), 2), Some(false));
        let minus =
            "[[budget]]\nname='m'\nfigure='fresh/plain/palisade'\nminus='fresh/ours/palisade'\nmax=13.9";
        assert_eq!(judge(minus, 2), Some(false));
    }

    #[test]
    fn a_least_is_less_where_there_are_fewer_cores() {
        let text = "[[budget]]\nname='t'\nfigure='throughput/rate/palisade'\nmin=400\ncores=2";
        assert_eq!((judge(text, 1), judge(text, 2), judge(text, 8)), (Some(true), Some(false), Some(false)));
    }

    #[test]
    fn what_was_not_measured_breaks_nothing() {
        assert_eq!(judge("[[budget]]\nname='n'\nfigure='fresh/none/palisade'\nmax=1", 2), None);
    }

    #[test]
    fn a_budget_has_one_bound() {
        assert!(Budgets::parse("[[budget]]\nname='n'\nfigure='a'").is_err());
        assert!(Budgets::parse("[[budget]]\nname='n'\nfigure='a'\nmax=1\nmin=1").is_err());
        assert!(Budgets::parse("[[budget]]\nname='n'\nfigure='a'\nmax=1\nunknown=1").is_err());
    }
}
