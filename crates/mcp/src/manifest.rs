//! A role of the binary: prints the published tools, resources and prompts, identically on every machine.
//!
//! `cargo xtask manifests` writes the files in `manifests/` from this output. A test compares them with the
//! answers of a running server. The output has all languages, whether they work on this machine or not, and
//! the built-in limits.

use std::io::Write;
use std::process::ExitCode;

use engine::packages::Ecosystem;
use policy::Policy;
use serde_json::{Value, json};

use super::handler::{implementation, instructions};
use super::{VERSIONS, tools};

/// First argument that chooses this role.
const ROLE: &str = "__manifest";
/// The policy requires a number of cores; the output does not depend on it.
const CORES: u32 = 1;

/// Takes the role if the first argument selects it.
pub fn take_role() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ROLE || arguments.next().is_some() {
        return None;
    }
    let text = serde_json::to_string_pretty(&published()).unwrap_or_default();
    let is_out = writeln!(std::io::stdout().lock(), "{text}").is_ok();
    Some(if is_out { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn published() -> Value {
    let mut languages: Vec<String> = engine::runtimes::languages().map(str::to_owned).collect();
    languages.sort();
    let policy = Policy::built_in(CORES);
    let tools = tools::published(&tools::Offer {
        packages: &Ecosystem::ALL,
        ..tools::Offer::bare(&languages, &policy)
    });
    json!({
        "server": implementation(),
        "instructions": instructions(&[]),
        "protocol_versions": VERSIONS,
        "languages": languages,
        "tools": tools,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_and_every_language_is_in_it() {
        let published = published();
        let tools = published["tools"].as_array().unwrap();
        let run = tools.iter().find(|tool| tool["name"] == tools::run::NAME).unwrap();
        assert_eq!(run["inputSchema"]["properties"]["language"]["enum"], published["languages"]);
        assert!(published["languages"].as_array().unwrap().len() >= 4);
        assert_eq!(published["server"]["version"], env!("CARGO_PKG_VERSION"));
        assert!(published["protocol_versions"].as_array().unwrap().iter().all(Value::is_string));
    }

    #[test]
    fn the_number_of_cores_does_not_change_it() {
        let languages = ["python".to_owned()];
        let of = |cores| json!(tools::published(&tools::Offer::bare(&languages, &Policy::built_in(cores))));
        assert_eq!(of(1), of(64));
    }
}
