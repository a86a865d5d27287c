//! Completions: languages for the arguments of prompts, and the caller's own run ids for the log template.

use engine::Caller;
use rmcp::model::{CompleteRequestParams, CompletionInfo, Reference};

use serde_json::json;

use super::doors::Door;
use super::{Server, prompts, resources};

/// Maximum number of runs that are searched.
const RUNS_MAX: usize = 100;

/// Values that begin with the typed text. Unknown references and arguments have no values.
pub(crate) async fn complete(
    server: &Server,
    caller: &Caller,
    asked: &CompleteRequestParams,
) -> CompletionInfo {
    let gatekeeper = server.engine.gatekeeper();
    let candidates = match &asked.r#ref {
        Reference::Prompt(prompt) if asked.argument.name == prompts::LANGUAGE => {
            let is_shown = |tool: &str| !gatekeeper.hides(caller, &[tool]);
            let takes = prompts::takes(&prompt.name, prompts::LANGUAGE, is_shown);
            if takes && Door::LanguageCompletion.is_seen(gatekeeper, caller) {
                server.languages().await
            } else {
                Vec::new()
            }
        }
        Reference::Resource(template)
            if template.uri == resources::LOG_TEMPLATE && asked.argument.name == resources::RUN_VARIABLE =>
        {
            if Door::RunCompletion.open(gatekeeper, caller, json!({})).await.is_err() {
                return CompletionInfo::default();
            }
            // Without its store the server completes nothing. Other answers report the failure of the store.
            let runs = server.runs.list(caller, RUNS_MAX).await.unwrap_or_default();
            runs.into_iter().map(|run| run.id.as_str().to_owned()).collect()
        }
        _ => Vec::new(),
    };
    let typed = asked.argument.value.as_str();
    let fitting = candidates.into_iter().filter(|value| value.starts_with(typed));
    let values: Vec<String> = fitting.take(CompletionInfo::MAX_VALUES).collect();
    CompletionInfo::with_all_values(values).unwrap_or_default()
}
