//! The broker for tools: other MCP servers, their tools, and what programs need to know about them.

mod answers;
pub mod broker;
mod catalogue;
mod clean;
mod client;
mod host;
mod learning;
mod oauth;
#[cfg(test)]
mod played;
mod redact;
#[cfg(test)]
mod secret_tests;
mod server;
mod shape;
mod spec;
mod stubs;
pub mod supervisor;
mod tls;
mod upstreams;
mod view;
mod wall;

pub use client::process::DEPTH_VARIABLE;
pub use host::{
    Dialect, Effect, FindQuery, FoundTool, FoundTools, IsHidden, LearnedShape, ResourceRead, ServerInfo,
    ServerState, ToolAccess, ToolAnswer, ToolCall, ToolDefinition, ToolError, ToolErrorCode, ToolHost,
    ToolName, ToolStanding, Viewer,
};
pub use oauth::Login;
pub use spec::{
    Glob, HttpSpec, IDLE_DEFAULT, SERVERS_MAX, ServerSpec, ServerWall, StdioSpec, TIMEOUT_DEFAULT, Template,
    ToolRules, Transport, is_variable,
};
pub use upstreams::{HeldTool, Upstreams, UpstreamsConfig, fill_catalogue};
pub use wall::{WalledEnd, WalledProcess, WalledProgram, WalledStart};
