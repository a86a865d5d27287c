//! A call: who asks for what, and the judgement about it.
//!
//! [`judge`] is the one question that the engine asks of policy. It is pure: the same rules and the same call give the
//! same verdict. The rules today are the operator's limits ([`Policy`]); scopes of the caller come first.

use sandbox::Limits;

use crate::caller::Caller;
use crate::scope::Scope;
use crate::{Ask, Clamp, Denial, Floor, MB, Policy, limits};

/// What a caller asks for.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// For what.
    pub action: Action<'a>,
}

/// What can be asked for.
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    /// A program in a fresh sandbox.
    Run {
        /// In this language.
        language: &'a str,
        /// What its runtime needs at least.
        floor: Floor,
        /// The limits that the caller wants.
        ask: &'a Ask,
    },
    /// A program in a persistent sandbox.
    RunInSandbox {
        /// In this language.
        language: &'a str,
        /// What its runtime needs at least.
        floor: Floor,
        /// The limits that the caller wants; a run has only time and output of its own there.
        ask: &'a Ask,
        /// The limits that the sandbox was opened with.
        of_sandbox: &'a Limits,
    },
    /// A persistent sandbox.
    OpenSandbox {
        /// What the runtimes need at least.
        floor: Floor,
        /// The limits that the caller wants.
        ask: &'a Ask,
    },
    /// A look at a program, without running it.
    Validate {
        /// In this language.
        language: &'a str,
    },
    /// Everything else about persistent sandboxes: list, close, files.
    UseSandbox,
    /// Everything else about runs: wait, cancel, read logs.
    UseRun,
    /// Something outside of the sandbox, besides the run that reaches it.
    Reach,
    /// Packages, besides the run or the sandbox that uses them.
    Install,
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It proceeds on these terms.
    Proceed(Terms),
    /// It is refused.
    Deny(Denial),
}

/// What a call gets.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Terms {
    /// The limits in force.
    pub limits: Limits,
    /// Requested values that were changed.
    pub clamped: Vec<Clamp>,
    /// What the caller should know.
    pub notes: Vec<String>,
}

impl Action<'_> {
    /// The scope that a caller needs.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Run { .. } | Self::Validate { .. } | Self::UseRun => Scope::Run,
            Self::Reach => Scope::Access,
            Self::Install => Scope::Packages,
            Self::RunInSandbox { .. } | Self::OpenSandbox { .. } | Self::UseSandbox => Scope::Sandbox,
        }
    }
}

/// Judges one call.
pub fn judge(policy: &Policy, call: &Call<'_>) -> Verdict {
    let scope = call.action.scope();
    if !call.caller.may(scope) {
        return Verdict::Deny(Denial {
            code: "insufficient_scope",
            reason: format!("the caller does not have the scope `{}`", scope.name()),
            remedy: "ask the operator for a key with this scope".to_owned(),
        });
    }
    match terms(policy, &call.action) {
        Ok(terms) => Verdict::Proceed(terms),
        Err(denial) => Verdict::Deny(denial),
    }
}

fn terms(policy: &Policy, action: &Action<'_>) -> Result<Terms, Denial> {
    let mut clamped = Vec::new();
    let mut notes = Vec::new();
    let limits = match action {
        Action::Run { floor, ask, .. } | Action::OpenSandbox { floor, ask } => {
            limits(policy, *floor, ask, &mut clamped)?
        }
        Action::RunInSandbox { floor, ask, of_sandbox, .. } => {
            notes.extend(ask.has_limits_of_a_sandbox().then(|| FIXED.to_owned()));
            let Limits { wall_ms, output_bytes, .. } =
                limits(policy, Floor::default(), &ask.of_one_run(), &mut clamped)?;
            Limits {
                wall_ms,
                output_bytes,
                memory_bytes: of_sandbox.memory_bytes.max(floor.memory_mb * MB),
                processes: of_sandbox.processes.max(u32::try_from(floor.processes).unwrap_or(u32::MAX)),
                open_files: of_sandbox.open_files.max(u32::try_from(floor.open_files).unwrap_or(u32::MAX)),
                ..(*of_sandbox).clone()
            }
        }
        Action::Validate { .. } | Action::UseSandbox | Action::UseRun | Action::Reach | Action::Install => {
            policy.defaults.clone()
        }
    };
    Ok(Terms { limits, clamped, notes })
}

