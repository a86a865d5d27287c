//! The sandbox that a run needs: its spec, and the messages with which its interpreter starts.

use sandbox::{Limits, SandboxSpec, WORKSPACE};
use wire::{Fork, OpenProcess, ToGuest};

use crate::Engine;
use crate::conversation::{MAIN, PREPARE};
use crate::given::Giving;
use crate::result::RunError;
use crate::run::{FRESH, in_workspace};
use crate::runtimes::{CpuShare, DriverCall, Runtime};

impl Engine {
    /// The share of the processors of a run that asks for none.
    pub(crate) fn usual_share(&self) -> CpuShare {
        CpuShare::of(&self.policy().usual(policy::Floor::default()))
    }

    /// The spec of a sandbox for that runtime. `opening` holds the first messages to its guest.
    pub(crate) fn spec(&self, runtime: &Runtime, limits: &Limits, opening: Vec<u8>) -> SandboxSpec {
        SandboxSpec {
            limits: limits.clone(),
            binds: runtime.read_only_binds(),
            executable_at: runtime.executable_at(),
            files: runtime.placed_files(),
            links: runtime.links(),
            opening,
            absence_allowed: self.policy().absence_allowed.clone(),
            ..SandboxSpec::default()
        }
    }
}

/// The messages that start the interpreter and its preparer. Neither needs the program, so both can start while
/// the backend verifies the wall. An interpreter that starts with what the run is given starts after that, and
/// its environment is not part of the spec.
pub(crate) fn opening(
    runtime: &Runtime,
    source: &str,
    share: CpuShare,
    giving: Giving,
) -> Result<Vec<u8>, RunError> {
    if giving == Giving::AtStart {
        return Ok(Vec::new());
    }
    let call = DriverCall { mode: FRESH, source: &in_workspace(source) };
    let mut frames = Vec::new();
    let mut open = |process: u32, argv: Vec<String>, has_channel: bool| {
        let (env, cwd) = (runtime.environment(share), WORKSPACE.to_owned());
        let fork = if has_channel && runtime.has_zygote() { Fork::Once } else { Fork::Never };
        let open = OpenProcess { process, after: 0, argv, env, cwd, has_channel, fork, terminal: None };
        wire::encode_into(&ToGuest::Open(open), &mut frames)
            .map_err(|error| RunError::new("language_broken", error.to_string()))
    };
    open(MAIN, runtime.command(&call), true)?;
    if let Some(preparing) = runtime.preparing(&call) {
        open(PREPARE, preparing.command, false)?;
    }
    Ok(frames)
}
