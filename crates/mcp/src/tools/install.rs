//! `install_packages`: packages of a registry, in a persistent sandbox or ready for later runs.
//!
//! An installation is a run without a program (`engine::Runs::install`), so `wait` and tasks follow it.

use std::time::Duration;

use engine::packages::{Ecosystem, InstallReport, PackageVersion, wanted};
use engine::{Caller, FinishedRun, InstallRequest, LiveRun, RunError, RunId, SandboxAddress};
use rmcp::model::{CallToolResponse, CallToolResult, JsonObject};
use sandbox::Outcome;
use serde::Serialize;
use serde_json::{Value, json};

use super::following::{Follower, OnDisconnect, patience};
use super::report;
use super::{Effects, Needs, Offer, Scope, ToolCall, ToolEntry, answer, refused};
use crate::arguments::{Refusal, refusal};
use crate::doors::Door;
use crate::{Server, languages, schema, tasks, text};

/// Name of the tool.
pub(crate) const NAME: &str = "install_packages";
/// The argument with the requirements, in every tool that has one.
pub(crate) const PACKAGES: &str = "packages";

/// The tool.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: NAME,
    title: "Install packages",
    description: "Install packages in a sandbox, with what they need.",
    effects: Effects::Changes,
    scope: Scope::Packages,
    needs: Needs::Packages,
    properties: &["language", PACKAGES, "sandbox_id", "timeout_ms"],
    input,
    output,
    call: |call| Box::pin(async move { install(call).await }),
};

struct InstallArguments {
    request: InstallRequest,
    wait: Duration,
}

/// Answers the tool. An installation that takes longer than its caller waits continues without this request.
async fn install(call: ToolCall<'_>) -> CallToolResponse {
    let ToolCall { server, caller, given, context, run_id, .. } = call;
    let InstallArguments { request, wait } = match asked(given) {
        Ok(asked) => asked,
        Err(error) => return refused(&error).into(),
    };
    let on_disconnect = if run_id.is_some() { OnDisconnect::Detach } else { OnDisconnect::Stop };
    match follow(server, caller, (request, run_id), (context, wait, on_disconnect)).await {
        Ok(Followed::Ended(run)) => finished(&run),
        Ok(Followed::Continues(run)) => {
            if context.client_capabilities().is_some_and(|known| known.supports_tasks()) {
                return tasks::created(&run).into();
            }
            report::running(server, caller, &run).await
        }
        Err(error) => refused(&error),
    }
    .into()
}

/// What became of an installation while its caller waited.
pub(super) enum Followed {
    Ended(std::sync::Arc<FinishedRun>),
    Continues(LiveRun),
}

/// Starts an installation and follows it.
pub(super) async fn follow(
    server: &Server,
    caller: &Caller,
    (request, id): (InstallRequest, Option<RunId>),
    (context, wait, on_disconnect): (
        &rmcp::service::RequestContext<rmcp::RoleServer>,
        Duration,
        OnDisconnect,
    ),
) -> Result<Followed, RunError> {
    let mut started = server.runs.install(caller, request, id)?;
    let mut follower = Follower::new(server, context, started.live());
    // A caller that cannot ask about the installation later gets its result here.
    let can_follow = Door::Log.is_seen(server.engine.gatekeeper(), caller);
    let wait = if can_follow { wait } else { Duration::MAX };
    let followed = match follower.follow(wait, on_disconnect).await {
        Some(run) => Followed::Ended(run),
        None => match started.hand_over().await {
            Ok(()) => Followed::Continues(started.live()),
            Err(error) => {
                tracing::warn!(reason = %error, "not_handed_over");
                let ended = follower.follow(Duration::MAX, OnDisconnect::Stop).await;
                Followed::Ended(ended.unwrap_or(started.finished().await))
            }
        },
    };
    follower.end().await;
    Ok(followed)
}

fn asked(given: JsonObject) -> Result<InstallArguments, Refusal> {
    let mut arguments = TOOL.arguments(given)?;
    let language = languages::take(&mut arguments)?;
    let texts = arguments.texts(PACKAGES)?;
    let wait = patience(arguments.whole("timeout_ms")?);
    let packages = wanted(&texts, &language)?;
    if packages.is_empty() {
        return Err(refusal(
            format!("`{PACKAGES}` is empty"),
            "give the names of packages: [\"pandas\", \"httpx>=0.27\"]",
        ));
    }
    let sandbox = arguments.sandbox()?.map(|SandboxAddress { id, .. }| id);
    Ok(InstallArguments { request: InstallRequest { language, packages, sandbox }, wait })
}

/// An installation as the caller sees it.
#[derive(Debug, Serialize)]
struct InstallView<'a> {
    outcome: &'static str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packages: Option<&'a [PackageVersion]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RunError>,
}

/// The answer for an installation that has ended.
pub(crate) fn finished(run: &FinishedRun) -> CallToolResult {
    let result = &run.result;
    let nothing = InstallReport::default();
    let installed = result.installed.as_ref().unwrap_or(&nothing);
    let is_installed = result.outcome == Outcome::Completed;
    let view = InstallView {
        outcome: result.outcome.name(),
        status: if is_installed { "installed" } else { "failed" },
        progress: None,
        packages: is_installed.then_some(&installed.packages),
        cached: is_installed.then_some(installed.was_cached),
        ms: Some(installed.ms),
        sandbox_id: installed.sandbox.as_ref().map(engine::SandboxId::as_str),
        run_id: Some(run.id.as_str()),
        warnings: &result.warnings,
        error: result.error.as_ref(),
    };
    let mut said = match &result.error {
        Some(error) => format!("status: failed\n{}", text::of_error(error)),
        None => told(installed),
    };
    for warning in &result.warnings {
        said.push_str(&format!("\nwarning: {warning}"));
    }
    answer(&view, said, !is_installed)
}