const FIXED: &str =
    "memory, processes, cpus, files and disk are limited for the whole sandbox, when it is opened";

impl Ask {
    /// What a run in a persistent sandbox can have of its own.
    fn of_one_run(&self) -> Self {
        Self { timeout_ms: self.timeout_ms, output_kb: self.output_kb, ..Self::default() }
    }

    fn has_limits_of_a_sandbox(&self) -> bool {
        let others = Self { timeout_ms: None, output_kb: None, ..self.clone() };
        others != Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Scopes;

    fn judged(caller: &Caller, action: Action<'_>) -> Verdict {
        judge(&Policy::built_in(2), &Call { caller, action })
    }

    #[test]
    fn a_caller_without_the_scope_is_refused_before_anything_else() {
        let runner = Caller { scopes: Scopes::of(&[Scope::Run]), ..Caller::local() };
        let bad = Ask { cpus: Some(f64::NAN), ..Ask::default() };
        let open = judged(&runner, Action::OpenSandbox { floor: Floor::default(), ask: &bad });
        let Verdict::Deny(denial) = open else { panic!("{open:?}") };
        assert_eq!(denial.code, "insufficient_scope");
        assert!(matches!(judged(&runner, Action::UseRun), Verdict::Proceed(_)));
        assert!(matches!(judged(&runner, Action::Reach), Verdict::Deny(_)), "the scope access is missing");
        assert!(
            matches!(judged(&runner, Action::Install), Verdict::Deny(_)),
            "the scope packages is missing"
        );
    }

    #[test]
    fn a_run_in_a_sandbox_has_its_own_time_and_output_and_the_sandboxs_other_limits() {
        let of_sandbox = Limits { memory_bytes: 123 << 20, ..Limits::default() };
        let ask = Ask { timeout_ms: Some(77), memory_mb: Some(4000), ..Ask::default() };
        let action = Action::RunInSandbox {
            language: "python",
            floor: Floor { processes: 500, ..Floor::default() },
            ask: &ask,
            of_sandbox: &of_sandbox,
        };
        let Verdict::Proceed(terms) = judged(&Caller::local(), action) else { panic!() };
        assert_eq!((terms.limits.wall_ms, terms.limits.memory_bytes), (77, 123 << 20));
        assert_eq!(terms.limits.processes, 500, "the runtime needs so many");
        assert_eq!((terms.clamped.len(), terms.notes.as_slice()), (0, [FIXED.to_owned()].as_slice()));
        let (floor, nothing) = (Floor::default(), Ask::default());
        let plain =
            Action::RunInSandbox { language: "python", floor, ask: &nothing, of_sandbox: &of_sandbox };
        let Verdict::Proceed(terms) = judged(&Caller::local(), plain) else { panic!() };
        assert!(terms.notes.is_empty());
    }

    #[test]
    fn everything_about_persistent_sandboxes_needs_their_scope() {
        let runner = Caller { scopes: Scopes::of(&[Scope::Run]), ..Caller::local() };
        let holder = Caller { scopes: Scopes::of(&[Scope::Sandbox]), ..Caller::local() };
        let (floor, ask, of_sandbox) = (Floor::default(), Ask::default(), Limits::default());
        let inside = Action::RunInSandbox { language: "python", floor, ask: &ask, of_sandbox: &of_sandbox };
        for action in [inside, Action::OpenSandbox { floor, ask: &ask }, Action::UseSandbox] {
            assert!(matches!(judged(&runner, action), Verdict::Deny(_)), "{action:?}");
            assert!(matches!(judged(&holder, action), Verdict::Proceed(_)), "{action:?}");
        }
        let nobody = Caller { scopes: Scopes::default(), ..Caller::local() };
        let fresh = Action::Run { language: "python", floor, ask: &ask };
        for action in [fresh, Action::Validate { language: "python" }, Action::UseRun] {
            assert!(matches!(judged(&nobody, action), Verdict::Deny(_)), "{action:?}");
        }
    }
}
