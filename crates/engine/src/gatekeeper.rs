//! The gatekeeper: the one place that asks policy about a call.
//!
//! Each action is judged before anything is reserved or built: a fresh run and a run in a persistent sandbox when
//! their language is known, the opening of a sandbox, a check of a program. A lookup of a run, a sandbox or its files is
//! an action of its own (`Action::UseRun`, `Action::UseSandbox`), so one tool call may contain several. Nothing else in
//! this crate calls [`policy::judge`].

use policy::{Call, Denial, Terms, Verdict};

use crate::Engine;
use crate::result::RunError;

impl Engine {
    /// The terms on which a call may proceed, or why it may not.
    pub(crate) fn judge(&self, call: &Call<'_>) -> Result<Terms, RunError> {
        match policy::judge(self.policy(), call) {
            Verdict::Proceed(terms) => Ok(terms),
            Verdict::Deny(Denial { code, reason, remedy }) => Err(RunError::new(code, reason).remedy(remedy)),
        }
    }
}
