//! Tool servers as the configuration says: makes [`Upstreams`], and offers their tools to runs.

mod command;
mod folders;
mod links;
pub(crate) mod missing;
mod named;
mod packaged;
mod walled;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::Engine;
use engine::access::AccessBook;
use upstreams::broker::{ToolBook, ToolBookParts};
use upstreams::{DEPTH_VARIABLE, ServerWall, StdioSpec, Transport, Upstreams, UpstreamsConfig, WalledStart};

use self::walled::Walled;
use crate::config::Settings;
use crate::machine::gateway;

/// The servers of the configuration; `None` if there are none. A Palisade that is itself a server of another one offers
/// none, so that no chain of them can close. Without `wall`, servers that need one cannot be started.
pub(crate) fn upstreams(
    settings: &Settings,
    state_dir: &Path,
    wall: Option<Arc<dyn WalledStart>>,
) -> Option<Arc<Upstreams>> {
    let servers: Vec<_> = settings.tools.servers.value.values().cloned().collect();
    if servers.is_empty() {
        return None;
    }
    if std::env::var_os(DEPTH_VARIABLE).is_some() {
        tracing::warn!("tools_not_offered_to_an_upstream_of_palisade");
        return None;
    }
    // Opened through /proc, so that a replaced file does not matter.
    let launcher = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    Some(Upstreams::new(UpstreamsConfig { state_dir: state_dir.to_owned(), launcher, wall, servers }))
}

/// The directories that the servers behind walls may write.
fn writable(settings: &Settings) -> Vec<PathBuf> {
    let servers = settings.tools.servers.value.values();
    let written = servers.filter_map(|spec| match &spec.transport {
        Transport::Stdio(StdioSpec { wall: ServerWall::Own { write, .. }, .. }) => Some(write),
        _ => None,
    });
    written.flatten().cloned().collect()
}

/// Offers runs the names of access: of the web, and of tool servers. Returns the servers.
pub(crate) fn offer(engine: &Arc<Engine>, settings: &Settings, state_dir: &Path) -> Option<Arc<Upstreams>> {
    let has_web = !settings.access.names.value.is_empty();
    let web =
        has_web.then(|| Arc::new(gateway(settings, state_dir, engine.reach_log())) as Arc<dyn AccessBook>);
    let wall = Walled::new(engine, web.clone(), state_dir, writable(settings));
    let host = upstreams(settings, state_dir, Some(Arc::new(wall)));
    match (&host, web) {
        (None, None) => {}
        (None, Some(web)) => engine.offer_access(web),
        (Some(host), web) => {
            let host = Arc::clone(host) as Arc<dyn upstreams::ToolHost>;
            let parts = ToolBookParts { web, host, gatekeeper: engine.shared_gatekeeper() };
            engine.offer_access(Arc::new(ToolBook::new(parts, state_dir)));
        }
    }
    host
}
