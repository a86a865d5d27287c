//! Builds a product in a sandbox: one command behind the wall, and the directory that it leaves.
//!
//! ```text
//! workspace on disk -> sandbox with the grants -> command ends -> sandbox destroyed -> tree read out -> workspace removed
//! ```
//! The workspace is held while it is used. The sweep of the wall's store removes that of a server that was killed.

use std::collections::BTreeMap;
use std::time::Duration;

use policy::{Caller, Terms};
use sandbox::workspace::{FileError, FilePath, Quota, TreeBounds, TreeSink, WorkspaceStore};
use sandbox::{Layer, Limits, Outcome, Sandbox, SandboxSpec, WorkspaceRef};
use tokio::time::{Instant, timeout_at};
use wire::Exit;

use crate::conversation::{Conversation, Overflow, StopSignals};
use crate::guest_client::{self, GuestError};
use crate::links::{Grant, Reach};
use crate::output::Output;
use crate::result::RunError;
use crate::runtimes::CpuShare;
use crate::unstarted::Unstarted;
use crate::verdict::{self, End};
use crate::{Engine, Wall, handle};

/// The prefix of the ids of workspaces of builders.
const ID_PREFIX: &str = "build_";

/// A command that builds something.
pub struct Builder<'a> {
    /// For whom it is built.
    pub caller: &'a Caller,
    /// The wall behind which it is built.
    pub wall: &'a str,
    /// The language whose interpreter the command needs.
    pub language: &'a str,
    /// What the sandbox may use.
    pub limits: Limits,
    /// Read-only directories of the server that the command needs.
    pub layers: Vec<Layer>,
    /// What the command may reach.
    pub grants: Vec<Grant>,
    /// Small files that are placed in the workspace before it starts: path and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// The command and its arguments.
    pub argv: Vec<String>,
    /// Variables beyond those of the language.
    pub env: BTreeMap<String, String>,
    /// The directory in the workspace that is read out if the command succeeds.
    pub product: FilePath,
    /// The bounds of the product.
    pub bounds: TreeBounds,
}

/// How a build ended.
#[derive(Debug)]
pub struct Built {
    /// `Completed` if the command exited with status 0 and the sink has everything.
    pub outcome: Outcome,
    /// Why the sink does not have everything although the command succeeded.
    pub unread: Option<FileError>,
    /// The signal that ended the command.
    pub signal: Option<i32>,
    /// Standard output, in bounds.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl Engine {
    /// Runs the command and gives the product to the sink.
    pub async fn build(&self, builder: Builder<'_>, sink: Box<dyn TreeSink>) -> Result<Built, RunError> {
        let wall = self.known_wall(builder.wall)?;
        let store = wall.backend().workspaces().ok_or_else(|| {
            RunError::new("packages_unsupported", "this wall has no disk on which packages can be built")
                .remedy("use another wall")
        })?;
        let identity = crate::sandboxes::random_identity()?;
        let of = WorkspaceRef { id: handle::random(ID_PREFIX)?, identity };
        store.create(&of).await.map_err(|error| no_disk(&error))?;
        let held = store.hold(&of).await;
        let built = self.build_in((wall, store, &of), builder, sink).await;
        if let Err(error) = store.remove(&of).await {
            tracing::debug!(reason = %error, "builder_workspace_not_removed");
        }
        drop(held);
        built
    }

