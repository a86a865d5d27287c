//! One run that may call tools: what it may call, its budgets, its labels and its counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::access::ToolsUse;
use engine::links::{Broker, Link, LinkCall};
use engine::{Caller, Gatekeeper};
use sandbox::BoxFuture;
use tokio::sync::Semaphore;

use super::call::CallError;
use super::labels::{LabelStore, Labels};
use super::rates::Rates;
use super::shelf::Shelf;
use super::{
    CALLS_MAX, DISK_REQUESTS_MAX, IN_FLIGHT_MAX, IN_FLIGHT_OF_SERVER_MAX, LARGE_REQUESTS_MAX,
    OPEN_REQUESTS_MAX, RESULT_BYTES_MAX, RUN_BYTES_MAX, serve,
};
use crate::{IsHidden, ToolHost, Viewer};

/// Calls that a warning names.
const NAMED_MAX: usize = 8;

/// What all runs share.
pub(super) struct Shared {
    pub(super) host: Arc<dyn ToolHost>,
    pub(super) gatekeeper: Arc<Gatekeeper>,
    /// Calls.
    pub(super) rates: Rates,
    /// Requests of every kind.
    pub(super) requests: Rates,
    pub(super) labels: LabelStore,
    pub(super) saved: Shelf,
    pub(super) memory: Shelf,
}

/// One run.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) caller: Caller,
    /// The handle of the run, by which a client that waits for it finds its questions.
    pub(super) run_id: Option<String>,
    labels: Arc<Labels>,
    /// The servers that it may call, sorted.
    servers: Vec<String>,
    /// Requests that are not answered.
    pub(super) open: Arc<Semaphore>,
    pub(super) large: Arc<Semaphore>,
    pub(super) in_flight: Semaphore,
    /// Those that read or write files.
    pub(super) disk: Semaphore,
    of_server: HashMap<String, Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: ToolsUse,
    /// Calls that took their place in the budget.
    begun: u64,
    /// Calls without an answer, by number.
    pending: BTreeMap<u64, String>,
    next: u64,
    /// Calls that nothing in the program waited for, as its library says.
    left: Vec<String>,
}

/// A call without an answer. It stays in the account of the run unless it is answered.
pub(super) struct Pending<'s> {
    session: &'s Session,
    number: u64,
    name: String,
}

impl Session {
    pub(super) fn new(
        shared: Arc<Shared>,
        caller: Caller,
        sandbox: Option<&str>,
        servers: Vec<String>,
    ) -> io::Result<Self> {
        let labels = sandbox.map(|id| shared.labels.open(id)).transpose()?.unwrap_or_default();
        let of_server = |name: &String| (name.clone(), Semaphore::new(IN_FLIGHT_OF_SERVER_MAX));
        Ok(Self {
            of_server: servers.iter().map(of_server).collect(),
            labels,
            run_id: None,
            open: Arc::new(Semaphore::new(OPEN_REQUESTS_MAX)),
            large: Arc::new(Semaphore::new(LARGE_REQUESTS_MAX)),
            in_flight: Semaphore::new(IN_FLIGHT_MAX),
            disk: Semaphore::new(DISK_REQUESTS_MAX),
            state: Mutex::default(),
            shared,
            caller,
            servers,
        })
    }

    /// The same session, of a run that has this handle.
    pub(super) fn of_run(self, run_id: Option<&str>) -> Self {
        Self { run_id: run_id.map(str::to_owned), ..self }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The servers that the run may call.
    pub(super) fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The server of that name or alias, if the run may call it.
    pub(super) fn server(&self, name: &str) -> Result<&str, CallError> {
        let exact = self.servers.iter().find(|server| *server == name);
        let found = exact.or_else(|| self.servers.iter().find(|server| alias(server) == name));
        if let Some(found) = found {
            return Ok(found);
        }
        let is_known = self
            .shared
            .host
            .servers(Viewer::of(&self.caller.principal))
            .iter()
            .any(|server| server.name == name);
        let (code, message) = match is_known {
            true => ("not_granted", format!("this run may not call the tools of `{}`", name.escape_debug())),
            false => ("unknown_server", format!("there is no server `{}`", name.escape_debug())),
        };
        let remedy = match self.servers.as_slice() {
            _ if is_known => format!("add `{}` to `access` of the run", name.escape_debug()),
            servers => format!("the servers of this run are {}", servers.join(", ")),
        };
        Err(CallError::denied(code, message).remedy(remedy))
    }

    /// Whether a policy hides the tool with one of these names from the caller. It does not exist then.
    pub(super) fn is_hidden(&self, names: &[String]) -> bool {
        conceals(&self.shared.gatekeeper, &self.caller, names)
    }

    /// The tools that do not exist for the caller.
    pub(super) fn hides(&self) -> Option<Box<IsHidden<'_>>> {
        hides(&self.shared.gatekeeper, &self.caller)
    }

