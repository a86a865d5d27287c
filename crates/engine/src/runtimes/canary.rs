//! Caches the result of a language's canary run for as long as its toolchain stays the same.
//!
//! Each language has one small file, written to a temporary file and renamed. It holds the hash of the
//! runtime's definition and of the toolchain's path, inode, time, size and version, so that the result of
//! another toolchain is not used. The cached result is only a first answer: the server runs the canary again
//! when the result is old.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Runtime, Runtimes, cache};
use crate::builds::KeyMaker;

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
    pub fn recall_canary(&self, runtime: &Runtime) -> Option<CanaryMemory> {
        let file = self.canary_file(runtime);
        let age = fs::metadata(&file).ok()?.modified().ok()?.elapsed();
        let written: Written = serde_json::from_slice(&fs::read(&file).ok()?).ok()?;
        if written.toolchain != toolchain(runtime) {
            return None;
        }
        let is_recent = age.is_ok_and(|age| age < FRESH);
        let verdict = written.reason.map_or(Ok(()), Err);
        Some(CanaryMemory { is_fresh: verdict.is_ok() && is_recent, verdict })
    }

    /// Caches the result of a canary. If it cannot be written, the next server runs the canary again.
    pub fn remember_canary(&self, runtime: &Runtime, verdict: &Result<(), String>) {
        let cut = |reason: &String| reason.chars().take(REASON_BYTES_MAX / 4).collect();
        let written = Written { toolchain: toolchain(runtime), reason: verdict.as_ref().err().map(cut) };
        let file = self.canary_file(runtime);
        let stamp = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let beside = file.with_extension(format!("canary.{}.{stamp}", std::process::id()));
        let text = serde_json::to_vec(&written).unwrap_or_default();
        if let Err(error) = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &file)) {
            tracing::debug!(reason = %error, "canary_not_remembered");
            // The file may not exist.
            fs::remove_file(&beside).ok();
        }
    }

    fn canary_file(&self, runtime: &Runtime) -> PathBuf {
        self.state_dir.join(cache::FOLDER).join(format!("{}.canary", runtime.name()))
    }
}

fn toolchain(runtime: &Runtime) -> String {
    let mut key = KeyMaker::new();
    runtime.add_to_key(&mut key);
    key.key().to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsString;

    use super::*;

    #[tokio::test]
    async fn a_memory_is_of_one_toolchain_and_only_a_good_one_is_enough() {
        let state = std::env::temp_dir().join(format!("palisade-canary-{}", std::process::id()));
        fs::create_dir_all(&state).unwrap();
        let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin"));
        let bash = super::super::locate::on_path(&["bash".to_owned()], &path).unwrap();
        let runtimes = Runtimes::new(state.clone(), BTreeMap::new(), Vec::new());
        let runtime = runtimes.find("bash").await.unwrap();
        assert_eq!(runtimes.recall_canary(&runtime), None);
        runtimes.remember_canary(&runtime, &Err("it sings wrongly".to_owned()));
        let bad = runtimes.recall_canary(&runtime).unwrap();
        assert_eq!(bad, CanaryMemory { verdict: Err("it sings wrongly".to_owned()), is_fresh: false });
        runtimes.remember_canary(&runtime, &Ok(()));
        assert!(runtimes.recall_canary(&runtime).unwrap().is_fresh);
        // The same program under another name is another toolchain.
        let copy = state.join("bash-copy");
        fs::copy(bash, &copy).unwrap();
        let others = Runtimes::new(state.clone(), BTreeMap::from([("bash".to_owned(), copy)]), Vec::new());
        let other = others.find("bash").await.unwrap();
        let recalled = others.recall_canary(&other);
        fs::remove_dir_all(&state).unwrap();
        assert_eq!(recalled, None);
    }
}
