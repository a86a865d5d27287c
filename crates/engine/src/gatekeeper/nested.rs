//! Calls that a program makes of another server's tools: judged like calls of this server's own tools, by the same
//! policies, counters, approvals and audit.
//!
//! Beside the policy, the operator's settings for a tool may ask a human about every call. That question is an approval
//! like any other one: it belongs to one caller, tool and arguments, and lets one call pass.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy::{Approval as ApprovalRule, NamedRules, Rules};
use tokio::sync::watch;

use super::approvals::{ApprovalId, Question};
use super::{Admitted, Gatekeeper, JudgedCall};
use crate::result::RunError;

/// The rule of a question that the settings of a tool ask.
pub const RULE_TOOL_ASKS: &str = "(tools: ask)";
/// How long a question about a nested call lasts: its program waits for the answer.
pub const NESTED_APPROVAL_PATIENCE: Duration = Duration::from_secs(600);

/// The run of a question whose run has no handle, such as that of a command.
pub const NO_HANDLE: &str = "";

/// For questions about callers that no policy binds.
static UNBOUND: LazyLock<Arc<NamedRules>> =
    LazyLock::new(|| Arc::new(NamedRules { name: String::new(), rules: Rules::open() }));

/// The questions about nested calls that wait now, each with its run. A client that waits for the run may be asked.
#[derive(Debug, Default)]
pub(super) struct NestedQuestions {
    open: Mutex<Vec<(String, ApprovalId)>>,
    changes: watch::Sender<u64>,
}

impl NestedQuestions {
    fn lock(&self) -> MutexGuard<'_, Vec<(String, ApprovalId)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question about a nested call, as long as the call waits for its answer.
#[derive(Debug)]
pub struct OpenQuestion<'g> {
    questions: &'g NestedQuestions,
    run: String,
    id: ApprovalId,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        let mut open = self.questions.lock();
        let at = open.iter().position(|(run, id)| *run == self.run && *id == self.id);
        at.map(|at| open.swap_remove(at));
    }
}

