//! SIGHUP: reads the files again that a server uses while it runs: certificate, token and key of file URLs. The program
//! reads the policies again itself ([`engine::Gatekeeper::want_reload`]).
//!
//! ```text
//! SIGHUP -> each file -> usable: in force for the next connection or request -> `reloaded`
//!                     -> not usable: the old content stays in force          -> `reload_failed`
//! ```
//! Settings, limits and addresses are read at the start only. A server on a terminal ends at SIGHUP, because the
//! kernel sends it when the terminal is closed.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use mcp::OnHangup;

use super::callers::Callers;
use super::file_urls::FileUrlKey;
use super::tls::Tls;
use super::token;

/// A value that can be replaced while it is used.
#[derive(Debug)]
pub(crate) struct Replaceable<T>(RwLock<Arc<T>>);

impl<T> Replaceable<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    /// The value in force.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

/// What a server reads again.
pub(crate) struct Reloads {
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) callers: Arc<Callers>,
    pub(crate) file_url_key: Arc<FileUrlKey>,
}

impl Reloads {
    /// Reads everything again. A file that cannot be used changes nothing but the log.
    pub(crate) fn reload(&self, state_dir: &Path) {
        if let Some(tls) = &self.tls {
            log("certificate", tls.reload());
        }
        if self.callers.asks() {
            let read = token::obtain(state_dir);
            log("token", read.map(|(read, _)| self.callers.replace_token(read)));
        }
        log("file_url_key", self.file_url_key.reload(state_dir));
    }
}

fn log(what: &str, reloaded: io::Result<()>) {
    match reloaded {
        Ok(()) => tracing::info!(what, "reloaded"),
        Err(error) => tracing::error!(what, reason = %error, "reload_failed"),
    }
}

/// What SIGHUP means to this server.
pub(crate) fn on_hangup() -> OnHangup {
    let is_on_terminal =
        io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
    if is_on_terminal { OnHangup::End } else { OnHangup::Reload }
}
