//! The names of access with tool servers: those of the web, whose bundles may name servers, and each server that no
//! bundle names.

use std::path::Path;
use std::sync::Arc;

use engine::access::{AccessBook, AccessCall, AccessRecord, Offered, Opened, Reached, ToolIndex, ToolsUse};
use engine::links::{Grant, ListenAt, TOOLS_SOCKET};
use engine::{Gatekeeper, Proxies, RunError};
use policy::Principal;

use super::labels::LabelStore;
use super::rates::Rates;
use super::session::{Session, Shared};
use super::shelf::Shelf;
use super::{CALLS_PER_MINUTE_MAX, REQUESTS_PER_MINUTE_MAX};
use crate::{ToolHost, Viewer};

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
        // For all callers: what a server says to the owner's login is not told.
        let servers = host.servers(Viewer::of(&Principal::anonymous()));
        let own: Vec<Offered> = servers
            .iter()
            .filter(|server| !is_bundled(&server.name))
            .map(|server| Offered {
                about: server.about.clone(),
                hosts: Vec::new(),
                secrets: Vec::new(),
                tools: vec![server.name.clone()],
                tools_without_wall: Vec::new(),
                name: server.name.clone(),
            })
            .collect();
        offered.extend(own);
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
            rates: Rates::new(CALLS_PER_MINUTE_MAX),
            requests: Rates::new(REQUESTS_PER_MINUTE_MAX),
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
        let servers = self.servers(call.names);
        let calls_tools = !servers.is_empty();
        let web = match &self.web {
            Some(web) => match known(&**web) {
                names if names.is_empty() => None,
                names => Some(web.open(&AccessCall { names: &names, calls_tools, ..*call })?),
            },
            None => None,
        };
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
                redactor: None,
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

#[cfg(test)]
mod tests {
    use engine::Caller;
    use policy::Book;

    use super::super::fake::FakeHost;
    use super::*;

    /// A web that tells whether it was opened for a run that calls tools.
    struct Web([Offered; 1]);

    impl AccessBook for Web {
        fn offered(&self) -> &[Offered] {
            &self.0
        }

        fn open(&self, call: &AccessCall<'_>) -> Result<Opened, RunError> {
            Err(RunError::new(if call.calls_tools { "with_tools" } else { "alone" }, "only asked"))
        }
    }

    #[test]
    fn the_web_is_told_of_a_run_that_calls_tools() {
        let (folder, host) = (harness::TestFolder::new(), Arc::new(FakeHost::default()));
        let gatekeeper = Arc::new(Gatekeeper::new(folder.path(), Book::default()));
        let (name, about) = ("deploy".to_owned(), String::new());
        let (hosts, secrets, tools, tools_without_wall) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let web = Web([Offered { name, about, hosts, secrets, tools, tools_without_wall }]);
        let parts = ToolBookParts { web: Some(Arc::new(web)), host, gatekeeper };
        let book = ToolBook::new(parts, folder.path());
        let caller = Caller::local();
        for (asked, code) in [(&["deploy", "x"][..], "with_tools"), (&["deploy"], "alone")] {
            let names: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            let call = AccessCall {
                caller: &caller,
                run_id: None,
                sandbox: None,
                names: &names,
                calls_tools: false,
            };
            assert_eq!(book.open(&call).err().unwrap().code, code);
        }
    }
}
