//! The contract between Palisade and any isolation backend.
//!
//! The engine makes a [`SandboxSpec`] with limits from policy, and a [`Backend`] turns it into a [`Sandbox`]. The engine talks to the
//! guest through the sandbox's byte stream and reports an [`Outcome`]. This crate holds only those types, a
//! fake backend and the conformance suite that every backend must pass. It never starts a process itself.

mod backend;
pub mod conformance;
mod failures;
pub mod fake;
mod guarantee;
mod inventory;
mod limits;
mod outcome;
mod spec;
mod wall;
pub mod workspace;

pub use backend::{
    Backend, BackendError, BoxFuture, DiskHeld, Ending, Sandbox, StartPhases, Usage, Warmable,
};
pub use failures::{FailureCounts, FailureKind, Failures};
pub use guarantee::{Enforced, Enforcement, Guarantee, Mechanism};
pub use inventory::{Inventory, InventoryError, NamedBytes, Toolchain, ToolchainQuery, Tools};
pub use limits::Limits;
pub use outcome::Outcome;
pub use spec::{
    InUse, Layer, PROGRAM_PATH, PlacedFile, ReadOnlyBind, STACK_BYTES, SandboxSpec, SharedFolder, WORKSPACE,
    ZygoteSpec,
};
pub use wall::{Kernel, OWN_KERNEL, SHARED_KERNEL, WALLS, WallFacts};
pub use workspace::WorkspaceRef;
