//! The entry of a run, and what its receipt reveals.

use std::path::Path;
use std::sync::Arc;

use audit::{Claims, Digests, FileDigest, Hash, NamedDigest, Receipt, kind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Audit, DecisionRef};
use crate::access::{ALLOWED, Reached};
use crate::request::{RunRequest, Stdin};
use crate::result::{Execution, RunError};
use crate::runs::{FinishedRun, FoundRun, RunId, Runs};
use crate::runtimes::known_language;
use crate::store::proof_of;
use policy::Caller;

/// The most hosts in a receipt.
const HOSTS_MAX: usize = 256;
/// Files of a run that its receipt names.
const FILES_MAX: usize = 256;

/// What is kept of a run for its receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunProof {
    /// The line of its entry.
    entry: String,
    claims: Value,
    nonce: Hash,
}

/// Digests of what goes into a run, taken before it begins.
#[derive(Debug)]
pub(crate) struct RunInputs {
    decision: Option<Arc<DecisionRef>>,
    code: NamedDigest,
    stdin: Option<NamedDigest>,
    inputs: Vec<FileDigest>,
    sandbox: Option<String>,
}

impl Audit {
    /// Digests of what goes into a run; `None` if nothing is recorded.
    pub(crate) fn inputs_of(&self, request: &RunRequest) -> Option<RunInputs> {
        if !self.is_on() {
            return None;
        }
        let stdin = match &request.stdin {
            Stdin::Empty => Some(NamedDigest::of(&[])),
            Stdin::Bytes(bytes) => Some(NamedDigest::of(bytes)),
            Stdin::Stream(_) | Stdin::Prompted(_) => None,
        };
        let file = |path: &str, content: &[u8]| FileDigest {
            path: path.to_owned(),
            bytes: content.len() as u64,
            sha256: Some(Hash::of_content(content).to_string()),
        };
        Some(RunInputs {
            decision: request.decision.clone(),
            code: NamedDigest::of(request.code.as_bytes()),
            stdin,
            inputs: request.inputs.iter().map(|input| file(&input.path, &input.content)).collect(),
            sandbox: request.sandbox.as_ref().map(|address| address.id.as_str().to_owned()),
        })
    }

    /// Records that a run ended, and returns what its receipt needs.
    pub(crate) fn prove(&self, run: &FinishedRun, inputs: RunInputs) -> Option<RunProof> {
        let mut nonce = [0; 32];
        rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty()).ok()?;
        let nonce = Hash(nonce);
        let decision = inputs.decision.as_ref().map(|decision| decision.seq);
        // Serializing text and numbers does not fail.
        let claims = serde_json::to_value(claims(run, inputs)).ok()?;
        let data = json!({
            "run_id": run.id.as_str(), "principal": run.principal.as_str(), "decision": decision,
            "outcome": run.result.outcome.name(), "error": run.result.error.as_ref().map(|error| &error.code),
            "sandbox_id": claims.get("sandbox_id"), "wall": run.result.backend,
            "commitment": Claims::commitment(&claims, &nonce),
        });
        let written = self.0.tell(kind::RUN, data.to_string())?;
        let entry = String::from_utf8(written.line).ok()?;
        Some(RunProof { entry, claims, nonce })
    }

    /// The signed receipt of a run.
    pub fn receipt(&self, proof: &RunProof) -> Result<String, RunError> {
        let RunProof { entry, claims, nonce } = proof;
        let receipt = Receipt::of(entry, Some((claims.clone(), *nonce)));
        let key = self.0.keys.signing().map_err(|error| super::unavailable(&error))?;
        receipt.map(|receipt| receipt.sign(&key).to_string()).ok_or_else(no_receipt)
    }
}

fn claims(run: &FinishedRun, inputs: RunInputs) -> Claims {
    let RunInputs { decision, code, stdin, inputs, sandbox } = inputs;
    let Execution { stdout, stderr, artifacts, enforced, .. } = run.result.execution();
    let made = artifacts.iter().map(|file| FileDigest {
        path: file.path.clone(),
        bytes: file.content.len() as u64,
        sha256: Some(Hash::of_content(&file.content).to_string()),
    });
    let changed = run.result.lasting.iter().flat_map(|lasting| &lasting.files).map(|file| FileDigest {
        path: file.path.as_str().to_owned(),
        bytes: file.size_bytes,
        sha256: file.sha256.clone(),
    });
    let decided = decision.as_deref();
    Claims {
        run_id: run.id.as_str().to_owned(),
        principal: run.principal.as_str().to_owned(),
        language: known_language(&run.language).to_owned(),
        sandbox_id: sandbox,
        created_ms: run.created_ms,
        ended_ms: run.ended_ms,
        outcome: run.result.outcome.name().to_owned(),
        error: run.result.error.as_ref().map(|error| error.code.clone()),
        decision: decided.map(|decision| decision.seq),
        policy: decided.map(|decision| decision.policy.clone()).unwrap_or_default(),
        rule: decided.and_then(|decision| decision.rule.clone()),
        approval: decided.and_then(|decision| decision.approval.clone()),
        digests: Digests {
            code,
            arguments: decided.map(|decision| decision.arguments.clone()),
            stdin,
            inputs,
            stdout: NamedDigest::of(stdout),
            stderr: NamedDigest::of(stderr),
            artifacts: made.chain(changed).take(FILES_MAX).collect(),
        },
        wall: run.result.backend.to_string(),
        isolation: serde_json::to_value(enforced).unwrap_or_default(),
        hosts_reached: hosts_reached(&run.result.egress),
    }
}

/// The hosts that a run reached, by name and port.
fn hosts_reached(egress: &[Reached]) -> Vec<String> {
    let allowed = egress.iter().filter(|reached| reached.verdict == ALLOWED);
    allowed.map(|reached| reached.host.clone()).take(HOSTS_MAX).collect()
}

/// The signed receipt of any run of a state directory, for an operator. `None` if there is no such run, or nothing
/// recorded it.
pub fn run_receipt(state_dir: &Path, id: &RunId) -> Result<Option<String>, RunError> {
    let proof = proof_of(state_dir, id).map_err(|error| error.to_run_error())?;
    proof.map(|proof| Audit::new(state_dir).receipt(&proof)).transpose()
}

impl Runs {
    /// The signed receipt of a run of that caller. `None` if there is no such run, or nothing recorded it.
    pub async fn receipt(&self, caller: &Caller, id: &RunId) -> Result<Option<String>, RunError> {
        let audit = self.engine().gatekeeper().audit();
        match self.find(caller, id).await? {
            Some(FoundRun::Finished(run)) => run.proof.as_ref().map(|proof| audit.receipt(proof)).transpose(),
            Some(FoundRun::Live(_) | FoundRun::Elsewhere(_)) => {
                let mut error =
                    RunError::new("run_not_ended", "the run has not ended, so it has no receipt yet")
                        .remedy("wait for the run, then ask again");
                error.retryable = true;
                error.retry_after_ms = Some(1000);
                Err(error)
            }
            None => Ok(None),
        }
    }
}

fn no_receipt() -> RunError {
    RunError::new("no_receipt", "the record of this run is damaged, so there is no receipt")
        .remedy("run the program again")
}
