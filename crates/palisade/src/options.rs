//! Options that every command accepts.

use std::path::PathBuf;

use clap::Args;

use crate::walls::Named;

/// Options of every command.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct Options {
    /// Where state is kept (or PALISADE_STATE_DIR)
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Accept that a guarantee cannot be enforced here (repeatable; see `palisade doctor`)
    #[arg(long = "allow-missing", global = true, value_name = "GUARANTEE")]
    pub(crate) allow_missing: Vec<String>,
    /// How much is logged: error, warn, info, debug or trace (or PALISADE_LOG)
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// How log lines look: json, pretty, or auto, which is pretty on a terminal (or PALISADE_LOG_FORMAT)
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
    /// Send spans of runs to an OpenTelemetry collector, as OTLP/JSON over HTTP (or PALISADE_OTLP_ENDPOINT)
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
    /// The walls that the command names itself.
    #[arg(skip)]
    pub(crate) walls: Named,
}
