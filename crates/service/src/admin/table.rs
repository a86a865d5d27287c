//! The table of the admin API: the router and the OpenAPI document are made of it.

use std::sync::Arc;

use policy::Scope;

use super::answer::Answering;
use super::ask::Ask;
use super::{Admin, approvals, audit, keys, openapi, policies, quotas, runs, sandboxes};

/// The method of a route. What changes something is a POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
}

impl Verb {
    /// The name in the document.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
        }
    }
}

/// A parameter of a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// The name of its schema.
    pub(super) schema: &'static str,
    pub(super) about: &'static str,
}

pub(super) type Handle = fn(Arc<Admin>, Ask) -> Answering;

/// A route.
pub(super) struct Route {
    pub(super) verb: Verb,
    /// Beneath `/admin/v1`; at most one parameter.
    pub(super) path: &'static str,
    /// A caller needs one of these.
    pub(super) needs: &'static [Scope],
    /// The name of the operation.
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) query: &'static [Parameter],
    /// The schema of the body.
    pub(super) body: Option<&'static str>,
    /// Status and schema of the good answer.
    pub(super) answer: (u16, &'static str),
    /// Statuses of refusals, besides those that every route has.
    pub(super) refusals: &'static [u16],
    pub(super) handle: Handle,
}

/// The schema of an answer that is a stream of lines.
pub(super) const LINES: &str = "Lines";

const ADMIN: &[Scope] = &[Scope::Admin];
const APPROVE: &[Scope] = &[Scope::Approve];
const AUDIT: &[Scope] = &[Scope::Audit];
const ANY: &[Scope] = &[Scope::Approve, Scope::Audit, Scope::Admin];

const LIMIT: Parameter = Parameter { name: "limit", schema: "Limit", about: "The most items of the answer" };
const CURSOR: Parameter =
    Parameter { name: "cursor", schema: "Cursor", about: "The next_cursor of an earlier answer" };
const PRINCIPAL: Parameter =
    Parameter { name: "principal", schema: "Principal", about: "Only what belongs to this principal" };
const STATE: Parameter =
    Parameter { name: "state", schema: "KeyFilter", about: "Keys in force (the default), or all" };
const OPEN: Parameter =
    Parameter { name: "state", schema: "ApprovalFilter", about: "Open approvals (the default), or all" };
const SINCE: Parameter =
    Parameter { name: "since_ms", schema: "Time", about: "Only entries of this time or later" };
const FORMAT: Parameter = Parameter {
    name: "format",
    schema: "ExportFormat",
    about: "Lines of the chain (the default), or OCSF events",
};
const PAGE: &[Parameter] = &[LIMIT, CURSOR];
const OWNED: &[Parameter] = &[PRINCIPAL, LIMIT, CURSOR];

/// A GET without a query.
const READ: Route = Route {
    verb: Verb::Get,
    path: "",
    needs: ADMIN,
    name: "",
    about: "",
    query: &[],
    body: None,
    answer: (200, "Document"),
    refusals: &[],
    handle: openapi::handle,
};
/// A POST.
const CHANGE: Route = Route { verb: Verb::Post, body: Some("Empty"), ..READ };

