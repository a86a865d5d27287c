//! A wall at the other end of a byte stream, for tests: it stands in for a wall on another machine.
//!
//! [`RelayBackend`] is the client half, which an engine uses like any other backend. The other half is a
//! separate process with a spawner, a native wall and a state directory ([`RelayProcess`]). Only bytes pass
//! between them: no file descriptor, and no path of either machine that the other could use. What works over
//! the relay needs nothing of the host from the contract.
//!
//! Tests of any backend find here what the conformance suite needs: [`WireGuest`] runs commands in sandboxes,
//! and [`Broken`] breaks the contract in one area.

mod broken;
mod client;
mod frame;
mod link;
mod process;
mod protocol;
mod pump;
mod server;
mod shell;

pub use broken::Broken;
pub use client::RelayBackend;
pub use link::Tap;
pub use process::RelayProcess;
pub use server::{become_guest, take_role};
pub use shell::WireGuest;
