//! `palisade doctor` (being written).
use std::process::ExitCode;
use crate::cli::{DoctorArguments, Options};
pub(crate) fn main(_options: &Options, _arguments: &DoctorArguments) -> ExitCode { ExitCode::SUCCESS }
