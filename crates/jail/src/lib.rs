//! Turns a [`JailPlan`] into an isolated process.
//!
//! A *wall* in this crate is one isolation layer: a namespace, the private root, Landlock, the system-call
//! filter, and so on. The native backend sends plans to a [`Spawner`]: a small single-threaded process,
//! forked from the server before the server has threads or secrets. The spawner clones itself. The clone
//! raises its own walls (`raise`), reports, and becomes the guest without another exec. The guest may start
//! an interpreter at once. The host sends a program only after it has examined the process from outside and
//! given its consent.
//!
//! A [`Zygote`] is a second kind of spawner: it carries a warm interpreter, and each clone receives a copy of
//! it.
//!
//! All unsafe code is in `sys`. This crate knows nothing about users, policies or languages.

mod attach;
mod breach;
mod container;
mod folders;
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

pub use attach::AttachPlan;
pub use breach::Wall;
pub use container::{
    CONTAINER_PLAN_BYTES_MAX, GUEST_ROLE, Kernel, REPORT_MARK, STAGE_ROLE, Stage, StagedRoot, container_plan,
    container_report, encode_stage, enter_container, leave_container, meet_host, stage, stage_from,
};
pub use identity::{INSIDE_ID, IdMap, ZYGOTE_ID, ZygoteIds};
pub use network::SETTINGS as NETWORK_SETTINGS;
pub use plan::{
    Bind, FOLDERS_MAX, JailPlan, LINGER_MS_MAX, PlanFile, PlanFolder, Rlimits, Scratch, ZygotePlan,
};
pub use procfs::{MASKED as PROC_MASKED, READONLY_DIRECTORIES as PROC_READONLY};
pub use raise::accept_consent;
pub use report::{JailError, Message, RECEIVE_BYTES_MAX, Reason, receive, send_go, send_groups};
pub use root::DEVICES;
pub use seccomp::HOLDING_CALLS;
pub use spawner::{GuestMain, PLAN_BYTES_MAX, Spawner, take_plans};
pub use step::step_of;
pub use zygote::{Handover, Left, Zygote, ZygoteFds, let_go_of_interpreter, serve_zygote};
