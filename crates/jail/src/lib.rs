//! Turns a [`JailPlan`] into a process behind walls.
//!
//! The native backend sends plans to a [`Spawner`]: a small single-threaded process forked from the server
//! before it has threads or secrets. The spawner clones; the clone raises its own walls (`raise`), reports,
//! and becomes the guest without another exec. It may start an interpreter at once; a program is sent only
//! after the host has looked at it from outside and consented. Everything unsafe is in `sys`.
//!
//! A [`Zygote`] is a second kind of spawner, which carries a warm interpreter: a copy of it comes with each clone.
//!
//! This crate knows nothing of users, policies or languages.

mod breach;
mod identity;
mod landlock_wall;
mod network;
mod plan;
mod privileges;
mod procfs;
mod raise;
mod removal;
mod report;
mod root;
mod seccomp;
mod spawner;
mod step;
mod sys;
mod zygote;

pub use breach::Wall;
pub use identity::{INSIDE_ID, IdMap, ZYGOTE_ID, ZygoteIds};
pub use plan::{Bind, JailPlan, LINGER_MS_MAX, PlanFile, Rlimits, Scratch, ZygotePlan};
pub use raise::accept_consent;
pub use report::{JailError, Message, RECEIVE_BYTES_MAX, Reason, receive, send_go, send_groups};
pub use spawner::{GuestMain, PLAN_BYTES_MAX, Spawner};
pub use step::step_of;
pub use zygote::{Handover, Left, Zygote, ZygoteFds, let_go_of_interpreter, serve_zygote};
