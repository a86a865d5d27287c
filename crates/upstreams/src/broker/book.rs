//! The names of access with tool servers: those of the web, whose bundles may name servers, and each server that no
//! bundle names.

use std::path::Path;
use std::sync::Arc;

use engine::access::{AccessBook, AccessCall, AccessRecord, Offered, Opened, Reached, ToolIndex, ToolsUse};
use engine::links::{Grant, ListenAt, TOOLS_SOCKET};
use engine::{Gatekeeper, Proxies, RunError};

use super::labels::LabelStore;
use super::rates::Rates;
use super::session::{Session, Shared};
use super::shelf::Shelf;
use crate::ToolHost;

/// The folder of the broker in the state directory.
const FOLDER: &str = "tools";

/// The parts of a [`ToolBook`].
pub struct ToolBookParts {
    /// The names for the web, whose bundles may name servers.
    pub web: Option<Arc<dyn AccessBook>>,
    /// The servers.
    pub host: Arc<dyn ToolHost>,
    /// Judges each call.
    pub gatekeeper: Arc<Gatekeeper>,
}

/// Opens tool servers for runs, and the web beside them.
pub struct ToolBook {
    web: Option<Arc<dyn AccessBook>>,
    pub(super) shared: Arc<Shared>,
    offered: Vec<Offered>,
}

impl ToolBook {
    /// A book of these parts, which keeps what programs save in the state directory.
    pub fn new(parts: ToolBookParts, state_dir: &Path) -> Self {
        let ToolBookParts { web, host, gatekeeper } = parts;
        let mut offered = web.as_ref().map(|web| web.offered().to_vec()).unwrap_or_default();
        let is_bundled =
            |name: &String| offered.iter().any(|one| one.tools.contains(name) || one.name == *name);
        let own: Vec<Offered> = host
            .servers()
            .into_iter()
            .filter(|server| !is_bundled(&server.name))
            .map(|server| Offered {
                about: server.about,
                hosts: Vec::new(),
                secrets: Vec::new(),
                tools: vec![server.name.clone()],
                tools_without_wall: Vec::new(),
                name: server.name,
            })
            .collect();
        offered.extend(own);
        let servers = host.servers();
        let has_none = |name: &&String| {
            servers.iter().any(|server| server.name == **name && server.is_walled == Some(false))
        };
        for one in &mut offered {
            one.tools_without_wall = one.tools.iter().filter(has_none).cloned().collect();
        }
        offered.sort_by(|one, other| one.name.cmp(&other.name));
        let folder = state_dir.join(FOLDER);
        let shared = Arc::new(Shared {
            host,
            gatekeeper,
            rates: Rates::default(),
            labels: LabelStore::new(&folder),
            saved: Shelf::new(&folder, "saved"),
            memory: Shelf::new(&folder, "memory"),
        });
        Self { web, shared, offered }
    }

    /// The servers that these names open, sorted.
    fn servers(&self, names: &[String]) -> Vec<String> {
        let asked = self.offered.iter().filter(|one| names.contains(&one.name));
        let mut servers: Vec<String> = asked.flat_map(|one| one.tools.iter().cloned()).collect();
        servers.sort();
        servers.dedup();
        servers
    }
}

impl AccessBook for ToolBook {
    fn offered(&self) -> &[Offered] {
        &self.offered
    }

    fn tool_index(&self) -> Option<&dyn ToolIndex> {
        Some(self)
    }

    fn open(&self, call: &AccessCall<'_>) -> Result<Opened, RunError> {
        let known = |web: &dyn AccessBook| -> Vec<String> {
            let is_known = |name: &&String| web.offered().iter().any(|one| one.name == **name);
            call.names.iter().filter(is_known).cloned().collect()
        };
        let web = match &self.web {
            Some(web) => match known(&**web) {
                names if names.is_empty() => None,
                names => Some(web.open(&AccessCall { names: &names, ..*call })?),
            },
            None => None,
        };
        let servers = self.servers(call.names);
        if servers.is_empty()
            && let Some(web) = web
        {
            return Ok(web);
        }
        let session =
            Session::new(Arc::clone(&self.shared), call.caller.clone(), call.sandbox, servers.clone());
        let session = session.map_err(|error| {
            tracing::error!(reason = %error, "labels_not_read");
            RunError::new("labels_unavailable", "the labels of the sandbox cannot be read")
                .remedy("ask the operator, or use another sandbox")
        })?;
        let session = Arc::new(session.of_run(call.run_id));
        let grant = Grant {
            at: ListenAt::Socket(TOOLS_SOCKET.to_owned()),
            broker: Arc::clone(&session) as Arc<dyn engine::links::Broker>,
        };
        let told = format!("tools of {}", servers.join(", "));
        Ok(match web {
            None => Opened {
                grants: vec![grant],
                proxies: Proxies::default(),
                secrets: Vec::new(),
                summary: told,
                has_tools: true,
                record: Arc::new(Record { web: None, session }),
            },
            Some(mut web) => {
                web.grants.push(grant);
                web.summary = format!("{}; {told}", web.summary);
                web.has_tools = true;
                web.record = Arc::new(Record { web: Some(web.record), session });
                web
            }
        })
    }
}

/// What one run reached: the web and tools.
struct Record {
    web: Option<Arc<dyn AccessRecord>>,
    session: Arc<Session>,
}

impl AccessRecord for Record {
    fn reached(&self) -> Vec<Reached> {
        self.web.as_ref().map(|web| web.reached()).unwrap_or_default()
    }

    fn tools(&self) -> Option<ToolsUse> {
        Some(self.session.used())
    }

    fn warnings(&self) -> Vec<String> {
        self.session.warnings()
    }
}
