//! Contexts of a persistent sandbox: listed, and removed one by one.
//!
//! A run makes the interpreter of its context by first use (`persistent_run`). Contexts share the turns, the
//! files and the limits of their sandbox. `mcp` calls [`Sandboxes::close_context`]; it ends the interpreters of
//! one context and leaves all others. To restart a context is to remove it and to use it again.

use std::collections::BTreeSet;

use policy::Caller;
use tokio::sync::watch;

use super::address::{CONTEXT_SEPARATOR, ContextName, InterpreterName};
use super::entry::{SandboxEntry, Slot};
use super::{SandboxId, Sandboxes};
use crate::conversation::StopSignals;
use crate::result::RunError;

/// How many interpreters the named contexts of one sandbox may have together. Those of the default context do
/// not count: there is one per live language. The guest keeps 32 processes open for the host.
pub(super) const NAMED_INTERPRETERS_MAX: usize = 16;

/// An interpreter of a sandbox in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextInfo {
    /// The context that has it.
    pub context: ContextName,
    /// The interpreter. JavaScript and TypeScript share one.
    pub language: String,
    /// Whether it is alive. If not, its state is gone, and the next run reports it.
    pub is_awake: bool,
}

/// What is being closed in a sandbox. Runs that it concerns end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Closing {
    pub(super) is_whole: bool,
    contexts: BTreeSet<ContextName>,
}

impl Closing {
    #[cfg(test)]
    pub(crate) fn whole() -> Self {
        Self { is_whole: true, ..Self::default() }
    }

    /// Whether it ends a run in that context. `None` stands for a call that only the close of the sandbox ends.
    pub(crate) fn ends(&self, context: Option<&ContextName>) -> bool {
        self.is_whole || context.is_some_and(|context| self.contexts.contains(context))
    }
}

/// Announces the removal of a context until it is dropped.
struct Removal<'a> {
    closing: &'a watch::Sender<Closing>,
    context: &'a ContextName,
}

impl<'a> Removal<'a> {
    fn begin(closing: &'a watch::Sender<Closing>, context: &'a ContextName) -> Self {
        closing.send_modify(|closing| {
            closing.contexts.insert(context.clone());
        });
        Self { closing, context }
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        self.closing.send_modify(|closing| {
            closing.contexts.remove(self.context);
        });
    }
}

impl Sandboxes {
    /// Ends the interpreters of one context with their process groups, and the runs that use them or wait for
    /// them. Files and other contexts stay. The default context can be ended as well; it always exists.
    pub async fn close_context(
        &self,
        caller: &Caller,
        id: &SandboxId,
        context: &ContextName,
    ) -> Result<(), RunError> {
        let principal = self.lookup_of(caller)?;
        let entry = self.entry(principal, id).await?.ok_or_else(super::unknown_sandbox)?;
        let workspaces = self.workspaces_of(self.wall_of(&entry)?)?;
        let removal = Removal::begin(&entry.closing, context);
        let mut stops = StopSignals::default().or_closing(entry.closing.subscribe(), None);
        let mut slot = entry.take_turn(workspaces, &mut stops).await.map_err(|unstarted| unstarted.error)?;
        let ended = end(&mut slot, context).await;
        entry.note_awake(&slot);
        if ended {
            // Within the turn: a run may make the context again. If this write is lost, the next server lists the
            // context as asleep, and its next run reports a state that is gone.
            let stored = self.store.keep_interpreters(id.clone(), slot.names()).await;
            stored.unwrap_or_else(|error| self.store.tell(&error));
        }
        if slot.awake.is_none() {
            entry.memory_bytes.store(0, std::sync::atomic::Ordering::Relaxed);
            entry.let_go(&mut slot);
        }
        // The turn first: a run that waited for it until now is ended, and later ones are not.
        drop(slot);
        drop(removal);
        if ended { Ok(()) } else { Err(unknown_context(context)) }
    }
}

/// Ends the interpreters of a context. Returns whether there was such a context.
async fn end(slot: &mut Slot, context: &ContextName) -> bool {
    let names: Vec<InterpreterName> =
        slot.interpreters.keys().filter(|name| name.context == *context).cloned().collect();
    if names.is_empty() {
        return context.is_default();
    }
    if let Some(awake) = &mut slot.awake
        && awake.channel.end(&names).await.is_err()
    {
        // A guest that does not answer is lost, with everything in the sandbox.
        drop(slot.sleep("the sandbox ended unexpectedly"));
    }
    slot.interpreters.retain(|name, _| name.context != *context);
    true
}

/// Refuses a further interpreter in a named context when the sandbox has as many as it may.
pub(super) fn check_room(slot: &Slot, name: &InterpreterName) -> Result<(), RunError> {
    let is_new = !name.context.is_default() && !slot.interpreters.contains_key(name);
    let named = slot.interpreters.keys().filter(|known| !known.context.is_default()).count();
    if !is_new || named < NAMED_INTERPRETERS_MAX {
        return Ok(());
    }
    let message = format!(
        "the contexts of this sandbox have {NAMED_INTERPRETERS_MAX} interpreters, the most there may be"
    );
    let remedy = "remove one of those that sandbox_list shows: sandbox_close ID#NAME";
    Err(RunError::new("too_many_contexts", message).remedy(remedy))
}

fn unknown_context(context: &ContextName) -> RunError {
    let message = format!("nothing has run in the context `{context}` of this sandbox");
    let remedy = format!(
        "see contexts in sandbox_list; sandbox_close without `{CONTEXT_SEPARATOR}{context}` closes the whole sandbox"
    );
    RunError::new("unknown_context", message).remedy(remedy)
}

/// The interpreters of a sandbox for lists.
pub(super) fn listed(slot: &Slot) -> Vec<ContextInfo> {
    let living: BTreeSet<&InterpreterName> =
        slot.awake.iter().flat_map(|awake| awake.channel.interpreters()).collect();
    let all: BTreeSet<&InterpreterName> = slot.interpreters.keys().chain(living.iter().copied()).collect();
    let one = |name: &InterpreterName| ContextInfo {
        context: name.context.clone(),
        language: name.interpreter.clone(),
        is_awake: living.contains(name),
    };
    all.into_iter().map(one).collect()
}

impl SandboxEntry {
    /// Announces that the whole sandbox is being closed, or that it was not closed after all.
    pub(super) fn set_closing(&self, is_whole: bool) {
        self.closing.send_modify(|closing| closing.is_whole = is_whole);
    }

    /// The interpreters that are awake, as text.
    pub(super) fn awake(&self) -> Vec<String> {
        let awake = self.contexts().into_iter().filter(|info| info.is_awake);
        let name = |info: ContextInfo| InterpreterName { context: info.context, interpreter: info.language };
        awake.map(|info| name(info).to_string()).collect()
    }
}
