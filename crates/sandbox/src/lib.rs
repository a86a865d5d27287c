//! The contract between Palisade and any wall.
//!
//! Policy produces a [`SandboxSpec`], a [`Backend`] turns it into a [`Sandbox`], the engine talks to what is
//! inside through the sandbox's byte stream and reports an [`Outcome`]. This crate holds only those types, a
//! fake backend and the suite that every backend must pass; it never starts anything itself.

mod backend;
pub mod conformance;
mod failures;
pub mod fake;
mod guarantee;
mod limits;
mod outcome;
mod spec;

pub use backend::{Backend, BackendError, BoxFuture, DiskHeld, Ending, Sandbox, StartPhases, Usage};
pub use failures::{FailureCounts, FailureKind, Failures};
pub use guarantee::{Enforced, Enforcement, Guarantee, Mechanism};
pub use limits::Limits;
pub use outcome::Outcome;
pub use spec::{LastingWorkspace, PlacedFile, ReadOnlyBind, SandboxSpec, WORKSPACE, ZygoteSpec};
