//! The languages of a backend: found, missing, and the same question gets the same answer.

use super::wait::within;
use super::{Subject, holds, run};
use crate::{InventoryError, ReadOnlyBind, SandboxSpec, Toolchain, ToolchainQuery};

/// Prints a toolchain, as the probes of languages do.
const PROBE: &[u8] = br#"printf '{"version": "1", "executable": "%s", "binds": []}' "$1""#;

pub(super) async fn check(subject: Subject<'_>) -> Result<(), String> {
    let question = question("sh");
    let found = find(subject, &question).await?.map_err(|error| format!("sh(1) is found; found {error}"))?;
    let again =
        find(subject, &question).await?.map_err(|error| format!("sh(1) is found again; found {error}"))?;
    holds(again == found, "the same question gets the same answer", &(&found, &again))?;
    let identity = identity(subject, &found).await?;
    let repeated = self::identity(subject, &again).await?;
    holds(identity == repeated, "the identity of a toolchain is stable", &(&identity, &repeated))?;
    holds(!identity.is_empty(), "a toolchain has an identity", &identity)?;
    if subject.guest.is_some() {
        what_is_found_runs_inside(subject, &found).await?;
        what_is_absent_is_missing(subject).await?;
    }
    Ok(())
}

fn question(command: &str) -> ToolchainQuery {
    ToolchainQuery {
        language: format!("conformance-{command}"),
        commands: vec![command.to_owned()],
        probe: ["{interpreter}", "{folder}/probe.sh", "{interpreter}"].map(str::to_owned).to_vec(),
        files: vec![("probe.sh".to_owned(), PROBE.into())],
        settings: Vec::new(),
    }
}

async fn find(
    subject: Subject<'_>,
    question: &ToolchainQuery,
) -> Result<Result<Toolchain, InventoryError>, String> {
    within("find returns", subject.backend.inventory().find(question)).await
}

async fn identity(subject: Subject<'_>, toolchain: &Toolchain) -> Result<String, String> {
    let told = within("identity returns", subject.backend.inventory().identity(toolchain)).await?;
    told.map_err(|error| format!("a toolchain that was found has an identity; found {error}"))
}

/// The paths of the answer mean something in a sandbox that shows its binds.
async fn what_is_found_runs_inside(subject: Subject<'_>, found: &Toolchain) -> Result<(), String> {
    let binds = found.binds.iter().cloned().map(ReadOnlyBind::in_place).collect();
    let (_sandbox, mut shell) = subject.inhabited(&SandboxSpec { binds, ..SandboxSpec::default() }).await?;
    let output = run(&mut shell, &format!("{} -c 'echo inside'", found.executable)).await?;
    holds(output == "inside\n", "what is found runs inside", &output)
}

async fn what_is_absent_is_missing(subject: Subject<'_>) -> Result<(), String> {
    let absent = find(subject, &question("palisade-conformance-no-such-command")).await?;
    let is_missing = matches!(absent, Err(InventoryError::Missing { .. }));
    holds(is_missing, "a command that does not exist is missing", &absent)
}