    async fn build_in(
        &self,
        (wall, store, of): (&Wall, &dyn WorkspaceStore, &WorkspaceRef),
        builder: Builder<'_>,
        sink: Box<dyn TreeSink>,
    ) -> Result<Built, RunError> {
        let told = |unstarted: Unstarted| unstarted.error;
        let mut limits = builder.limits.clone();
        // On a small machine the builder gets the memory that is available.
        limits.memory_bytes = limits.memory_bytes.min(self.admission.memory_bytes_max());
        let runtime = wall.runtimes().find(builder.language).await.map_err(|error| told(error.into()))?;
        let permit = self.admit(limits.memory_bytes).await.map_err(|busy| told(Unstarted::busy(busy)))?;
        let share = CpuShare::of(&limits);
        let spec = SandboxSpec {
            limits: limits.clone(),
            layers: builder.layers.clone(),
            workspace: Some(of.clone()),
            ..self.spec(&runtime, &limits, Vec::new())
        };
        let quota = Quota { bytes: limits.disk_bytes, inodes: limits.disk_inodes };
        let mut sandbox = wall.create(&spec).await.map_err(told)?;
        sandbox.measure_anew(&limits, None).await;
        let mut env: BTreeMap<String, String> =
            runtime.environment(share, super::Shows::NOTHING).into_iter().collect();
        env.extend(builder.env.clone());
        let terms = Terms { limits: limits.clone(), clamped: Vec::new(), notes: Vec::new() };
        let reach = Reach::of_builder(builder.grants.clone(), builder.caller, terms, &self.link_memory);
        let started = Instant::now();
        let (end, output) = execute(sandbox.as_mut(), &builder, &limits, (env, &reach)).await;
        let usage = sandbox.destroy().await.unwrap_or_default();
        let (ended, cpu_ms) = (Instant::now(), usage.cpu_us / 1000);
        drop((sandbox, permit));
        let outcome = match end {
            End::Program(Exit::Code(0)) => Outcome::Completed,
            end => match verdict::judge(end, &usage, &limits).outcome {
                Outcome::Completed => Outcome::Failed,
                outcome => outcome,
            },
        };
        let Output { stdout, stderr, .. } = output;
        let signal = match end {
            End::Program(Exit::Signal(signal)) => Some(signal),
            _ => None,
        };
        let mut built = Built { outcome, unread: None, signal, stdout, stderr };
        if built.outcome == Outcome::Completed {
            let files = store.open(of, quota).await.map_err(|error| no_disk(&error))?;
            built.unread = files.tree(&builder.product, builder.bounds, sink).await.err();
        }
        let (wall_ms, read_ms) = ((ended - started).as_millis() as u64, ended.elapsed().as_millis() as u64);
        tracing::debug!(outcome = built.outcome.name(), wall_ms, cpu_ms, read_ms, "builder_ended");
        Ok(built)
    }
}

fn no_disk(error: &FileError) -> RunError {
    let mut told = RunError::new("packages_disk_full", "there is no room to build packages");
    told.cause = Some(match error {
        FileError::Failed(reason) => reason.clone(),
        error => error.to_string(),
    });
    told.remedy(
        "ask the operator to run `palisade packages gc` and to look at the disk of the state directory",
    )
}

/// Runs the command. The time limit bounds every wait.
async fn execute(
    sandbox: &mut dyn Sandbox,
    builder: &Builder<'_>,
    limits: &Limits,
    (env, reach): (BTreeMap<String, String>, &std::sync::Arc<Reach>),
) -> (End, Output) {
    let deadline = Instant::now() + Duration::from_millis(limits.wall_ms);
    let opened = timeout_at(deadline, open(sandbox, builder, limits, (env, reach))).await;
    let mut conversation = match opened {
        Ok(Ok(conversation)) => conversation,
        Ok(Err(error)) => {
            tracing::debug!(reason = %error, "builder_not_opened");
            return (End::Lost, Output::default());
        }
        Err(_) => return (End::Clock, Output::default()),
    };
    let end = conversation.follow(sandbox, &mut StopSignals::default(), deadline).await.end();
    conversation.cut_links().await;
    let (_, said) = conversation.into_parts();
    (end, said.output)
}

async fn open(
    sandbox: &mut dyn Sandbox,
    builder: &Builder<'_>,
    limits: &Limits,
    (env, reach): (BTreeMap<String, String>, &std::sync::Arc<Reach>),
) -> Result<Conversation<'static>, GuestError> {
    let guest = guest_client::connect(sandbox.take_stream().ok_or(GuestError::Gone)?).await?;
    let mut conversation = Conversation::once(guest, limits.output_bytes, Overflow::LeftOut);
    conversation.grant(Some(reach))?;
    for (path, content) in &builder.files {
        conversation.place(path, content).await?;
    }
    conversation.start(builder.argv.clone(), env.into_iter().collect())?;
    conversation.end_input()?;
    conversation.send().await?;
    Ok(conversation)
}