impl Gatekeeper {
    /// States that a nested call of a run waits for the answer to a question.
    pub fn open_question(&self, run: &str, id: &ApprovalId) -> OpenQuestion<'_> {
        let questions = &self.nested;
        questions.lock().push((run.to_owned(), id.clone()));
        questions.changes.send_modify(|number| *number += 1);
        OpenQuestion { questions, run: run.to_owned(), id: id.clone() }
    }

    /// The questions for which nested calls of a run wait.
    pub fn open_questions(&self, run: &str) -> Vec<ApprovalId> {
        let open = self.nested.lock();
        open.iter().filter(|(of, _)| of == run).map(|(_, id)| id.clone()).collect()
    }

    /// Notifies when a nested call begins to wait for an answer.
    pub fn question_changes(&self) -> watch::Receiver<u64> {
        self.nested.changes.subscribe()
    }

    /// Admits a call of another server's tool, or says why it must not happen. With `asks`, the reason to ask, a human
    /// must allow it even if no policy says so.
    pub async fn admit_nested(
        &self,
        call: JudgedCall<'_>,
        asks: Option<String>,
    ) -> Result<Admitted, RunError> {
        let rule = |reason| ApprovalRule::always(RULE_TOOL_ASKS, reason, NESTED_APPROVAL_PATIENCE.as_secs());
        let rule = asks.map(rule);
        self.admit_starting(call, None, rule.as_ref()).await
    }

    /// A call of a caller that no policy binds.
    pub(super) async fn admit_unbound(
        &self,
        call: &JudgedCall<'_>,
        asks: Option<&ApprovalRule>,
    ) -> Result<Admitted, RunError> {
        match asks {
            None => Ok(Admitted::default()),
            Some(rule) => {
                let question = Question { rules: &UNBOUND, rule, reserve: Vec::new(), run: None };
                self.admit_approved(call, question).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::{Binding, Book, Caller, Syntax};
    use serde_json::{Value, json};

    use super::*;
    use crate::gatekeeper::{APPROVAL_DENIED, APPROVAL_REQUIRED, Approver, Choice, POLICY_DENIED};

    fn keeper(folder: &harness::TestFolder, rules: Option<Value>) -> Gatekeeper {
        let book = rules.map(|rules| {
            let files = [("p".to_owned(), rules.to_string(), Syntax::Json)];
            let binding = Binding { callers: "*".to_owned(), policy: "p".to_owned() };
            Book::new(&files, vec![binding]).unwrap()
        });
        Gatekeeper::new(folder.path(), book.unwrap_or_default())
    }

    async fn call(keeper: &Gatekeeper, asks: bool, arguments: Value) -> Result<Admitted, RunError> {
        let names = ["github.create_issue"];
        let call = JudgedCall { caller: &Caller::local(), names: &names, arguments: &arguments };
        keeper.admit_nested(call, asks.then(|| "it may change something".to_owned())).await
    }

    #[tokio::test]
    async fn a_tool_that_asks_is_approved_once_without_any_policy() {
        let folder = harness::TestFolder::new();
        let keeper = keeper(&folder, None);
        assert!(call(&keeper, false, json!({})).await.is_ok());
        let error = call(&keeper, true, json!({"title": "x"})).await.unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            (APPROVAL_REQUIRED, "it may change something")
        );
        let id = error.approval_id.unwrap();
        keeper.approvals().decide(&id, Choice::Approve, Approver::Local, None).await.unwrap();
        assert_eq!(call(&keeper, true, json!({"title": "y"})).await.unwrap_err().code, APPROVAL_REQUIRED);
        assert!(call(&keeper, true, json!({"title": "x"})).await.is_ok());
        let again = call(&keeper, true, json!({"title": "x"})).await.unwrap_err();
        assert_ne!(again.approval_id.as_ref(), Some(&id), "the first one is used");
        let again = again.approval_id.unwrap();
        keeper.approvals().decide(&again, Choice::Deny, Approver::Local, None).await.unwrap();
        assert_eq!(call(&keeper, true, json!({"title": "x"})).await.unwrap_err().code, APPROVAL_DENIED);
    }

    #[tokio::test]
    async fn an_open_question_belongs_to_its_run_and_ends_with_its_call() {
        let folder = harness::TestFolder::new();
        let keeper = keeper(&folder, None);
        let mut changes = keeper.question_changes();
        let id = call(&keeper, true, json!({})).await.unwrap_err().approval_id.unwrap();
        let open = keeper.open_question("run_1", &id);
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert_eq!((keeper.open_questions("run_1"), keeper.open_questions("run_2")), (vec![id], vec![]));
        drop(open);
        assert!(keeper.open_questions("run_1").is_empty());
    }

    #[tokio::test]
    async fn a_policy_judges_the_names_and_arguments_of_nested_calls() {
        let folder = harness::TestFolder::new();
        let rules = json!({"version": "1", "default": "deny", "tools": {"github.create_issue": {
            "deny_if": {"args.repo": {"eq": "prod"}}, "limits": [{"window": "day", "max": 1}]}}});
        let keeper = keeper(&folder, Some(rules));
        assert_eq!(call(&keeper, false, json!({"repo": "prod"})).await.unwrap_err().code, POLICY_DENIED);
        assert_eq!(call(&keeper, true, json!({"repo": "test"})).await.unwrap_err().code, APPROVAL_REQUIRED);
        assert!(call(&keeper, false, json!({"repo": "test"})).await.is_ok());
        assert_eq!(call(&keeper, false, json!({"repo": "test"})).await.unwrap_err().code, POLICY_DENIED);
        let caller = Caller::local();
        let other = JudgedCall { caller: &caller, names: &["github.delete"], arguments: &json!({}) };
        assert_eq!(keeper.admit_nested(other, None).await.unwrap_err().code, POLICY_DENIED);
    }
}
