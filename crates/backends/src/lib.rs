//! Walls that Palisade can put around a run. A backend knows nothing of users, languages or MCP.

pub mod native;
