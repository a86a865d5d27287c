//! The functional suite: one binary, one module per behaviour. What the modules share is the library in `src/`.
//!
//! `upheaval` has the tests that kill palisades or count what is left on the machine: they run alone
//! (`.config/nextest.toml`). The tests of every language are another binary, `languages/`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod admin;
mod admin_hostile;
mod approvals;
mod archives;
mod attached;
mod attacks_service;
mod audit;
mod backups;
mod bench;
mod command_line;
mod compiled;
mod contexts;
mod displays;
mod given;
mod http_connections;
mod http_oauth;
mod http_pages;
mod http_reload;
mod http_requests;
mod http_runs;
mod http_sessions;
mod http_slots;
mod http_wall;
mod http_websocket;
mod idempotency;
mod inventory;
mod javascript;
mod keys;
mod keys_hostile;
mod limits;
mod log;
mod manifests;
mod messages;
mod model_calls;
mod model_programs;
mod notebooks;
mod ordinary_bash;
mod ordinary_python;
mod ordinary_runs;
mod outcomes;
mod packages;
mod policies;
mod pool;
mod projects;
mod quotas;
mod refusals;
mod run_options;
mod sandbox_changes;
mod sandbox_cli;
mod sandbox_ends;
mod sandbox_files;
mod sandbox_idle;
mod sandbox_owners;
mod sandboxes;
mod shares;
mod shell_cli;
mod terminals;
mod typescript;
mod upheaval;
mod validate;
mod zygotes;
