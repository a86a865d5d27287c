//! The escape suite: one binary. `cargo test -p escape suite::`, `lasting::` and `leased::` run the attacks in fresh,
//! persistent and pre-built sandboxes; what the modules share is the library in `src/`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite fails by panicking")]

mod ends;
mod lasting;
mod leased;
mod other_walls;
mod suite;
mod walls;
mod words;
