//! Generates the texts of the files from the server's published lists and its dependencies. Pure.
//!
//! The files contain nothing of a single publisher: no address, no person, no checksum. docs/PUBLISHING.md
//! describes what a publisher adds.

use serde_json::{Value, json};

use super::Manifest;

/// Everything that the server publishes, for people and scanners.
pub(super) const TOOLS: &str = "tools.json";
/// The same tools as a scanner reads them, each with the dependencies of the program.
const SCANNED: &str = "scanner/tools.json";
/// The name of the Rust registry in databases of vulnerabilities (OSV).
const ECOSYSTEM: &str = "crates.io";
const SERVER: &str = "server.json";
const BUNDLE: &str = "mcpb/manifest.json";

/// The registry requires a name that belongs to a domain; publishers replace it with their own.
const REGISTRY_NAME: &str = "dev.palisade/palisade";
const REGISTRY_SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";
const BUNDLE_VERSION: &str = "0.3";
const BUNDLE_PROGRAM: &str = "bin/palisade";
const AUTHOR: &str = "The Palisade authors";

/// Every file.
pub(super) fn all(published: &Value, dependencies: &Value) -> Vec<Manifest> {
    let licence = own_licence(published, dependencies);
    let mut files = [
        (TOOLS, tools(published, dependencies)),
        (SERVER, server(published)),
        (BUNDLE, bundle(published, licence)),
    ]
    .map(|(name, value)| (name, format!("{value:#}\n")))
    .to_vec();
    files.push((SCANNED, scanned(published, dependencies)));
    files
}

/// One line per tool, because each repeats the list of dependencies.
fn scanned(published: &Value, dependencies: &Value) -> String {
    let all = dependencies.as_array().into_iter().flatten();
    // A crate of this repository could have the name of another one in the registry.
    let others = all.filter(|one| one["own"] != true);
    let needs: Vec<Value> = others
        .map(|one| json!({ "name": one["name"], "version": one["version"], "ecosystem": ECOSYSTEM }))
        .collect();
    let tools = published["tools"].as_array().into_iter().flatten().map(|tool| {
        let scanned = json!({
            "name": tool["name"],
            "description": tool["description"],
            "inputSchema": tool["inputSchema"],
            "metadata": { "dependencies": needs },
        });
        scanned.to_string()
    });
    format!("{{\"tools\": [\n{}\n]}}\n", tools.collect::<Vec<_>>().join(",\n"))
}

fn own_licence<'a>(published: &Value, dependencies: &'a Value) -> &'a Value {
    let own = |one: &&Value| one["name"] == published["server"]["name"];
    dependencies.as_array().into_iter().flatten().find(own).map_or(&Value::Null, |one| &one["license"])
}

fn tools(published: &Value, dependencies: &Value) -> Value {
    let mut whole = json!({});
    for part in ["server", "instructions", "protocol_versions", "languages", "tools"] {
        whole[part] = published[part].clone();
    }
    whole["dependencies"] = dependencies.clone();
    whole
}

/// For the registry of MCP servers.
fn server(published: &Value) -> Value {
    let server = &published["server"];
    json!({
        "$schema": REGISTRY_SCHEMA,
        "name": REGISTRY_NAME,
        "title": server["title"],
        "description": server["description"],
        "version": server["version"],
    })
}

/// For bundles that desktop clients install.
fn bundle(published: &Value, licence: &Value) -> Value {
    let server = &published["server"];
    let tools: Vec<Value> = published["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|tool| json!({ "name": tool["name"], "description": tool["description"] }))
        .collect();
    json!({
        "manifest_version": BUNDLE_VERSION,
        "name": server["name"],
        "display_name": server["title"],
        "version": server["version"],
        "description": server["description"],
        "author": { "name": AUTHOR },
        "server": {
            "type": "binary",
            "entry_point": BUNDLE_PROGRAM,
            "mcp_config": { "command": format!("${{__dirname}}/{BUNDLE_PROGRAM}"), "args": ["mcp"], "env": {} },
        },
        "tools": tools,
        "tools_generated": false,
        "keywords": ["sandbox", "isolation", "interpreter"],
        "license": licence,
        "compatibility": { "platforms": ["linux"] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<(&'static str, Value)> {
        let published = json!({
            "server": { "name": "palisade", "title": "Palisade", "version": "1.2.3", "description": "Runs things" },
            "instructions": "x",
            "protocol_versions": ["2025-11-25"],
            "languages": ["python"],
            "tools": [{ "name": "run", "description": "Run it", "inputSchema": {} }],
        });
        let dependencies = json!([{ "name": "palisade", "version": "1.2.3", "license": "Apache-2.0" }]);
        let parse = |(name, text): Manifest| (name, serde_json::from_str(&text).unwrap());
        all(&published, &dependencies).into_iter().map(parse).collect()
    }

    fn file(name: &str) -> Value {
        files().into_iter().find(|(other, _)| *other == name).unwrap().1
    }

    #[test]
    fn the_bundle_starts_the_program_that_is_in_it() {
        let bundle = file(BUNDLE);
        assert_eq!(bundle["server"]["mcp_config"]["command"], "${__dirname}/bin/palisade");
        assert_eq!(bundle["tools"], json!([{ "name": "run", "description": "Run it" }]));
        assert_eq!((&bundle["version"], &bundle["license"]), (&json!("1.2.3"), &json!("Apache-2.0")));
    }

    #[test]
    fn the_registry_gets_what_it_takes() {
        let server = file(SERVER);
        let size = server["description"].as_str().unwrap().len();
        assert!((1..=100).contains(&size));
        assert_eq!(server["name"].as_str().unwrap().matches('/').count(), 1);
        assert_eq!(server["version"], "1.2.3");
    }

    #[test]
    fn no_address_but_that_of_the_schema_is_in_them() {
        for (name, value) in files() {
            let text = value.to_string().replace(REGISTRY_SCHEMA, "");
            assert!(!text.contains("://") && !text.contains('@'), "{name}: {text}");
        }
    }
}
