//! Layers: which crate of the workspace may use which, and which crates may use MCP and HTTP libraries.
//!
//! The table equals that of docs/ARCHITECTURE.md; change both together. Development dependencies are not
//! restricted, because a test may need any crate. A crate of the table that does not exist (yet) breaks no
//! rule.

use toml::de::{DeTable, DeValue};

use super::Violation;
use crate::tree::{File, Tree};

const RULE: &str = "layers";

/// A crate, and the crates of the workspace that it may use.
const ALLOWED: [(&str, &[&str]); 20] = [
    ("wire", &[]),
    ("sandbox", &[]),
    ("jail", &[]),
    ("syntax", &[]),
    ("policy", &["sandbox"]),
    ("audit", &[]),
    ("backends", &["sandbox", "jail"]),
    ("guest", &["wire"]),
    ("zygote", &["jail", "guest"]),
    ("static-guest", &["jail", "guest"]),
    ("engine", &["sandbox", "policy", "audit", "wire"]),
    ("egress", &["engine", "sandbox"]),
    ("packages", &["engine", "egress", "sandbox"]),
    ("upstreams", &["engine", "policy", "sandbox"]),
    ("mcp", &["engine", "policy", "sandbox", "wire"]),
    ("service", &["mcp", "engine", "policy", "terminal"]),
    ("terminal", &[]),
    ("setup", &["terminal"]),
    ("bench", &["engine", "terminal"]),
    (
        "palisade",
        &[
            "egress",
            "engine",
            "audit",
            "backends",
            "policy",
            "sandbox",
            "guest",
            "jail",
            "wire",
            "syntax",
            "mcp",
            "packages",
            "service",
            "setup",
            "bench",
            "terminal",
            "upstreams",
        ],
    ),
];

/// Families of external crates, and the crates that may use them: `axum` includes `axum-extra`.
const KEPT: [(&str, &[&str]); 2] = [("rmcp", &["mcp", "service"]), ("axum", &["service"])];

/// A dependency as a manifest names it.
struct Dependency {
    package: String,
    line: usize,
}

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for manifest in tree.under("crates/") {
        let Some(name) = crate_of_manifest(&manifest.path) else { continue };
        match dependencies(manifest) {
            Ok(found) => violations.extend(found.iter().filter_map(|d| judge(manifest, name, d))),
            Err(message) => violations.push(Violation::new(&manifest.path, 1, RULE, message)),
        }
        if allowed(name).is_none() {
            let message =
                format!("crate `{name}` has no row in the table of layers: give it one, on purpose");
            violations.push(Violation::new(&manifest.path, 1, RULE, message));
        }
    }
    violations
}

/// `wire` for `crates/wire/Cargo.toml`.
fn crate_of_manifest(path: &str) -> Option<&str> {
    let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    (!name.contains('/')).then_some(name)
}

fn allowed(name: &str) -> Option<&'static [&'static str]> {
    ALLOWED.iter().find(|(user, _)| *user == name).map(|(_, used)| *used)
}

fn judge(manifest: &File, user: &str, dependency: &Dependency) -> Option<Violation> {
    let used = dependency.package.as_str();
    let kept = KEPT.iter().find(|(family, _)| {
        used.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
    });
    let message = match kept {
        Some((_, keepers)) if !keepers.contains(&user) => {
            format!("only {} may depend on {used}", keepers.join(" and "))
        }
        Some(_) => return None,
        None if allowed(used).is_none() => return None,
        None if allowed(user).is_some_and(|list| list.contains(&used)) => return None,
        None => format!("`{user}` may not depend on `{used}`"),
    };
    Some(Violation::new(&manifest.path, dependency.line, RULE, message))
}

/// Everything that the crate is built from: plain, build and per-target dependencies.
fn dependencies(manifest: &File) -> Result<Vec<Dependency>, String> {
    let parsed = DeTable::parse(&manifest.text).map_err(|e| format!("not TOML: {}", e.message()))?;
    let root = parsed.get_ref();
    let mut found = Vec::new();
    collect(&manifest.text, root, &mut found);
    if let Some(DeValue::Table(targets)) = root.get("target").map(|value| value.get_ref()) {
        for target in targets.values() {
            if let DeValue::Table(table) = target.get_ref() {
                collect(&manifest.text, table, &mut found);
            }
        }
    }
    Ok(found)
}

fn collect(text: &str, table: &DeTable<'_>, found: &mut Vec<Dependency>) {
    for section in ["dependencies", "build-dependencies"] {
        let Some(DeValue::Table(entries)) = table.get(section).map(|value| value.get_ref()) else { continue };
        for (key, value) in entries {
            let package = renamed_package(value.get_ref()).unwrap_or_else(|| key.get_ref().to_string());
            let before = text.get(..key.span().start).unwrap_or_default();
            found.push(Dependency { package, line: before.matches('\n').count() + 1 });
        }
    }
}

/// The real name behind `alias = { package = "name" }`.
fn renamed_package(value: &DeValue<'_>) -> Option<String> {
    let DeValue::Table(table) = value else { return None };
    match table.get("package")?.get_ref() {
        DeValue::String(name) => Some(name.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn found(name: &str, manifest: &str) -> Vec<String> {
        let path = format!("crates/{name}/Cargo.toml");
        places(&check(&Tree::of(&[(path.as_str(), manifest)])))
    }

    #[test]
    fn allowed_arrows_pass() {
        assert!(found("engine", "[dependencies]\nsandbox.workspace = true\nserde = \"1\"\n").is_empty());
        assert!(found("mcp", "[dependencies]\nwire = { workspace = true }\nrmcp = \"1\"\n").is_empty());
    }

    #[test]
    fn engine_never_names_a_backend() {
        let manifest = "[package]\nname = \"engine\"\n[dependencies]\nbackends.workspace = true\n";
        assert_eq!(found("engine", manifest), ["crates/engine/Cargo.toml:4: layers"]);
    }

    #[test]
    fn every_spelling_of_a_dependency_counts() {
        assert_eq!(found("wire", "[dependencies.jail]\npath = \"../jail\"\n").len(), 1);
        assert_eq!(
            found("wire", "[dependencies]\nx = { package = \"jail\", path = \"../jail\" }\n").len(),
            1
        );
        assert_eq!(found("wire", "[target.'cfg(unix)'.dependencies]\njail.workspace = true\n").len(), 1);
        assert_eq!(found("wire", "[build-dependencies]\njail.workspace = true\n").len(), 1);
    }

    #[test]
    fn development_dependencies_are_free() {
        assert!(found("wire", "[dev-dependencies]\nengine.workspace = true\naxum = \"1\"\n").is_empty());
    }

    #[test]
    fn only_the_surfaces_speak_mcp_and_http() {
        for outside in ["engine", "palisade"] {
            assert_eq!(found(outside, "[dependencies]\nrmcp = \"1\"\naxum-extra = \"1\"\n").len(), 2);
        }
        assert_eq!(found("mcp", "[dependencies]\nrmcp = \"1\"\naxum = \"1\"\n").len(), 1);
        assert!(found("service", "[dependencies]\nrmcp = \"1\"\naxum = \"1\"\n").is_empty());
        assert!(found("engine", "[dependencies]\naxumite = \"1\"\n").is_empty());
    }

    #[test]
    fn a_crate_without_a_row_is_reported() {
        assert_eq!(found("attic", "[package]\n"), ["crates/attic/Cargo.toml:1: layers"]);
    }

    #[test]
    fn a_manifest_that_is_not_toml_is_reported() {
        assert_eq!(found("wire", "[dependencies\n"), ["crates/wire/Cargo.toml:1: layers"]);
    }
}
