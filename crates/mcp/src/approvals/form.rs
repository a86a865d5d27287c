//! The form that asks the user of a client about a call: one required choice without a default.

use engine::{Approval, Choice, Fold, shown_arguments, visible};
use rmcp::model::{InputRequest, ServerRequest};
use serde_json::{Value, json};

/// The one field of the form.
const DECISION: &str = "decision";
const APPROVE: &str = "approve";
const DENY: &str = "deny";

/// The request `elicitation/create`.
pub(super) fn request(asked: &Approval, arguments: &Value) -> Option<ServerRequest> {
    serde_json::from_value(form(asked, arguments)).ok()
}

/// The same as a part of an answer.
pub(super) fn input_request(asked: &Approval, arguments: &Value) -> Option<InputRequest> {
    serde_json::from_value(form(asked, arguments)).ok()
}

/// The choice in an answer. Everything but an explicit one is none: a form that was declined, cancelled or left empty.
pub(super) fn choice(answer: &Value) -> Option<Choice> {
    if answer.get("action")? != "accept" {
        return None;
    }
    match answer.get("content")?.get(DECISION)?.as_str()? {
        APPROVE => Some(Choice::Approve),
        DENY => Some(Choice::Deny),
        _ => None,
    }
}

fn form(asked: &Approval, arguments: &Value) -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": message(asked, arguments),
            "requestedSchema": {
                "type": "object",
                "properties": {
                    DECISION: {
                        "type": "string",
                        "title": "Decision",
                        "description": "approve: this call may happen once; deny: it must not happen",
                        "enum": [APPROVE, DENY],
                    },
                },
                "required": [DECISION],
            },
        },
    })
}

/// What the user reads.
fn message(asked: &Approval, arguments: &Value) -> String {
    let reason = asked.reason.as_deref().unwrap_or("the policy asks for an approval");
    let shown = shown_arguments(arguments, Fold::Folded);
    let more = match shown.is_whole {
        true => String::new(),
        false => {
            format!("Not everything is shown. The whole call: palisade approvals show {} --full\n", asked.id)
        }
    };
    format!(
        "Palisade asks before this call happens: {}\ntool: {}\n{}{more}",
        visible(reason),
        visible(&asked.tool),
        shown.text
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_explicit_choice_decides() {
        let accepted = |content: Value| choice(&json!({"action": "accept", "content": content}));
        assert_eq!(accepted(json!({"decision": "approve"})), Some(Choice::Approve));
        assert_eq!(accepted(json!({"decision": "deny"})), Some(Choice::Deny));
        for unclear in [
            json!({}),
            json!(null),
            json!({"decision": ""}),
            json!({"decision": "APPROVE"}),
            json!({"decision": true}),
            json!({"other": "approve"}),
            json!("approve"),
        ] {
            assert_eq!(accepted(unclear.clone()), None, "{unclear}");
        }
        for action in ["decline", "cancel", ""] {
            let answer = json!({"action": action, "content": {"decision": "approve"}});
            assert_eq!(choice(&answer), None, "{action}");
            assert_eq!(choice(&json!({"action": action, "content": {"decision": "deny"}})), None, "{action}");
        }
        assert_eq!(choice(&json!({})), None);
        assert_eq!(choice(&json!({"action": "accept"})), None);
    }
}
