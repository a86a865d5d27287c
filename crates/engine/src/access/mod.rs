//! Access: what a run may reach outside of its sandbox, by names that the operator defines.
//!
//! A caller asks for names (`RunRequest::access`), never for hosts. An [`AccessBook`] knows what the names mean: grants with
//! their brokers, proxies and secrets. The composition gives the engine one ([`Engine::offer_access`]); the engine names no
//! broker. A run opens its names once it is judged, and settles them before its result is told.
//!
//! ```text
//! request.access -> scope -> names known? -> within the sandbox's names? -> AccessBook::open -> grants, given, redactor
//! result <- egress[], network_none, redacted value and error <- AccessRecord::reached
//! ```
//! Every decision about a connection passes [`ReachLog::note`].

mod reach_log;
mod redaction;
mod secrets;
mod tool_index;

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::{Action, Call, Caller};
use sandbox::{Enforcement, Guarantee};
use serde::{Deserialize, Serialize};

pub use self::reach_log::{LoggedReach, ReachCounts, ReachEvent, ReachLog, Stage};
pub(crate) use self::redaction::Redaction;
pub use self::redaction::Redactor;
pub use self::secrets::{SECRET_BYTES_MAX, SecretError, SecretRef, Secrets, is_secret_name};
pub use self::tool_index::{FoundTools, ListedServer, ListedTool, Notation, ToolIndex, ToolQuery};
use crate::Engine;
use crate::given::{Proxies, Secret};
use crate::links::{Grant, TOOLS_SOCKET};
use crate::request::RunRequest;
use crate::result::{RunError, RunPhase, RunResult};

/// The most names that one run asks for.
pub const ACCESS_NAMES_MAX: usize = 16;
/// The longest name.
const NAME_BYTES_MAX: usize = 64;
/// The most entries of `egress` in a result.
pub const EGRESS_ENTRIES_MAX: usize = 64;
/// The environment variable that names the socket for tools, in runs that have one.
pub const TOOLS_VARIABLE: &str = "PALISADE_TOOLS";
/// The code of a refusal of an unknown name.
pub const ACCESS_UNKNOWN: &str = "access_unknown";

/// Knows what names of access mean.
pub trait AccessBook: Send + Sync {
    /// What there is, by name.
    fn offered(&self) -> &[Offered];

    /// Opens names for one run. All of them are known.
    fn open(&self, call: &AccessCall<'_>) -> Result<Opened, RunError>;

    /// What is known of tools of other servers, if some are configured.
    fn tool_index(&self) -> Option<&dyn ToolIndex> {
        None
    }
}

/// Something that a run can ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// The hosts and ports that it reaches, as rules.
    pub hosts: Vec<String>,
    /// The environment variables that hold its secrets.
    pub secrets: Vec<String>,
    /// The servers whose tools it opens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Those of them that run without a wall.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools_without_wall: Vec<String>,
}

/// A run that opens names.
#[derive(Debug, Clone, Copy)]
pub struct AccessCall<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// The handle of the run, if it has one.
    pub run_id: Option<&'a str>,
    /// The persistent sandbox of the run.
    pub sandbox: Option<&'a str>,
    /// The names.
    pub names: &'a [String],
    /// Whether the run also calls tools of other servers, which could pass on what it is given.
    pub calls_tools: bool,
}

/// What one run was opened.
pub struct Opened {
    /// Listeners and their brokers.
    pub grants: Vec<Grant>,
    /// The proxies of the program.
    pub proxies: Proxies,
    /// Secrets, by environment variable.
    pub secrets: Vec<(String, Secret)>,
    /// Finds these secrets, if the book has made it already.
    pub redactor: Option<Arc<Redactor>>,
    /// What the program reaches, in words.
    pub summary: String,
    /// Whether the program may call tools of other servers, by a grant at [`crate::links::TOOLS_SOCKET`].
    pub has_tools: bool,
    /// Counts what it reached.
    pub record: Arc<dyn AccessRecord>,
}

/// What a run has reached so far.
pub trait AccessRecord: Send + Sync {
    /// One entry for each host and verdict.
    fn reached(&self) -> Vec<Reached>;

    /// The calls of other servers' tools; `None` for a run without them.
    fn tools(&self) -> Option<ToolsUse> {
        None
    }

    /// Warnings about what was reached.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a run called of other servers' tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolsUse {
    /// The number of calls that were sent to a server.
    pub calls: u64,
    /// How many of them failed.
    pub failed: u64,
    /// The number of calls that rules, budgets or a human denied.
    pub denied: u64,
    /// Bytes of all answers.
    pub bytes: u64,
    /// The number of calls of each server.
    pub by_server: BTreeMap<String, u64>,
    /// Calls that wait: for an answer when the run ended, or for a human.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
}

/// What a run reached, or was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// Host and port.
    pub host: String,
    /// The address that was dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The number of connections.
    pub connections: u64,
    /// Bytes that left the sandbox.
    pub bytes_out: u64,
    /// Bytes that entered the sandbox.
    pub bytes_in: u64,
    /// `allowed`, or the code of the refusal.
    pub verdict: String,
}

/// How the note of `network_none` begins for a run with access.
pub const GATE_NOTE: &str = "none but the gate: ";

/// The verdict of a connection that was opened.
pub const ALLOWED: &str = "allowed";

/// The access of one run, until its result.
pub(crate) struct Outside {
    summary: String,
    record: Arc<dyn AccessRecord>,
    redactor: Option<Arc<Redactor>>,
}

