//! The report, for people and for machines.

mod json;
mod svg;
mod table;

use std::fs;
use std::io;
use std::path::Path;

pub(super) use self::json::value;
pub(super) use self::table::print;
use super::Report;

/// Writes the report into a folder: `results.json`, and a plot of each plottable scenario.
pub(super) fn write(folder: &Path, report: &Report) -> io::Result<()> {
    fs::write(folder.join("results.json"), format!("{}\n", value(report).map_err(io::Error::other)?))?;
    for (name, plot) in svg::plots(report) {
        fs::write(folder.join(name), plot)?;
    }
    Ok(())
}
