//! Selects the events that are logged: only those of Palisade's own crates.
//!
//! The list is an allow-list. A library that is added later is silent until its events are reviewed. The
//! events of rmcp hold the arguments of tools. Those of hyper hold headers, and with them tokens.

/// The crates whose events are safe to log.
const OWN_CRATES: [&str; 14] = [
    "audit",
    "backends",
    "bench",
    "egress",
    "engine",
    "jail",
    "mcp",
    "palisade",
    "policy",
    "sandbox",
    "service",
    "setup",
    "syntax",
    "upstreams",
];

/// Whether a target (the path of a module) is in one of Palisade's own crates.
pub(super) fn is_own(target: &str) -> bool {
    let name = target.split_once("::").map_or(target, |(name, _)| name);
    OWN_CRATES.contains(&name)
}
