//! Packages as layers by content.
//!
//! [`Packages`] is the [`engine::packages::PackageBook`] of a server. A set of requirements becomes a layer:
//!
//! ```text
//! requirements -> recall (sets/<key> -> layers/<digest>)
//!             \-> builder sandbox: uv, npm or go -- grant --> broker: filtered index, verified blobs -- fetch --> mirror
//!                      \-> product, read out by descriptor -> layers/new-* -> renamed to layers/<digest>
//! ```
//!
//! What must hold:
//! - The host never executes or unpacks a package. The resolver runs behind the wall, without egress; its only
//!   connection is the broker.
//! - The broker serves a file only after its digest was compared with that of the index. The archives of Go modules are
//!   compared by the go command, which knows the key of the checksum database.
//! - A layer is complete or absent, also after a kill, and for any number of servers that share the state directory.
//! - No resolver is written here. Versions are chosen by the ecosystem's own tool.

mod blobs;
mod book;
mod broker;
mod catalogue;
mod clock;
mod discover;
mod errors;
mod explain;
mod fetch;
mod files;
mod flights;
mod go;
mod index;
mod inventory;
mod layers;
mod nearest;
mod requirement;
mod rules;
mod session;
mod settings;
#[cfg(test)]
mod test_mirror;
mod tools;
mod transfer;

pub use book::Packages;
pub use catalogue::{Catalogue, ListedLayer, Removed};
pub use discover::{ClientSettings, client_settings};
pub use fetch::MirrorHealth;
pub use requirement::{Requirement, check_requirement};
pub use rules::{Pattern, Rules};
pub use settings::{Bounds, Mirror, NO_DATABASE, PUBLIC_DATABASE, PackagesConfig, Patience, is_database};
pub use transfer::{TransferError, Transferred, export, import};
