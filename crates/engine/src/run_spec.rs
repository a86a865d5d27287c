//! The sandbox that a run needs: its spec, and the messages with which its interpreter starts.

use std::path::PathBuf;

use sandbox::{Limits, SandboxSpec, WORKSPACE, ZygoteSpec};
use wire::{Fork, OpenProcess, ToGuest};

use crate::compile::Built;
use crate::conversation::{MAIN, PREPARE};
use crate::given::Giving;
use crate::packages::{Ecosystem, ShownPackages, imported_words};
use crate::pool::{Lease, Purpose, Want};
use crate::request::RunRequest;
use crate::result::RunError;
use crate::run::{FRESH, in_workspace};
use crate::runtimes::{CpuShare, DriverCall, OWN_EXECUTABLE, Preload, Runtime, is_among};
use crate::unstarted::Unstarted;
use crate::{Engine, Wall};

/// The command `tools`, for programs that have no API of their own. Its folder is on the PATH.
const TOOLS_COMMAND: &str = "/palisade/bin/tools";

/// What decides about the sandbox of a run.
pub(crate) struct RunPlan<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) limits: &'a Limits,
    /// The compiled program, where the language is compiled.
    pub(crate) built: Option<&'a Built>,
    /// File name of the program in the workspace.
    pub(crate) source: &'a str,
    pub(crate) giving: Giving,
    pub(crate) shown: &'a ShownPackages,
    /// The modules that a spare imports before its program arrives.
    pub(crate) modules: &'a [String],
}

impl RunPlan<'_> {
    fn preload(&self) -> Preload<'_> {
        let has_layers = !self.shown.sets().is_empty();
        Preload { shows: self.shown.shows(), has_layers, modules: self.modules }
    }
}

impl Engine {
    /// The share of the processors of a run that asks for none.
    pub(crate) fn usual_share(&self) -> CpuShare {
        CpuShare::of(&self.policy().usual(policy::Floor::default()))
    }

    /// The spec of the sandbox for a run, without its workspace and its zygote process.
    pub(crate) async fn run_spec(
        &self,
        wall: &Wall,
        request: &RunRequest,
        plan: &RunPlan<'_>,
    ) -> Result<SandboxSpec, RunError> {
        let RunPlan { runtime, limits, built, source, giving, shown, .. } = plan;
        let share = CpuShare::of(limits);
        let mut spec = match built {
            None if request.terminal.is_some() => self.terminal_spec(wall, runtime, limits).await,
            None => {
                let opening = opening(runtime, source, (share, plan.preload()), *giving)?;
                self.spec(runtime, limits, opening)
            }
            Some(built) => SandboxSpec {
                limits: (*limits).clone(),
                binds: runtime.run_binds(),
                layers: vec![Runtime::run_layer(&built.build)],
                files: runtime.run_files(&request.variables),
                links: self.links_for(runtime),
                executable_at: self.tools_command(),
                absence_allowed: self.policy().absence_allowed.clone(),
                ..SandboxSpec::default()
            },
        };
        shown.add_to(&mut spec);
        Ok(spec)
    }

    /// The zygote process for a run, where the language has one.
    pub(crate) fn zygote_for(&self, request: &RunRequest, plan: &RunPlan<'_>) -> Option<ZygoteSpec> {
        let share = CpuShare::of(plan.limits);
        // A zygote process has the share of a run that asks for none.
        if !self.is_warm || share != self.usual_share() || !plan.runtime.has_zygote() {
            return None;
        }
        let brings = |package: &str| is_among(&request.inputs, package);
        plan.runtime.zygote(share, plan.preload(), &request.code, brings)
    }

    /// The modules of its layer that programs import, if this one imports some of them and brings none.
    pub(crate) fn modules_ahead(
        &self,
        shown: &ShownPackages,
        runtime: &Runtime,
        request: &RunRequest,
    ) -> Vec<String> {
        let ecosystem =
            Ecosystem::of_language(runtime.name()).filter(|_| self.is_warm && runtime.has_zygote());
        let layer = ecosystem.and_then(|ecosystem| Some((ecosystem, shown.digest(ecosystem)?)));
        let Some((ecosystem, digest)) = layer else { return Vec::new() };
        let popular = self.popular.note(digest, shown.modules(ecosystem), &request.code);
        let is_named = imported_words(&request.code).any(|word| popular.iter().any(|known| known == word));
        let is_brought = popular.iter().any(|module| is_among(&request.inputs, module));
        if is_named && !is_brought { popular } else { Vec::new() }
    }

    /// A sandbox for a run: a spare, or a new one.
    pub(crate) async fn lease_for_run(
        &self,
        wall: &Wall,
        spec: &SandboxSpec,
        runtime: &Runtime,
    ) -> Result<Lease, Unstarted> {
        let policy = self.policy();
        // The limits of a run that asks for none.
        let usual = policy.usual(runtime.floor());
        let (language, purpose) = (runtime.interpreter(), Purpose::Run);
        wall.lease(&Want { spec, usual: &usual, most: &policy.maxima, language, purpose }).await
    }

    /// Where sandboxes show the executable for the command `tools`. Only servers that offer tools show it to all programs.
    pub(crate) fn tools_command(&self) -> Option<PathBuf> {
        self.offers_tools().then(|| PathBuf::from(OWN_EXECUTABLE))
    }

    /// The links that a sandbox shows: the commands of all languages, and `tools`.
    pub(crate) fn links_for(&self, runtime: &Runtime) -> Vec<(PathBuf, PathBuf)> {
        let tools = self.tools_command().map(|executable| (PathBuf::from(TOOLS_COMMAND), executable));
        runtime.links().into_iter().chain(tools).collect()
    }

    /// The spec of a sandbox for that runtime. `opening` holds the first messages to its guest.
    pub(crate) fn spec(&self, runtime: &Runtime, limits: &Limits, opening: Vec<u8>) -> SandboxSpec {
        SandboxSpec {
            limits: limits.clone(),
            binds: runtime.read_only_binds(),
            executable_at: runtime.executable_at().or_else(|| self.tools_command()),
            files: runtime.placed_files(),
            links: self.links_for(runtime),
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
    (share, preload): (CpuShare, Preload<'_>),
    giving: Giving,
) -> Result<Vec<u8>, RunError> {
    if giving == Giving::AtStart {
        return Ok(Vec::new());
    }
    let call = DriverCall { mode: FRESH, source: &in_workspace(source) };
    let mut frames = Vec::new();
    let mut open = |process: u32, argv: Vec<String>, has_channel: bool| {
        let (mut env, cwd) = (runtime.environment(share, preload.shows), WORKSPACE.to_owned());
        if has_channel {
            preload.add_to(&mut env);
        }
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
