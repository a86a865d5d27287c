//! What was measured, for people and for machines.

mod table;

use std::fs;
use std::io;
use std::path::Path;

pub(super) use self::table::print;
use super::Report;

/// Writes everything into a folder.
pub(super) fn write(folder: &Path, report: &Report) -> io::Result<()> {
    let json = serde_json::to_string(report).map_err(io::Error::other)?;
    fs::write(folder.join("results.json"), json + "\n")
}