    /// The places at one server.
    pub(super) fn places(&self, server: &str) -> Option<&Semaphore> {
        self.of_server.get(server)
    }

    /// Takes a call from the budgets of the run and of the principal.
    pub(super) fn begin(&self, name: &str) -> Result<Pending<'_>, CallError> {
        let mut state = self.lock();
        if state.begun >= CALLS_MAX {
            let message = format!("this run has made {CALLS_MAX} calls, which is the most");
            return Err(CallError::denied("calls_exhausted", message).remedy("continue in another run"));
        }
        if state.used.bytes >= RUN_BYTES_MAX {
            return Err(bytes_exhausted());
        }
        if let Err(wait) = self.shared.rates.count(&self.caller.principal, Instant::now()) {
            return Err(rate_limited("too many calls in this minute", wait));
        }
        state.begun += 1;
        let number = state.next;
        state.next += 1;
        state.pending.insert(number, name.to_owned());
        Ok(Pending { session: self, number, name: name.to_owned() })
    }

    /// Takes a request of any kind from the budget of the principal.
    pub(super) fn count_request(&self) -> Result<(), CallError> {
        let counted = self.shared.requests.count(&self.caller.principal, Instant::now());
        counted.map_err(|wait| rate_limited("too many requests in this minute", wait))
    }

    /// The most bytes of the next result. Without any, nothing is sent whose result could not be given.
    pub(super) fn room(&self) -> Result<usize, CallError> {
        match RUN_BYTES_MAX.saturating_sub(self.lock().used.bytes) {
            0 => Err(bytes_exhausted()),
            left => Ok(usize::try_from(left).unwrap_or(usize::MAX).min(RESULT_BYTES_MAX)),
        }
    }

    /// Counts a call that was denied.
    pub(super) fn count_denied(&self) {
        self.lock().used.denied += 1;
    }

    /// Counts a call that is sent to a server.
    pub(super) fn count_sent(&self, server: &str) {
        let mut state = self.lock();
        state.used.calls += 1;
        *state.used.by_server.entry(server.to_owned()).or_default() += 1;
    }

    pub(super) fn count_failed(&self) {
        self.lock().used.failed += 1;
    }

    /// Counts the bytes of a result. It is refused if the run has had too many.
    pub(super) fn count_bytes(&self, bytes: usize) -> Result<(), CallError> {
        let mut state = self.lock();
        state.used.bytes = state.used.bytes.saturating_add(bytes as u64);
        if state.used.bytes > RUN_BYTES_MAX { Err(bytes_exhausted()) } else { Ok(()) }
    }

    /// The label of this run that one of `refused` names.
    pub(super) fn barred_by(&self, refused: &[String]) -> Option<String> {
        self.labels.barred_by(refused)
    }

    /// The labels of this run.
    pub(super) fn labels(&self) -> BTreeSet<String> {
        self.labels.all()
    }

    /// Marks the run, and its sandbox, with what it is about to read. The program gets nothing before this returns.
    pub(super) async fn mark(&self, labels: BTreeSet<String>) -> Result<(), CallError> {
        self.labels.mark(labels).await.map_err(|error| {
            tracing::error!(reason = %error, "labels_not_kept");
            CallError::failed("labels_unavailable", "the labels of the result cannot be kept")
                .remedy("ask the operator, or make the call in a run without a persistent sandbox")
        })
    }

    /// Notes calls that nothing in the program waited for.
    pub(super) fn note_left(&self, names: Vec<String>) {
        let mut state = self.lock();
        let room = NAMED_MAX.saturating_sub(state.left.len());
        state.left.extend(names.into_iter().take(room));
    }

    /// What the run called.
    pub(super) fn used(&self) -> ToolsUse {
        let state = self.lock();
        let pending = state.pending.values().take(NAMED_MAX).cloned().collect();
        ToolsUse { pending, ..state.used.clone() }
    }

    /// Warnings about calls without an effect on the program.
    pub(super) fn warnings(&self) -> Vec<String> {
        let state = self.lock();
        let named = |names: &mut dyn Iterator<Item = &String>| {
            names.take(NAMED_MAX).map(|name| name.escape_debug().to_string()).collect::<Vec<_>>().join(", ")
        };
        let mut warnings = Vec::new();
        if !state.pending.is_empty() {
            let count = state.pending.len();
            let names = named(&mut state.pending.values());
            warnings.push(format!(
                "{count} calls of tools had no answer when the run ended and may have had their effect: {names}"
            ));
        }
        if !state.left.is_empty() {
            let names = named(&mut state.left.iter());
            warnings.push(format!("the program did not wait for its calls of {names}: await or join them"));
        }
        warnings
    }
}

