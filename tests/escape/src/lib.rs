//! The escape suite: real attack programs, run behind the walls and, to prove that they are attacks, without.
//!
//! `attacks/` holds one program per file; its first lines say what it tries and which walls stop it
//! ([`attack`]). [`bait`] opens on the host what they aim at, [`trial`] runs one and judges it, [`host_view`] looks at the host meanwhile. The tests
//! themselves are the modules of `main.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite fails by panicking")]

pub mod attack;
pub mod bait;
pub mod host_view;
pub mod lasting;
pub mod leased;
pub mod nature;
pub mod trial;
