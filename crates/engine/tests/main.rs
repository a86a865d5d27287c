//! Tests of the engine's public interface over the fake backend: one binary, one module per behaviour.
//! `support` has the guest that obeys the program's lines.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod crash;
mod given;
mod links;
mod lying_guest;
mod packages;
mod runs;
mod spares;
mod store;
mod support;
mod walls;
