//! `get_capabilities` and the resource with the same content: the results of the checks of this machine.

use engine::{
    ARGS_MAX, CODE_BYTES_MAX, Caller, INPUT_BYTES_MAX, INPUTS_MAX, QuotaUse, RunError, Runtime,
    VARIABLES_BYTES_MAX,
};
use policy::Policy;
use rmcp::model::{CallToolResult, JsonObject};
use sandbox::{Enforcement, Guarantee, Limits};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Effects, Needs, Scope, ToolEntry, answer, refused};
use crate::checks::{Canary, Findings, Language};
use crate::render::INLINE_BYTES_MAX;
use crate::view::IsolationView;
use crate::{Server, schema};

/// Address of the resource with the same content.
pub(crate) const URI: &str = "palisade://capabilities";

/// Packages that the answer lists by name. The answer also has the total number of packages.
const NOTABLE: [&str; 40] = [
    "aiohttp",
    "beautifulsoup4",
    "bokeh",
    "cryptography",
    "duckdb",
    "httpx",
    "ipython",
    "jinja2",
    "lxml",
    "matplotlib",
    "networkx",
    "nltk",
    "numba",
    "numpy",
    "opencv-python",
    "openpyxl",
    "pandas",
    "pillow",
    "plotly",
    "polars",
    "pyarrow",
    "pydantic",
    "pypdf",
    "pytest",
    "python-docx",
    "pyyaml",
    "regex",
    "reportlab",
    "requests",
    "scikit-image",
    "scikit-learn",
    "scipy",
    "seaborn",
    "shapely",
    "spacy",
    "statsmodels",
    "sympy",
    "torch",
    "tqdm",
    "xgboost",
];

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// The tool.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: "get_capabilities",
    title: "What this sandbox can do",
    description: "Show the languages that work here with versions and notable packages, limits with \
defaults and maxima, the isolation in force, and the policy.",
    effects: Effects::ReadsOnly,
    scope: Scope::Run,
    needs: Needs::Nothing,
    properties: &[],
    input: |_| schema::nothing(),
    output,
    call: |call| Box::pin(async move { show(call.server, call.caller, call.given).await.into() }),
};

async fn show(server: &Server, caller: &Caller, given: JsonObject) -> CallToolResult {
    match TOOL.arguments(given) {
        Ok(_) => {
            let findings = server.checks.all().await;
            let (mut content, mut text) =
                (content(server, &findings), summary(server.engine.policy(), &findings));
            match server.runs.sandboxes().quotas_in_use(caller).await {
                Ok(quotas) if quotas.is_empty() => {}
                Ok(quotas) => {
                    content["quotas"] = quotas_view(&quotas);
                    text.push_str(&format!("\n{}", quotas_line(&quotas)));
                }
                Err(error) => text.push_str(&format!("\nquotas: not known ({})", error.code)),
            }
            text.push_str(&format!("\n{}", packages_line(server)));
            answer(&content, text, false)
        }
        Err(error) => refused(&error),
    }
}

/// Whether packages can be installed here, and which.
fn packages(server: &Server) -> Value {
    match server.engine.package_book() {
        None => json!({ "enabled": false }),
        Some(book) => json!({
            "enabled": true,
            "ecosystems": book.offered().iter().map(|one| one.name()).collect::<Vec<_>>(),
            "minimum_age_days": book.minimum_age().as_secs() / DAY_S,
        }),
    }
}

fn packages_line(server: &Server) -> String {
    let Some(book) = server.engine.package_book() else {
        return "packages: none can be installed here".to_owned();
    };
    let names = book.offered().iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    let age = match book.minimum_age().as_secs() / DAY_S {
        0 => String::new(),
        days => format!("; versions younger than {days} days are not used"),
    };
    format!("packages: can be installed from {names}{age}")
}

/// Content of the resource.
pub(crate) async fn read(server: &Server) -> String {
    let findings = server.checks.all().await;
    content(server, &findings).to_string()
}

fn content(server: &Server, findings: &Findings) -> Value {
    let policy = server.engine.policy();
    let unavailable = findings.unavailable.iter().map(|(name, error)| {
        let error = RunError::new(error.code(), error.to_string()).remedy(error.remedy());
        json!({ "name": name, "code": error.code, "reason": error.message, "remedy": error.remedy })
    });
    json!({
        "server": { "name": crate::NAME, "version": env!("CARGO_PKG_VERSION") },
        "languages": findings.languages.values().map(language).collect::<Vec<_>>(),
        "unavailable": unavailable.collect::<Vec<_>>(),
        "limits": limits(policy),
        "bounds": {
            "code_bytes": CODE_BYTES_MAX,
            "variables_bytes": VARIABLES_BYTES_MAX,
            "args": ARGS_MAX,
            "inputs": INPUTS_MAX,
            "input_bytes": INPUT_BYTES_MAX,
            "inline_bytes_per_stream": INLINE_BYTES_MAX,
        },
        "isolation": isolation(server.engine.backend().name(), findings),
        "walls": walls(server),
        "access": server.engine.offered_access(),
        "packages": packages(server),
        "policy": {
            "network": if server.engine.offered_access().is_empty() { "none" } else { "none, but for the access that a run asks for" },
            "sandbox": "fresh for each run, destroyed afterwards",
            "absence_allowed": policy.absence_allowed.iter().map(|guarantee| guarantee.name()).collect::<Vec<_>>(),
        },
    })
}

/// The walls that a call can have, the default first.
fn walls(server: &Server) -> Vec<Value> {
    let one = |wall: &engine::Wall| {
        let lasts = wall.backend().workspaces().is_some();
        json!({ "name": wall.name(), "kernel": wall.kernel().name(), "persistent": lasts })
    };
    server.engine.walls().map(one).collect()
}

