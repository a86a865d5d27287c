//! All upstream servers, for the operator's commands; [`tool_host`] answers the broker.

mod tool_host;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use policy::Principal;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::catalogue::Catalogue;
use crate::catalogue::search::{Index, Place};
use crate::catalogue::shelf::Shelf;
use crate::client::Bounds;
use crate::host::{FindQuery, FoundTool, FoundTools, ToolError, ToolErrorCode};
use crate::oauth::{Login, TokenStore};
use crate::server::{Server, locked, unkept};
use crate::spec::{ServerSpec, Transport};
use crate::tls::Dialer;
use crate::view::{found, unknown_tool};
use crate::wall::{Starter, WalledStart};

/// How long a search waits for servers whose tools were never listed.
const FIRST_LISTING_PATIENCE: Duration = Duration::from_secs(20);
/// The most sessions with tokens of principals that are kept.
const PRINCIPALS_MAX: usize = 256;
/// The most principals whose index of tools is kept.
const INDEXES_MAX: usize = 8;

/// What [`Upstreams`] is made of.
pub struct UpstreamsConfig {
    /// The directory of the server's state; catalogues are in its folder `tools`.
    pub state_dir: PathBuf,
    /// An executable that takes the role [`crate::supervisor::ROLE`]: usually this one.
    pub launcher: PathBuf,
    /// Starts servers behind the wall. Without it, such servers cannot be used.
    pub wall: Option<Arc<dyn WalledStart>>,
    /// The servers.
    pub servers: Vec<ServerSpec>,
}

/// All upstream servers. It is a [`crate::ToolHost`].
pub struct Upstreams {
    /// With the tokens of the owner, where a server is reached by URL.
    servers: Vec<Arc<Server>>,
    /// The same servers with tokens of other principals.
    of_principals: Mutex<Vec<(Principal, Arc<Server>)>>,
    starter: Starter,
    /// Those that were used last, by principal.
    indexes: Mutex<Vec<(Principal, Arc<Indexed>)>>,
}

/// An index, and the catalogues that it was made from.
struct Indexed {
    catalogues: Vec<Arc<Catalogue>>,
    index: Index,
}

/// Keeps definitions as if a server had listed them: for measurements without a server.
pub fn fill_catalogue(
    state_dir: &std::path::Path,
    server: &str,
    definitions: Vec<Value>,
) -> std::io::Result<()> {
    let definitions = definitions.into_iter().filter_map(|definition| match definition {
        Value::Object(definition) => Some(definition),
        _ => None,
    });
    let definitions: Vec<_> = definitions.collect();
    Shelf::new(state_dir).update(server, |catalogue| catalogue.list(definitions)).map(drop)
}

/// A tool that waits for the operator, for `palisade tools diff`.
#[derive(Debug, Clone)]
pub struct HeldTool {
    /// Its name.
    pub tool: String,
    /// Why.
    pub reason: String,
    /// The accepted definition, if there is one.
    pub before: Option<Value>,
    /// The definition now.
    pub now: Value,
}

impl Upstreams {
    /// Reads the catalogues. Starts no server.
    pub fn new(config: UpstreamsConfig) -> Arc<Self> {
        let shelf = Shelf::new(&config.state_dir);
        let has_url = config.servers.iter().any(|spec| matches!(spec.transport, Transport::Http(_)));
        let dialer = if has_url { Dialer::new() } else { Dialer::plain() };
        let tokens = TokenStore::new(&config.state_dir);
        let starter = Starter { launcher: config.launcher, wall: config.wall, dialer, tokens };
        let mut specs = config.servers;
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        let server = |spec| Server::new(spec, Principal::local(), starter.clone(), shelf.clone());
        let servers = specs.into_iter().map(server).collect();
        Arc::new(Self { servers, of_principals: Mutex::default(), starter, indexes: Mutex::default() })
    }

