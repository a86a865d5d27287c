//! Isolation backends of Palisade. A backend knows nothing about users, languages or MCP.

pub mod native;
