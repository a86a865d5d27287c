//! Whose events are shown: those of Palisade's own crates, and of nobody else.
//!
//! The list says who may speak, not who may not: a library that is added later is silent until somebody reads what it
//! says. rmcp's events hold the arguments of tools, hyper's the headers, and with them the tokens.

/// The crates whose events are written with regard to what a log may hold.
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

/// Whether a target, which is the path of a module, is in one of Palisade's own crates.
pub(super) fn is_own(target: &str) -> bool {
    let name = target.split_once("::").map_or(target, |(name, _)| name);
    OWN_CRATES.contains(&name)
}