    /// Whether there is any server.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Starts a server and lists the tools that it shows to a principal. Returns how many there are, and how many are held.
    pub async fn list(
        &self,
        server: &str,
        principal: &Principal,
        patience: Duration,
    ) -> Result<(usize, usize), ToolError> {
        let server = self.of(self.server(server)?, principal);
        server.connected(&Bounds::until(Instant::now() + patience, 0)).await?;
        let catalogue = server.catalogue();
        Ok((catalogue.tools.len(), catalogue.held()))
    }

    /// The tools of a server that wait for the operator. Starts nothing.
    pub fn held(&self, server: &str) -> Result<Vec<HeldTool>, ToolError> {
        let mut all: Vec<HeldTool> = Vec::new();
        for catalogue in catalogues(self.server(server)?)? {
            let held = catalogue.tools.iter().filter_map(|tool| {
                let before = tool.pinned_definition.as_ref().and_then(|text| serde_json::from_str(text).ok());
                let now = Value::Object(tool.parsed());
                Some(HeldTool { tool: tool.facts.name.clone(), reason: tool.pin().reason()?, before, now })
            });
            for one in held {
                if !all.iter().any(|known| known.tool == one.tool && known.now == one.now) {
                    all.push(one);
                }
            }
        }
        Ok(all)
    }

    /// Accepts definitions that wait: those of these tools, or all. Returns their names.
    pub async fn accept(&self, server: &str, tools: Option<Vec<String>>) -> Result<Vec<String>, ToolError> {
        let server = self.server(server)?;
        let known = catalogues(server)?;
        let is_unknown = |name: &&String| known.iter().all(|catalogue| catalogue.get(name).is_none());
        if let Some(unknown) = tools.iter().flatten().find(is_unknown) {
            return Err(unknown_tool(&server.spec.name, unknown, &server.catalogue()));
        }
        let of_principals = (server.shelf().clone(), server.spec.name.clone(), tools.clone());
        let mut accepted = server.update(move |catalogue| catalogue.accept(tools.as_deref())).await?;
        let others = tokio::task::spawn_blocking(move || {
            let (shelf, name, tools) = of_principals;
            let mut accepted = Vec::new();
            for key in shelf.keys(&name)? {
                accepted.extend(shelf.update(&key, |catalogue| catalogue.accept(tools.as_deref()))?.1);
            }
            Ok::<_, std::io::Error>(accepted)
        });
        let others = others.await.map_err(|error| unkept(&error))?.map_err(|error| unkept(&error))?;
        accepted.extend(others);
        accepted.sort();
        accepted.dedup();
        Ok(accepted)
    }

    /// Forgets what is known about a server: pins, aliases, shapes, and the tokens of everybody. The next listing counts
    /// as the first.
    pub fn forget(&self, server: &str) -> Result<bool, ToolError> {
        let server = self.server(server)?;
        let kept = |error: std::io::Error| {
            let message = format!("what is known about it cannot be removed: {error}");
            ToolError::new(ToolErrorCode::ServerUnavailable, message)
        };
        let had_tokens = self.starter.tokens.forget(&server.spec.name).map_err(kept)?;
        let was_known = server.shelf().forget(&server.spec.name).map_err(kept)?;
        Ok(was_known || had_tokens)
    }

    /// Logs a principal in to a server that is reached by URL. `show` gets the address that the user opens. Returns the
    /// scopes that were granted.
    pub async fn login(
        &self,
        server: &str,
        login: &Login,
        show: impl FnOnce(&str),
    ) -> Result<String, ToolError> {
        let spec = &self.server(server)?.spec;
        let Transport::Http(http) = &spec.transport else {
            let message = format!("`{}` is started by a command and has no login", spec.name);
            return Err(ToolError::new(ToolErrorCode::BadArguments, message)
                .with_remedy("give it its credential by `env`, with ${env:NAME} or ${file:/PATH}"));
        };
        let principal = login.principal.clone().unwrap_or_else(Principal::local);
        self.starter.credential(spec, http, &principal).login(login, show).await
    }

