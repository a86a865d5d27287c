//! Caches the result of a language's canary run for as long as its toolchain stays the same.
//!
//! Each language has one small file, written to a temporary file and renamed. It holds the hash of the
//! runtime's definition and of the toolchain's identity, so that the result of another toolchain is not used. The cached result is only a first answer: the server runs the canary again
//! when the result is old.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Runtime, Runtimes};
use crate::builds::KeyMaker;

/// The folder of the results, below the state directory.
pub(super) const FOLDER: &str = "runtimes";
/// How long a good result is valid.
const FRESH: Duration = Duration::from_secs(3600);
const REASON_BYTES_MAX: usize = 4096;

/// The cached result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryMemory {
    /// `Ok` if the canary succeeded, otherwise the reason.
    pub verdict: Result<(), String>,
    /// Whether no new canary run is needed: the last one succeeded recently.
    pub is_fresh: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    toolchain: String,
    reason: Option<String>,
}

impl Runtimes {
    /// The result of the last canary of this toolchain.
    pub async fn recall_canary(&self, runtime: &Runtime) -> Option<CanaryMemory> {
        let toolchain = self.toolchain(runtime).await?;
        let file = self.canary_file(runtime);
        let age = fs::metadata(&file).ok()?.modified().ok()?.elapsed();
        let written: Written = serde_json::from_slice(&fs::read(&file).ok()?).ok()?;
        if written.toolchain != toolchain {
            return None;
        }
        let is_recent = age.is_ok_and(|age| age < FRESH);
        let verdict = written.reason.map_or(Ok(()), Err);
        Some(CanaryMemory { is_fresh: verdict.is_ok() && is_recent, verdict })
    }

    /// Caches the result of a canary. If it cannot be written, the next server runs the canary again.
    pub async fn remember_canary(&self, runtime: &Runtime, verdict: &Result<(), String>) {
        let Some(toolchain) = self.toolchain(runtime).await else { return };
        let cut = |reason: &String| reason.chars().take(REASON_BYTES_MAX / 4).collect();
        let written = Written { toolchain, reason: verdict.as_ref().err().map(cut) };
        let file = self.canary_file(runtime);
        let stamp = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let beside = file.with_extension(format!("canary.{}.{stamp}", std::process::id()));
        let text = serde_json::to_vec(&written).unwrap_or_default();
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.canaries);
        let kept = made.and_then(|()| fs::write(&beside, text)).and_then(|()| fs::rename(&beside, &file));
        if let Err(error) = kept {
            tracing::debug!(reason = %error, "canary_not_remembered");
            // The file may not exist.
            fs::remove_file(&beside).ok();
        }
    }

    fn canary_file(&self, runtime: &Runtime) -> PathBuf {
        let label = self.label.map(|wall| format!(".{wall}")).unwrap_or_default();
        self.canaries.join(format!("{}{label}.canary", runtime.name()))
    }

    /// The hash of the definition and of the toolchain. `None` if the wall cannot say which toolchain it has.
    async fn toolchain(&self, runtime: &Runtime) -> Option<String> {
        let mut key = KeyMaker::new();
        runtime.add_to_key(&mut key, &self.identity(runtime).await.ok()?);
        Some(key.key().to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sandbox::Toolchain;
    use sandbox::fake::FakeBackend;

    use super::*;

    #[tokio::test]
    async fn a_memory_is_of_one_toolchain_and_only_a_good_one_is_enough() {
        let state = std::env::temp_dir().join(format!("palisade-canary-{}", std::process::id()));
        let fake = FakeBackend::new(drop);
        let runtimes = Runtimes::new(Arc::new(fake.clone()), &state, None);
        let runtime = runtimes.find("bash").await.unwrap();
        assert_eq!(runtimes.recall_canary(&runtime).await, None);
        runtimes.remember_canary(&runtime, &Err("it sings wrongly".to_owned())).await;
        let bad = runtimes.recall_canary(&runtime).await.unwrap();
        assert_eq!(bad, CanaryMemory { verdict: Err("it sings wrongly".to_owned()), is_fresh: false });
        runtimes.remember_canary(&runtime, &Ok(())).await;
        assert!(runtimes.recall_canary(&runtime).await.unwrap().is_fresh);
        // The same program under another name is another toolchain, and so is that of another wall.
        let other = FakeBackend::new(drop).named("other");
        fake.languages()
            .set("bash", Ok(Toolchain { executable: "/copy".to_owned(), ..Toolchain::default() }));
        for backend in [fake, other] {
            let runtimes = Runtimes::new(Arc::new(backend), &state, None);
            let runtime = runtimes.find("bash").await.unwrap();
            assert_eq!(runtimes.recall_canary(&runtime).await, None);
        }
        fs::remove_dir_all(&state).unwrap();
    }
}
