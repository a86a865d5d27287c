//! Go modules: the protocol of module proxies, with the checksum database that they pass on.
//!
//! ```text
//! go command in the builder -- /MODULE/@v/... --> rules, age --> mirror
//!                           -- /sumdb/NAME/... ------------->  mirror
//! ```
//! The go command chooses versions, compares every module with the checksum database, and unpacks. The broker passes on what
//! the protocol knows and nothing else. It serves the archive of a module only after the operator's rules and the age of its
//! version were examined. `go.mod` files are served without that: the graph of a program names many modules whose code it
//! never uses.

pub(crate) mod explain;
pub(crate) mod names;
mod request;
pub(crate) mod serve;

pub(crate) use self::names::{check, is_module_path};
pub(crate) use self::serve::{Answer, answer};