/// What was installed, in a few lines.
fn told(installed: &InstallReport) -> String {
    let how = match installed.was_cached {
        true => "were there already".to_owned(),
        false => format!("took {:.1} s", installed.ms as f64 / 1000.0),
    };
    let place = match &installed.sandbox {
        Some(_) => "import them now",
        None => "ready: name them in `packages` of run, which starts with them at once",
    };
    format!("installed: {} ({how})\n{place}", text::packages(&installed.packages))
}

/// The answer for an installation that continues, with its last step. `log` is its progress so far.
pub(crate) fn installing(id: &RunId, log: &str) -> CallToolResult {
    let step = log.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let mut said = format!("installing: call wait with run_id {} to follow it, or to cancel it", id.as_str());
    if let Some(step) = step {
        said.push_str(&format!("\nnow: {step}"));
    }
    let view = InstallView {
        outcome: Outcome::Running.name(),
        status: "installing",
        progress: step,
        packages: None,
        cached: None,
        ms: None,
        sandbox_id: None,
        run_id: Some(id.as_str()),
        warnings: &[],
        error: None,
    };
    answer(&view, said, false)
}

/// Schema of the arguments of `install_packages`.
fn input(offer: &Offer<'_>) -> JsonObject {
    let is_served = |language: &&String| {
        Ecosystem::of_language(language).is_some_and(|ecosystem| offer.packages.contains(&ecosystem))
    };
    let languages: Vec<&String> = offer.languages.iter().filter(is_served).collect();
    schema::object(json!({
        "type": "object",
        "properties": {
            "language": { "type": "string", "enum": languages },
            PACKAGES: { "type": "array", "items": { "type": "string" } },
            "sandbox_id": { "type": "string", "description": "Absent: only prepared" },
            "timeout_ms": { "type": "integer", "minimum": 0, "description": "How long to wait; default 45000" }
        },
        "required": ["language", PACKAGES],
        "additionalProperties": false
    }))
}

/// Schema of the fields that an installation has and a run does not.
pub(super) fn own_fields() -> [(&'static str, Value); 5] {
    [
        ("status", json!({ "type": "string", "enum": ["installing", "installed", "failed"] })),
        ("progress", json!({ "type": "string" })),
        (PACKAGES, schema::packages()),
        ("cached", json!({ "type": "boolean" })),
        ("ms", json!({ "type": "integer" })),
    ]
}

/// Schema of the result of `install_packages`.
fn output() -> JsonObject {
    let mut schema = schema::object(json!({
        "type": "object",
        "properties": {
            "outcome": { "type": "string" },
            "sandbox_id": { "type": "string" },
            "run_id": { "type": "string" },
            "warnings": { "type": "array", "items": { "type": "string" } },
            "error": schema::error()
        }
    }));
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.extend(own_fields().map(|(name, field)| (name.to_owned(), field)));
    }
    schema
}

/// Schema of the result of `wait`, which follows installations, too.
pub(super) fn wait_output() -> JsonObject {
    let mut schema = schema::run_output();
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, field) in own_fields() {
            properties.entry(name).or_insert(field);
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: Value) -> Result<InstallRequest, Refusal> {
        let Value::Object(given) = given else { panic!("an object") };
        asked(given).map(|asked| asked.request)
    }

    #[test]
    fn the_schema_names_every_field_of_the_result() {
        let packages = [PackageVersion { name: String::new(), version: String::new() }];
        let view = InstallView {
            outcome: "",
            status: "",
            progress: Some(""),
            packages: Some(&packages),
            cached: Some(true),
            ms: Some(1),
            sandbox_id: Some(""),
            run_id: Some(""),
            warnings: &[String::new()],
            error: None,
        };
        schema::assert_same_fields(&output(), &view);
        assert!(wait_output()["properties"].as_object().unwrap().contains_key("status"));
    }

    #[test]
    fn arguments_are_read_and_what_is_wrong_is_named() {
        let request =
            parse(json!({"language": "py", "packages": ["pandas>=2", "pandas>=2", "npm:zod"]})).unwrap();
        assert_eq!((request.language.as_str(), request.packages.len()), ("python", 2));
        for (bad, code) in [
            (json!({"packages": ["x"]}), "bad_arguments"),
            (json!({"language": "python"}), "bad_arguments"),
            (json!({"language": "python", "packages": []}), "bad_arguments"),
            (json!({"language": "python", "packages": "x"}), "bad_arguments"),
            (json!({"language": "python", "packages": ["https://x/y.whl"]}), "bad_package"),
            (json!({"language": "ruby", "packages": ["nokogiri"]}), "bad_package"),
        ] {
            assert_eq!(parse(bad.clone()).unwrap_err().code, code, "{bad}");
        }
    }

    #[test]
    fn the_text_tells_versions_and_what_to_do_next() {
        let package = |name: &str| PackageVersion { name: name.to_owned(), version: "1.0".to_owned() };
        let installed = InstallReport {
            packages: vec![package("a"), package("b")],
            ms: 2500,
            ..InstallReport::default()
        };
        assert_eq!(
            told(&installed),
            "installed: a 1.0, b 1.0 (took 2.5 s)\nready: name them in `packages` of run, which starts with them at once"
        );
        let many =
            InstallReport { packages: vec![package("x"); 100], was_cached: true, ..InstallReport::default() };
        assert!(told(&many).contains(" and 70 more (were there already)"));
    }
}
