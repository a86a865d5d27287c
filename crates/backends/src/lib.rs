//! Isolation backends of Palisade. A backend knows nothing about users or MCP, and a language only as a query
//! of the engine.

pub mod daemon;
pub mod host;
pub mod native;
pub mod oci;
