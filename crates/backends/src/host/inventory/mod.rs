//! The languages of the host: the interpreter that the operator named, or the first one on the operator's PATH.
//!
//! The language's probe runs once, outside any sandbox, with a cleared environment, and says what the
//! interpreter needs in a sandbox. The answer is cached in the state directory for as long as the interpreter
//! does not change ([`cache`]). Local walls whose sandboxes show the host's directories use it.

mod cache;
mod locate;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::sandbox::{BoxFuture, Inventory, InventoryError, Toolchain, ToolchainQuery};
use tokio::sync::Semaphore;

use self::cache::{ProbeSurroundings, broken, late};
use super::HostParts;

pub use self::locate::is_program;

/// Finds interpreters on the host.
#[derive(Debug)]
pub struct HostInventory {
    state_dir: PathBuf,
    path: OsString,
    /// Interpreters that the operator named.
    named: BTreeMap<String, PathBuf>,
    /// Prefix that makes a probe end with this process.
    launcher: Vec<String>,
    /// How long a probe may take.
    patience: Duration,
    /// Limits the probes at once to the number of cores.
    asking: Semaphore,
}

impl HostInventory {
    /// An inventory of this host. It uses the PATH of this process.
    pub fn new(parts: &HostParts) -> Self {
        Self {
            state_dir: parts.state_dir.clone(),
            path: std::env::var_os("PATH").unwrap_or_default(),
            named: parts.interpreters.clone(),
            launcher: parts.launcher.clone(),
            patience: cache::PROBE_PATIENCE,
            asking: Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }

    /// The interpreter's path: from the operator, otherwise from the PATH.
    fn command(&self, query: &ToolchainQuery) -> Result<PathBuf, InventoryError> {
        match self.named.get(&query.language) {
            Some(file) if locate::is_program(file) => Ok(file.clone()),
            // There is no fallback to another interpreter: the operator chose this one.
            Some(_) => Err(broken("the interpreter named in the configuration is not a program")),
            None => locate::on_path(&query.commands, &self.path).ok_or_else(|| {
                let mut commands = query.commands.join(", ");
                let closed = locate::closed_directories(&self.path);
                commands.push_str(" is on the PATH");
                if closed > 0 {
                    commands.push_str(&format!(
                        ", as far as this user may look ({closed} directories are closed to it)"
                    ));
                }
                InventoryError::Missing { commands }
            }),
        }
    }

    /// Returns the cached answer (a few small reads), otherwise runs the probe on another thread.
    async fn look(&self, query: &ToolchainQuery) -> Result<Toolchain, InventoryError> {
        let command = self.command(query)?;
        if let Some(found) = cache::recall(query, &command, &self.state_dir) {
            return Ok(found);
        }
        let place = ProbeSurroundings {
            state_dir: self.state_dir.clone(),
            path: self.path.clone(),
            launcher: self.launcher.clone(),
            patience: self.patience,
        };
        // The semaphore is never closed.
        let _turn = self.asking.acquire().await.ok();
        let query = query.clone();
        let asked = tokio::task::spawn_blocking(move || cache::find_out(&query, &command, &place));
        asked.await.map_err(|error| late(error.to_string())).flatten()
    }
}

impl Inventory for HostInventory {
    fn find<'a>(&'a self, question: &'a ToolchainQuery) -> BoxFuture<'a, Result<Toolchain, InventoryError>> {
        Box::pin(self.look(question))
    }

    fn identity<'a>(&'a self, toolchain: &'a Toolchain) -> BoxFuture<'a, Result<String, InventoryError>> {
        // The compiled driver is made from the same files.
        let told = Toolchain { driver: None, ..toolchain.clone() };
        let identity =
            serde_json::to_string(&told).map_err(|error| broken(error.to_string())).map(|mut text| {
                let executable = Path::new(&toolchain.executable);
                for file in [executable].into_iter().chain(toolchain.watch.iter().map(PathBuf::as_path)) {
                    text.push_str(&format!("\n{file:?} {:?}", locate::identity(file)));
                }
                text
            });
        Box::pin(std::future::ready(identity))
    }
}

#[cfg(test)]
mod tests;
