//! npm of the host's Node, inside the builder.

use engine::packages::PackageVersion;
use serde_json::{Map, Value, json};

use super::{Job, TMP_MARK, variables};
use crate::broker;
use crate::inventory::UNKNOWN_VERSION;
use crate::requirement::Requirement;

/// The list of what npm installed, in its product.
pub(crate) const INSTALLED: &str = ".package-lock.json";
const PRODUCT: &str = "product/node_modules";

/// Resolves and installs. npm is beside the interpreter.
pub(crate) fn install(
    interpreter: &str,
    requirements: &[Requirement],
    present: &[PackageVersion],
    install_scripts: bool,
) -> Job {
    let folder = interpreter.rsplit_once('/').map_or("/usr/bin", |(folder, _)| folder);
    let npm = format!("{folder}/npm");
    let registry = format!("--registry={}/", broker::base());
    let mut argv: Vec<String> = [
        interpreter,
        &npm,
        "install",
        "--prefix=/workspace/product",
        &registry,
        "--cache=/workspace/cache",
        "--userconfig=/workspace/none",
        "--globalconfig=/workspace/none-global",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--no-package-lock",
        "--omit=dev",
        "--fetch-retries=0",
        "--fetch-timeout=600000",
        "--loglevel=error",
        "--color=false",
    ]
    .map(str::to_owned)
    .to_vec();
    if !install_scripts {
        argv.push("--ignore-scripts".to_owned());
    }
    let mut dependencies = Map::new();
    for requirement in requirements {
        let range = requirement.text[requirement.name.len()..].strip_prefix('@').unwrap_or("latest");
        dependencies.insert(requirement.name.clone(), json!(range.trim()));
    }
    let overrides: Map<String, Value> = present
        .iter()
        .filter(|one| !dependencies.contains_key(&one.name) && one.version != UNKNOWN_VERSION)
        .map(|one| (one.name.clone(), json!(one.version)))
        .collect();
    let manifest = json!({"private": true, "dependencies": dependencies, "overrides": overrides});
    let files = vec![
        ("product/package.json".to_owned(), manifest.to_string().into_bytes()),
        // The product exists even if nothing is installed.
        (format!("{PRODUCT}/.lock"), Vec::new()),
        (TMP_MARK.to_owned(), Vec::new()),
    ];
    let env = variables(&[
        ("TMPDIR", "/workspace/tmp"),
        ("NO_PROXY", "*"),
        ("NODE_OPTIONS", ""),
        ("npm_config_offline", "false"),
    ]);
    Job { language: "javascript", argv, env, files, layers: Vec::new(), in_use: None, product: PRODUCT }
}