fn conceals(gatekeeper: &Gatekeeper, caller: &Caller, names: &[String]) -> bool {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    gatekeeper.conceals(caller, &names)
}

/// The tools that a policy hides from a caller; `None` for one that no policy binds.
pub(super) fn hides<'a>(gatekeeper: &'a Gatekeeper, caller: &'a Caller) -> Option<Box<IsHidden<'a>>> {
    let is_hidden = move |server: &str, own: &str, tool_alias: &str| {
        conceals(gatekeeper, caller, &names_of(server, own, tool_alias))
    };
    gatekeeper.binds(caller).then(|| Box::new(is_hidden) as Box<IsHidden<'a>>)
}

fn rate_limited(message: &str, wait: Duration) -> CallError {
    let error = CallError::denied("rate_limited", message).remedy(format!("wait {} s", wait.as_secs() + 1));
    CallError { retry_after_ms: Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)), ..error }
}

fn bytes_exhausted() -> CallError {
    let message = format!("the results of this run have {} MB, which is the most", RUN_BYTES_MAX >> 20);
    CallError::denied("bytes_exhausted", message).remedy("ask for less data, or continue in another run")
}

/// All names of a tool, its own last, as rules and the audit take them. Rules about each of them hold, however a program
/// spells it.
pub(super) fn names_of(server: &str, tool: &str, tool_alias: &str) -> Vec<String> {
    let server_alias = alias(server);
    let all = [(&*server_alias, tool_alias), (&*server_alias, tool), (server, tool_alias), (server, tool)];
    let mut names: Vec<String> = all.iter().map(|(server, tool)| format!("{server}.{tool}")).collect();
    let own = names.pop().unwrap_or_default();
    names.retain(|name| *name != own);
    names.dedup();
    names.push(own);
    names
}

/// The name of a server as programs write it.
pub(super) fn alias(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let plain: String = name.chars().map(letter).collect();
    if plain.starts_with(|first: char| first.is_ascii_digit()) { format!("_{plain}") } else { plain }
}

impl Pending<'_> {
    /// The name of the tool as the program spelled it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Says in the account of the run what the call waits for.
    pub(super) fn waits_for(&self, what: Option<&str>) {
        let told = match what {
            Some(what) => format!("{} ({what})", self.name),
            None => self.name.clone(),
        };
        self.session.lock().pending.insert(self.number, told);
    }

    /// The program has its answer.
    pub(super) fn answered(self) {
        self.session.lock().pending.remove(&self.number);
    }
}

impl Broker for Session {
    fn serve(self: Arc<Self>, link: Link, call: LinkCall) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(serve::serve(self, link, call.pause))
    }
}