    /// The server with the tokens of a principal. The servers of others are not touched.
    fn of(&self, server: &Arc<Server>, principal: &Principal) -> Arc<Server> {
        let is_shared = !matches!(server.spec.transport, Transport::Http(_)) || principal.is_owner();
        if is_shared {
            return Arc::clone(server);
        }
        let mut all = locked(&self.of_principals);
        let is_it = |(holder, known): &(Principal, Arc<Server>)| {
            holder == principal && known.spec.name == server.spec.name
        };
        if let Some(place) = all.iter().position(is_it) {
            let known = all.remove(place);
            let server = Arc::clone(&known.1);
            all.push(known);
            return server;
        }
        if all.len() >= PRINCIPALS_MAX {
            // The one that was not used for the longest time.
            all.remove(0);
        }
        let own =
            Server::new(server.spec.clone(), principal.clone(), self.starter.clone(), server.shelf().clone());
        all.push((principal.clone(), Arc::clone(&own)));
        own
    }

    /// Stops all servers, and waits until their processes are gone.
    pub async fn close(&self) {
        let mut stops = JoinSet::new();
        let of_principals = std::mem::take(&mut *locked(&self.of_principals));
        let of_principals = of_principals.into_iter().map(|(_, server)| server);
        for server in self.servers.iter().cloned().chain(of_principals) {
            stops.spawn(async move { server.stop().await });
        }
        while stops.join_next().await.is_some() {}
    }

    /// A server by its name, or as a program spells it.
    fn server(&self, name: &str) -> Result<&Arc<Server>, ToolError> {
        let exact = self.servers.iter().find(|server| server.spec.name == name);
        let spelled = || self.servers.iter().find(|server| server.spec.name.replace('-', "_") == name);
        exact.or_else(spelled).ok_or_else(|| {
            let shown: String = name.chars().take(64).collect();
            let names: Vec<&str> = self.servers.iter().map(|server| server.spec.name.as_str()).collect();
            let message = format!("there is no tool server `{}`", shown.escape_debug());
            let remedy = match names.is_empty() {
                true => "none is configured".to_owned(),
                false => format!("the servers are {}", names.join(", ")),
            };
            ToolError::new(ToolErrorCode::UnknownServer, message).with_remedy(remedy)
        })
    }

    /// The server and the tools that it shows to a principal, listed if they never were.
    async fn listed(
        &self,
        principal: &Principal,
        name: &str,
    ) -> Result<(Arc<Server>, Arc<Catalogue>), ToolError> {
        let server = self.of(self.server(name)?, principal);
        if !server.catalogue().header.is_listed {
            let bounds = Bounds::until(Instant::now() + FIRST_LISTING_PATIENCE, 0);
            server.connected(&bounds).await?;
        }
        let catalogue = server.catalogue();
        Ok((server, catalogue))
    }

    /// Lists the tools of servers that were never listed, all at once. Returns those that failed.
    async fn list_new(&self, servers: &[Arc<Server>], query: &FindQuery<'_>) -> Vec<(String, String)> {
        let mut starts = JoinSet::new();
        for server in servers.iter().filter(|server| is_wanted(server, query)) {
            if !server.catalogue().header.is_listed {
                let server = Arc::clone(server);
                starts.spawn(async move {
                    let bounds = Bounds::until(Instant::now() + FIRST_LISTING_PATIENCE, 0);
                    let outcome = server.connected(&bounds).await;
                    outcome.err().map(|error| (server.spec.name.clone(), error.message))
                });
            }
        }
        let mut failed = Vec::new();
        while let Some(outcome) = starts.join_next().await {
            failed.extend(outcome.ok().flatten());
        }
        failed.sort();
        failed
    }

