//! What a canary run of a language showed, remembered for as long as its toolchain is the same.
//!
//! One small file per language, written beside and renamed. It holds the hash of the runtime's definition and of the
//! toolchain's path, inode, time, size and version, so that what was seen of another toolchain is not taken for this
//! one. It is a first answer only: whoever offers languages runs the canary again when the memory is old.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Runtime, Runtimes, cache};
use crate::builds::KeyMaker;

/// How long a good memory is enough.
const FRESH: Duration = Duration::from_secs(3600);
const REASON_BYTES_MAX: usize = 4096;

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryMemory {
    /// Whether it worked; else why not.
    pub verdict: Result<(), String>,
    /// Whether nobody needs to look again: it worked, and not long ago.
    pub is_fresh: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    toolchain: String,
    reason: Option<String>,
}

impl Runtimes {
    /// What the last canary of this very toolchain showed.
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

    /// Remembers what a canary showed. A memory that cannot be written is made anew next time.
    pub fn remember_canary(&self, runtime: &Runtime, verdict: &Result<(), String>) {
        let cut = |reason: &String| reason.chars().take(REASON_BYTES_MAX / 4).collect();
        let written = Written { toolchain: toolchain(runtime), reason: verdict.as_ref().err().map(cut) };
        let file = self.canary_file(runtime);
        let stamp = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let beside = file.with_extension(format!("canary.{}.{stamp}", std::process::id()));
        let text = serde_json::to_vec(&written).unwrap_or_default();
        if let Err(error) = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &file)) {
            tracing::debug!(reason = %error, "canary_not_remembered");
            // It may not be there.
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
        // The same program by another name is another toolchain.
        let copy = state.join("bash-copy");
        fs::copy(bash, &copy).unwrap();
        let others = Runtimes::new(state.clone(), BTreeMap::from([("bash".to_owned(), copy)]), Vec::new());
        let other = others.find("bash").await.unwrap();
        let recalled = others.recall_canary(&other);
        fs::remove_dir_all(&state).unwrap();
        assert_eq!(recalled, None);
    }
}