impl Engine {
    /// Offers names of access from now on. Only the first call counts.
    pub fn offer_access(&self, book: Arc<dyn AccessBook>) {
        if self.access.set(book).is_err() {
            tracing::error!("access_offered_twice");
        }
    }

    /// The names of access that there are.
    pub fn offered_access(&self) -> &[Offered] {
        self.access.get().map(|book| book.offered()).unwrap_or_default()
    }

    /// What is known of tools of other servers, if some are configured.
    pub fn tool_index(&self) -> Option<&dyn ToolIndex> {
        self.access.get()?.tool_index()
    }

    /// Whether runs can ask for tools of other servers.
    pub(crate) fn offers_tools(&self) -> bool {
        self.offered_access().iter().any(|offered| !offered.tools.is_empty())
    }

    /// Checks that a caller may ask for these names, and that they exist.
    pub(crate) fn check_access(&self, caller: &Caller, names: &[String]) -> Result<(), RunError> {
        if names.is_empty() {
            return Ok(());
        }
        self.judge(&Call { caller, action: Action::Reach })?;
        if names.len() > ACCESS_NAMES_MAX {
            let message = format!("at most {ACCESS_NAMES_MAX} names of access can be asked for");
            return Err(RunError::bad("access", &message, "ask for fewer"));
        }
        let offered = self.offered_access();
        match names.iter().find(|name| offered.iter().all(|one| one.name != **name)) {
            None => Ok(()),
            Some(unknown) => Err(access_unknown(unknown, offered)),
        }
    }

    /// Opens what a request asks for: fills in its grants and what it is given, and takes the names. `None` for a run
    /// without access.
    pub(crate) fn open_access(
        &self,
        caller: &Caller,
        request: &mut RunRequest,
    ) -> Result<Option<Outside>, RunError> {
        if request.access.is_empty() {
            return Ok(None);
        }
        self.check_access(caller, &request.access)?;
        let Some(book) = self.access.get() else { return Ok(None) };
        let mut names = std::mem::take(&mut request.access);
        names.sort();
        names.dedup();
        let sandbox = request.sandbox.as_ref().map(|address| address.id.as_str());
        let call = AccessCall {
            caller,
            run_id: request.run_id.as_deref(),
            sandbox,
            names: &names,
            calls_tools: false,
        };
        let Opened { grants, proxies, secrets, redactor, summary, has_tools, record } = book.open(&call)?;
        if has_tools {
            request.given.set_own(TOOLS_VARIABLE, TOOLS_SOCKET.to_owned());
        }
        request.grants.extend(grants);
        request.given.set_proxies(proxies);
        let redactor = match redactor {
            Some(made) => Some(made),
            None => {
                Redactor::new(secrets.iter().map(|(name, secret)| (name.as_str(), secret)))?.map(Arc::new)
            }
        };
        for (name, secret) in secrets {
            request.given.set_secret(&name, secret);
        }
        request.given.set_redactor(redactor.clone());
        Ok(Some(Outside { summary, record, redactor }))
    }
}

/// The refusal of a name that does not exist, with those that do.
fn access_unknown(name: &str, offered: &[Offered]) -> RunError {
    let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
    let message = format!("there is no access `{}`", shown.escape_debug());
    let names: Vec<&str> = offered.iter().map(|one| one.name.as_str()).collect();
    let remedy = match names.as_slice() {
        [] => "this server offers no access: leave it out".to_owned(),
        names => format!("the names are {}", names.join(", ")),
    };
    RunError::new(ACCESS_UNKNOWN, message).remedy(remedy)
}

/// Whether a text can be a name of access.
pub fn is_access_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_letter)
}

impl Outside {
    /// Adds what the run reached to its result, tells the guarantee about the network as it was, and takes the secrets
    /// out of what the program reported.
    pub(crate) fn settle(self, result: &mut RunResult) {
        let mut reached = self.record.reached();
        if reached.len() > EGRESS_ENTRIES_MAX {
            let more = reached.len() - EGRESS_ENTRIES_MAX;
            result.warnings.push(format!("{more} more hosts are left out of `egress`"));
            reached.truncate(EGRESS_ENTRIES_MAX);
        }
        result.egress = reached;
        result.tools = self.record.tools();
        result.warnings.extend(self.record.warnings());
        if let RunPhase::Finished(execution) = &mut result.phase
            && let Enforcement::By { mechanisms, .. } = execution.enforced.get(Guarantee::NetworkNone)
        {
            let note = format!("{GATE_NOTE}{}", self.summary);
            execution.enforced.keep_with_note(Guarantee::NetworkNone, &mechanisms, &note);
        }
        if let Some(redactor) = &self.redactor {
            redactor.redact_result(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_the_names_there_are() {
        let offered = |name: &str| Offered {
            name: name.to_owned(),
            about: String::new(),
            hosts: Vec::new(),
            secrets: Vec::new(),
            tools: Vec::new(),
            tools_without_wall: Vec::new(),
        };
        let error = access_unknown("gihtub", &[offered("github"), offered("pypi")]);
        assert_eq!(
            (error.code.as_str(), error.remedy.as_deref()),
            (ACCESS_UNKNOWN, Some("the names are github, pypi"))
        );
        assert!(access_unknown("x", &[]).remedy.unwrap().contains("no access"));
    }

    #[test]
    fn names_of_access_are_plain() {
        assert!(is_access_name("github") && is_access_name("a-b_1"));
        for name in ["", "A", "a b", "a.b", "é", &"a".repeat(65)] {
            assert!(!is_access_name(name), "{name}");
        }
    }
}
