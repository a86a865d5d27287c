//! Entries about calls: the decision before the effect, the outcome after it.

use std::sync::Arc;

use audit::kind;
use sandbox::Outcome;
use serde::Serialize;
use serde_json::{Value, json};

use super::chain::Need;
use super::{Audit, Shared, cut, unavailable};
use crate::gatekeeper::{APPROVAL_REQUIRED, JudgedCall, argument_names, language_of};
use crate::result::RunError;

/// Longest texts of an entry that callers or operators choose.
const TEXT_BYTES_MAX: usize = 512;
/// The outcome of a call whose end nobody told: its caller was gone, or the server ended.
const UNKNOWN: &str = "unknown";
/// The outcome of a call that gave an answer and has no outcome of a run.
const ANSWERED: &str = "answered";

/// The decision that allowed a call, for the receipt of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRef {
    /// The entry.
    pub seq: u64,
    /// The policy that bound the caller; empty if none did.
    pub policy: String,
    /// The rule that asked for an approval.
    pub rule: Option<String>,
    /// The approval that let the call pass.
    pub approval: Option<String>,
    /// The digest of the arguments.
    pub arguments: String,
}

/// An allowed call whose outcome is not recorded yet. Dropping it records that the outcome is unknown.
#[derive(Debug)]
pub(crate) struct OpenCall {
    shared: Arc<Shared>,
    decision: Arc<DecisionRef>,
    is_over: bool,
}

impl OpenCall {
    pub(crate) fn decision(&self) -> &Arc<DecisionRef> {
        &self.decision
    }

    /// Records how the call ended.
    pub(crate) fn end(mut self, outcome: Option<Outcome>) {
        self.tell(outcome.map_or(ANSWERED, Outcome::name));
    }

    fn tell(&mut self, outcome: &str) {
        self.is_over = true;
        let data = json!({ "decision": self.decision.seq, "outcome": outcome });
        self.shared.tell(kind::OUTCOME, data.to_string());
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if !self.is_over {
            self.tell(UNKNOWN);
        }
    }
}

#[derive(Serialize)]
struct DecisionEntry<'a> {
    principal: &'a str,
    label: &'a str,
    tool: &'a str,
    /// Names; absent if one of them could carry data.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Vec<&'a str>>,
    digest: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    language: &'a str,
    policy: &'a str,
    verdict: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<&'a str>,
}

impl Audit {
    /// Records that a call is allowed, before it has an effect. `passed` is the approval that let it pass, and the rule
    /// that asked for it.
    pub(crate) fn allow(
        &self,
        call: &JudgedCall<'_>,
        policy: &str,
        passed: Option<(&str, &str)>,
    ) -> Result<Option<OpenCall>, RunError> {
        if !self.is_on() {
            return Ok(None);
        }
        let allowed = || {
            let digest = self.0.arguments_key()?.digest(call.arguments);
            let (approval, rule) = passed.unzip();
            let data = entry(call, policy, &digest, ("allowed", rule, None, approval));
            let written = self.0.append(kind::DECISION, data, Need::BeforeEffect)?;
            let owned = |text: Option<&str>| text.map(str::to_owned);
            let (policy, rule, approval) = (policy.to_owned(), owned(rule), owned(approval));
            Ok(DecisionRef { seq: written.seq, policy, rule, approval, arguments: digest })
        };
        match allowed() {
            Ok(decision) => {
                let decision = Arc::new(decision);
                Ok(Some(OpenCall { shared: Arc::clone(&self.0), decision, is_over: false }))
            }
            Err(error) => {
                let refusal = unavailable(&error);
                self.refuse(call, policy, &refusal);
                Err(refusal)
            }
        }
    }

    /// Records that a call was refused.
    pub(crate) fn refuse(&self, call: &JudgedCall<'_>, policy: &str, error: &RunError) {
        if !self.is_on() {
            return;
        }
        let verdict = match (&error.rule, error.code.as_str()) {
            (_, APPROVAL_REQUIRED) => "approval",
            (Some(_), _) => "denied",
            (None, _) => "refused",
        };
        // Without its key there is no digest, but the refusal is recorded.
        let digest = self.0.arguments_key().map(|key| key.digest(call.arguments)).unwrap_or_default();
        let rule = error.rule.as_deref();
        let data = entry(call, policy, &digest, (verdict, rule, Some(error.code.as_str()), None));
        self.0.tell(kind::DECISION, data);
    }

    /// The digest of arguments, as it is in the chain.
    pub fn digest_of(&self, arguments: &Value) -> Option<String> {
        if !self.is_on() {
            return None;
        }
        self.0.arguments_key().ok().map(|key| key.digest(arguments))
    }
}

type Ruling<'a> = (&'a str, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn entry(
    call: &JudgedCall<'_>,
    policy: &str,
    digest: &str,
    (verdict, rule, code, approval): Ruling<'_>,
) -> String {
    let short = |text| cut(text, TEXT_BYTES_MAX);
    let entry = DecisionEntry {
        principal: short(call.caller.principal.as_str()),
        label: short(&call.caller.label),
        tool: short(call.names.last().copied().unwrap_or_default()),
        arguments: argument_names(call.arguments),
        digest,
        language: language_of(call.arguments),
        policy: short(policy),
        verdict,
        rule: rule.map(short),
        code,
        approval: approval.map(short),
    };
    // Serializing text does not fail.
    serde_json::to_string(&entry).unwrap_or_default()
}
