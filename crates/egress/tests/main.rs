//! Hostile programs at the gate: each sends bytes to a session, and the origin and the resolver tell what came of it.
//!
//! Everything is on loopback addresses of this machine. No wall is needed: a session serves any byte stream.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bounds;
mod heads;
mod names;
mod secrets;
mod servers;
mod stage;
mod truncated;
mod tunnels;