    /// The index of what is known now about the servers of a principal.
    async fn indexed(&self, principal: &Principal, servers: &[Arc<Server>]) -> Arc<Indexed> {
        let catalogues: Vec<Arc<Catalogue>> = servers.iter().map(|server| server.catalogue()).collect();
        // All principals see the same where no server has a login.
        let is_own = servers.iter().zip(&self.servers).any(|(own, shared)| !Arc::ptr_eq(own, shared));
        let holder = if is_own { principal.clone() } else { Principal::local() };
        let known =
            locked(&self.indexes).iter().find(|(one, _)| *one == holder).map(|(_, known)| known.clone());
        let is_same = |known: &Arc<Indexed>| {
            known.catalogues.iter().zip(&catalogues).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        if let Some(known) = known.filter(is_same) {
            return known;
        }
        let names: Vec<String> = self.servers.iter().map(|server| server.spec.name.clone()).collect();
        let built = tokio::task::spawn_blocking(move || {
            let servers = names.iter().zip(&catalogues).zip(0u32..);
            let index =
                Index::new(servers.map(|((name, catalogue), place)| (place, name.as_str(), &**catalogue)));
            Arc::new(Indexed { catalogues, index })
        });
        let built = match built.await {
            Ok(built) => built,
            Err(_) => Arc::new(Indexed { catalogues: Vec::new(), index: Index::default() }),
        };
        let mut indexes = locked(&self.indexes);
        indexes.retain(|(one, _)| *one != holder);
        if indexes.len() >= INDEXES_MAX {
            indexes.remove(0);
        }
        indexes.push((holder, Arc::clone(&built)));
        built
    }

    /// The places of all tools that match, best first.
    fn places(&self, indexed: &Indexed, query: &FindQuery<'_>) -> Vec<Place> {
        let wanted: Vec<bool> = self.servers.iter().map(|server| is_wanted(server, query)).collect();
        let is_seen = |(server, tool): Place| {
            let tools = indexed.catalogues.get(server as usize).map(|catalogue| &catalogue.tools);
            let facts = tools.and_then(|tools| tools.get(tool as usize)).map(|tool| &tool.facts);
            self.servers.get(server as usize).zip(facts).is_some_and(|(server, facts)| {
                query.viewer.sees(&server.spec.name, &facts.name, &facts.alias)
            })
        };
        let is_wanted =
            |place: Place| wanted.get(place.0 as usize).copied().unwrap_or(false) && is_seen(place);
        if let Some((server, tool)) = query.words.trim().split_once('.')
            && let Ok(found) = self.server(server)
            && let Some(place) = self.servers.iter().position(|one| Arc::ptr_eq(one, found))
            && let Some(tool) = indexed.catalogues.get(place).and_then(|catalogue| catalogue.place(tool))
            && is_wanted((place as u32, tool))
        {
            return vec![(place as u32, tool)];
        }
        if query.words.trim().is_empty() {
            let all = indexed.catalogues.iter().zip(0u32..).flat_map(|(catalogue, server)| {
                (0..catalogue.tools.len() as u32).map(move |tool| (server, tool))
            });
            return all.filter(|place| is_wanted(*place)).collect();
        }
        indexed.index.find(query.words, is_wanted)
    }

    async fn search(&self, query: FindQuery<'_>) -> FoundTools {
        let servers: Vec<Arc<Server>> =
            self.servers.iter().map(|server| self.of(server, query.viewer.principal)).collect();
        let failed = self.list_new(&servers, &query).await;
        let indexed = self.indexed(query.viewer.principal, &servers).await;
        let places = self.places(&indexed, &query);
        let shown = places.iter().take(query.limit).map(|(server, tool)| {
            let (server, catalogue) = (&servers[*server as usize], &indexed.catalogues[*server as usize]);
            found(&server.spec, &catalogue.tools[*tool as usize], query.dialect)
        });
        let tools: Vec<FoundTool> = shown.collect();
        FoundTools { total: places.len(), more: places.len() - tools.len(), tools, failed }
    }
}

/// What is known about the tools of a server, its own catalogue first, then those of principals.
fn catalogues(server: &Arc<Server>) -> Result<Vec<Arc<Catalogue>>, ToolError> {
    let keys = server.shelf().keys(&server.spec.name).map_err(|error| unkept(&error))?;
    let of_principals = keys.iter().map(|key| Arc::new(server.shelf().load(key)));
    Ok(std::iter::once(server.catalogue()).chain(of_principals).collect())
}

fn is_wanted(server: &Server, query: &FindQuery<'_>) -> bool {
    query.servers.is_none_or(|names| names.contains(&server.spec.name))
}
