//! The broker for tools: programs in sandboxes call the tools of other servers through it.
//!
//! A run whose `access` opens tool servers gets a Unix socket inside ([`engine::links::TOOLS_SOCKET`]). A program writes one
//! JSON object a line and reads one answer for each, in any order (docs/CODEMODE.md). The parts:
//!
//! ```text
//! book      AccessBook: the names of access that open tool servers, beside those of the web
//!   session   one run: what it may call, its budgets, its labels, its counts
//!     serve     one link: lines in, answers out, calls in between
//!       request   one line, checked
//!       call      one call: granted? budget? rules, labels, human; then the server
//! labels, shelf   what sticks to persistent sandboxes; what programs save
//! ```
//! What must hold:
//! - A program gets nothing that its run was not granted. Grants end with the run.
//! - Every call is judged, counted and recorded before the server hears of it. No call is sent twice.
//! - What a program sends, however much and however malformed, uses bounded memory and harms only its own run.
//! - A program that does not read its answers blocks its own calls.

mod book;
#[cfg(test)]
mod budget_tests;
mod call;
pub mod command;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
#[cfg(test)]
mod host_tests;
mod index;
#[cfg(test)]
mod label_tests;
mod labels;
mod rates;
mod request;
#[cfg(test)]
mod rules_tests;
mod serve;
mod session;
mod shelf;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::book::{ToolBook, ToolBookParts};

/// The longest request: one line.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;
/// The longest answer: a result of [`RESULT_BYTES_MAX`] as base64, and room for its frame.
pub const ANSWER_BYTES_MAX: usize = 12 << 20;
/// The most values in one request.
pub const REQUEST_ITEMS_MAX: usize = 100_000;
/// The calls of one run.
pub const CALLS_MAX: u64 = 1000;
/// The calls of one run that are with servers at the same time. Further ones wait.
pub const IN_FLIGHT_MAX: usize = 16;
/// The same for one server.
pub const IN_FLIGHT_OF_SERVER_MAX: usize = 8;
/// The requests of one run that are not answered. Beyond, its lines are not read.
pub const OPEN_REQUESTS_MAX: usize = 128;
/// A longer request is a large one.
pub const SMALL_REQUEST_BYTES_MAX: usize = 64 << 10;
/// The large requests of one run that are not answered. Beyond, a link with a further one waits.
pub const LARGE_REQUESTS_MAX: usize = 4;
/// How long a call may take.
pub const CALL_PATIENCE: Duration = Duration::from_secs(60);
/// The largest result.
pub const RESULT_BYTES_MAX: usize = 8 << 20;
/// The results of one run together.
pub const RUN_BYTES_MAX: u64 = 64 << 20;
/// The calls of one principal in a minute.
pub const CALLS_PER_MINUTE_MAX: u32 = 6000;
/// The requests of one principal in a minute, of every kind but `cancel`.
pub const REQUESTS_PER_MINUTE_MAX: u32 = 20_000;
/// The requests of one run that read or write files at the same time. Further ones wait.
pub const DISK_REQUESTS_MAX: usize = 2;