fn quotas_view(quotas: &[QuotaUse]) -> Value {
    let one = |quota: &QuotaUse| {
        (quota.amount.name().to_owned(), json!({ "limit": quota.limit, "used": quota.used }))
    };
    quotas.iter().map(one).collect::<Map<_, _>>().into()
}

fn quotas_line(quotas: &[QuotaUse]) -> String {
    let one = |quota: &QuotaUse| format!("{} {} of {}", quota.amount.name(), quota.used, quota.limit);
    format!("your quotas: {}", quotas.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[derive(Serialize)]
struct LanguageView<'a> {
    name: &'a str,
    version: &'a str,
    state: &'static str,
    /// The reason why the language does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packages: Option<PackagesView>,
}

#[derive(Serialize)]
struct PackagesView {
    count: usize,
    notable: Map<String, Value>,
}

fn language(found: &Language) -> LanguageView<'_> {
    let count = found.runtime.packages().len();
    LanguageView {
        name: found.runtime.name(),
        version: found.runtime.version(),
        state: state(&found.canary),
        reason: match &found.canary {
            Canary::Broken(reason) => Some(reason),
            Canary::Checking | Canary::Working => None,
        },
        packages: (count > 0).then(|| PackagesView { count, notable: notable(&found.runtime) }),
    }
}

fn state(canary: &Canary) -> &'static str {
    match canary {
        Canary::Checking => "checking",
        Canary::Working => "working",
        Canary::Broken(_) => "broken",
    }
}

/// Compares package names without regard to case, `-` and `_`, as package indexes do.
fn notable(runtime: &Runtime) -> Map<String, Value> {
    let plain = |name: &str| name.to_lowercase().replace('_', "-");
    let known = runtime.packages().iter().filter(|(name, _)| NOTABLE.contains(&plain(name).as_str()));
    known.map(|(name, version)| (name.clone(), json!(version))).collect()
}

fn limits(policy: &Policy) -> Value {
    let in_units = |limits: &Limits| {
        [
            ("timeout_ms", json!(limits.wall_ms)),
            ("memory_mb", json!(limits.memory_bytes >> 20)),
            ("cpus", json!(f64::from(limits.cpus_milli) / 1000.0)),
            ("processes", json!(limits.processes)),
            ("disk_mb", json!(limits.disk_bytes >> 20)),
            ("open_files", json!(limits.open_files)),
            ("output_kb", json!(limits.output_bytes >> 10)),
        ]
    };
    let both = in_units(&policy.defaults).into_iter().zip(in_units(&policy.maxima));
    both.map(|((name, default), (_, maximum))| {
        (name.to_owned(), json!({ "default": default, "maximum": maximum }))
    })
    .collect::<Map<_, _>>()
    .into()
}

fn isolation<'a>(backend: &'a str, findings: &'a Findings) -> IsolationView<'a> {
    match &findings.wall {
        None => IsolationView::unknown(backend, "checking", None),
        Some(Err(reason)) => IsolationView::unknown(backend, "broken", Some(reason)),
        Some(Ok(enforced)) => IsolationView::whole(backend, enforced).in_state("examined"),
    }
}

fn summary(policy: &Policy, findings: &Findings) -> String {
    let mut lines = Vec::new();
    for found in findings.languages.values() {
        let mut line =
            format!("{} {}: {}", found.runtime.name(), found.runtime.version(), state(&found.canary));
        if let Canary::Broken(reason) = &found.canary {
            line.push_str(&format!(" ({reason})"));
        }
        let names: Vec<String> = notable(&found.runtime).keys().cloned().collect();
        if !names.is_empty() {
            line.push_str(&format!(
                "; {} packages, among them {}",
                found.runtime.packages().len(),
                names.join(", ")
            ));
        }
        lines.push(line);
    }
    lines.extend(findings.unavailable.values().map(ToString::to_string));
    if let Value::Object(limits) = limits(policy) {
        let one = |(name, range): (&String, &Value)| {
            format!("{name} {} (at most {})", range["default"], range["maximum"])
        };
        lines.push(format!("limits: {}", limits.iter().map(one).collect::<Vec<_>>().join(", ")));
    }
    lines.push(match &findings.wall {
        None => "isolation: being examined".to_owned(),
        Some(Err(reason)) => format!("isolation: broken: {reason}"),
        Some(Ok(enforced)) => {
            let kept = |guarantee: &Guarantee| matches!(enforced.get(*guarantee), Enforcement::By { .. });
            let (kept, absent): (Vec<_>, Vec<_>) = Guarantee::ALL.into_iter().partition(kept);
            let names = |list: &[Guarantee]| list.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
            match absent.is_empty() {
                true => format!("isolation in force: {}", names(&kept)),
                false => format!("isolation in force: {}; NOT in force: {}", names(&kept), names(&absent)),
            }
        }
    });
    lines.join("\n")
}

/// Schema of the result of `get_capabilities`.
fn output() -> JsonObject {
    schema::object(json!({
        "type": "object",
        "properties": {
            "server": { "type": "object" },
            "languages": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": { "type": "string" },
                        "version": { "type": "string" },
                        "state": { "type": "string", "enum": ["working", "broken", "checking"] },
                        "reason": { "type": "string" },
                        "packages": { "type": "object" }
                    },
                    "required": ["name", "state"]
                }
            },
            "unavailable": { "type": "array", "items": { "type": "object" } },
            "limits": { "type": "object" },
            "bounds": { "type": "object" },
            "isolation": { "type": "object" },
            "packages": { "type": "object" },
            "walls": { "type": "array" },
            "policy": { "type": "object" },
            "quotas": { "type": "object" },
            "outcome": { "type": "string" },
            "error": schema::error()
        }
    }))
}