pub(super) static ROUTES: [Route; 25] = [
    Route {
        path: "/openapi.json",
        needs: ANY,
        name: "describe",
        about: "This document",
        handle: openapi::handle,
        ..READ
    },
    Route {
        path: "/keys",
        name: "list_keys",
        about: "Lists keys by name, without their secrets",
        query: &[STATE, LIMIT, CURSOR],
        answer: (200, "KeyPage"),
        refusals: &[503],
        handle: keys::list,
        ..READ
    },
    Route {
        path: "/keys",
        name: "create_key",
        about: "Makes a key. Its secret is in this answer and nowhere else",
        body: Some("NewKey"),
        answer: (201, "KeyWithSecret"),
        refusals: &[409, 503],
        handle: keys::create,
        ..CHANGE
    },
    Route {
        path: "/keys/{key}/revoke",
        name: "revoke_key",
        about: "Ends a key for good, by its name or id. Its streams close and its runs are cancelled within a second",
        answer: (200, "Key"),
        refusals: &[404, 503],
        handle: keys::revoke,
        ..CHANGE
    },
    Route {
        path: "/keys/{key}/rotate",
        name: "rotate_key",
        about: "Gives a key another secret, which is in this answer and nowhere else",
        body: Some("Rotation"),
        answer: (200, "KeyWithSecret"),
        refusals: &[404, 409, 503],
        handle: keys::rotate,
        ..CHANGE
    },
    Route {
        path: "/policies",
        name: "list_policies",
        about: "Lists the policies in force by name, and says why newer files are not in force",
        query: PAGE,
        answer: (200, "PolicyPage"),
        handle: policies::list,
        ..READ
    },
    Route {
        path: "/policies/bindings",
        name: "list_bindings",
        about: "Lists the bindings in force, of which the first that matches a caller counts",
        query: PAGE,
        answer: (200, "BindingPage"),
        handle: policies::bindings,
        ..READ
    },
    Route {
        path: "/policies/explain",
        name: "explain_call",
        about: "Says which rules decide about a call, without counting it",
        body: Some("ExplainedCall"),
        answer: (200, "Explanation"),
        refusals: &[503],
        handle: policies::explain,
        ..CHANGE
    },
    Route {
        path: "/policies/reload",
        name: "reload_policies",
        about: "Reads the policy files again now, and says whether they can be used",
        answer: (200, "Reloaded"),
        refusals: &[503],
        handle: policies::reload,
        ..CHANGE
    },
    Route {
        path: "/approvals",
        needs: APPROVE,
        name: "list_approvals",
        about: "Lists calls that wait for a human or for their caller, newest first",
        query: &[OPEN, LIMIT, CURSOR],
        answer: (200, "ApprovalPage"),
        refusals: &[503],
        handle: approvals::list,
        ..READ
    },
    Route {
        path: "/approvals/{approval_id}",
        needs: APPROVE,
        name: "get_approval",
        about: "Shows an approval with the arguments of its call",
        answer: (200, "ApprovalDetail"),
        refusals: &[404, 503],
        handle: approvals::get,
        ..READ
    },
    Route {
        path: "/approvals/{approval_id}/approve",
        needs: APPROVE,
        name: "approve",
        about: "Lets the call pass once. No caller approves its own call",
        body: Some("Reason"),
        answer: (200, "Approval"),
        refusals: &[404, 409, 503],
        handle: approvals::approve,
        ..CHANGE
    },
    Route {
        path: "/approvals/{approval_id}/deny",
        needs: APPROVE,
        name: "deny",
        about: "Denies the call, or takes back an approval that no call has used yet",
        body: Some("Reason"),
        answer: (200, "Approval"),
        refusals: &[404, 409, 503],
        handle: approvals::deny,
        ..CHANGE
    },
    Route {
        path: "/runs",
        name: "list_runs",
        about: "Lists runs of all principals, newest first",
        query: OWNED,
        answer: (200, "RunPage"),
        refusals: &[503],
        handle: runs::list,
        ..READ
    },
    Route {
        path: "/runs/{run_id}",
        name: "get_run",
        about: "Shows a run of any principal, without its program and its output",
        answer: (200, "RunDetail"),
        refusals: &[404, 503],
        handle: runs::get,
        ..READ
    },
    Route {
        path: "/runs/{run_id}/cancel",
        name: "cancel_run",
        about: "Ends a run of any principal; its outcome is `killed`. A run that has ended stays as it is",
        answer: (200, "RunDetail"),
        refusals: &[404, 409, 503],
        handle: runs::cancel,
        ..CHANGE
    },
    Route {
        path: "/sandboxes",
        name: "list_sandboxes",
        about: "Lists persistent sandboxes of all principals, newest first",
        query: OWNED,
        answer: (200, "SandboxPage"),
        refusals: &[503],
        handle: sandboxes::list,
        ..READ
    },
    Route {
        path: "/sandboxes/{sandbox_id}/close",
        name: "close_sandbox",
        about: "Closes a sandbox of any principal and removes its files",
        answer: (200, "Closed"),
        refusals: &[404, 409, 503],
        handle: sandboxes::close,
        ..CHANGE
    },
    Route {
        path: "/audit/entries",
        needs: AUDIT,
        name: "tail_audit",
        about: "The newest entries of the audit of all servers, oldest first; nothing is verified",
        query: &[LIMIT],
        answer: (200, "AuditTail"),
        refusals: &[503],
        handle: audit::tail,
        ..READ
    },
    Route {
        path: "/audit/export",
        needs: AUDIT,
        name: "export_audit",
        about: "Streams entries, one JSON object per line (application/x-ndjson)",
        query: &[FORMAT, SINCE],
        answer: (200, LINES),
        refusals: &[503],
        handle: audit::export,
        ..READ
    },
    Route {
        path: "/audit/verify",
        needs: AUDIT,
        name: "verify_audit",
        about: "Verifies the audit with the server's own keys; integrity and completeness are told apart. A copy and a \
                key that were kept elsewhere prove more",
        answer: (200, "AuditReport"),
        refusals: &[503],
        handle: audit::verify,
        ..CHANGE
    },
    Route {
        path: "/audit/keys",
        needs: AUDIT,
        name: "list_audit_keys",
        about: "The public keys that verify checkpoints and receipts, the newest last",
        answer: (200, "AuditKeys"),
        refusals: &[503],
        handle: audit::keys,
        ..READ
    },
    Route {
        path: "/audit/checkpoint",
        needs: AUDIT,
        name: "get_checkpoint",
        about: "The newest signed checkpoint, to be kept elsewhere",
        answer: (200, "AuditCheckpoint"),
        refusals: &[503],
        handle: audit::checkpoint,
        ..READ
    },
    Route {
        path: "/audit/receipts/{run_id}",
        needs: AUDIT,
        name: "get_receipt",
        about: "The signed receipt of an ended run of any principal",
        answer: (200, "Receipt"),
        refusals: &[404, 503],
        handle: audit::receipt,
        ..READ
    },
    Route {
        path: "/quotas",
        name: "list_quotas",
        about: "Lists quotas and their use: of the holders of keys in force, and of the server's owner",
        query: OWNED,
        answer: (200, "QuotaPage"),
        refusals: &[503],
        handle: quotas::list,
        ..READ
    },
];
