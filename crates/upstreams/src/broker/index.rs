//! What callers learn about tools before a run calls them: `find_tools` and the declarations.

use std::sync::atomic::{AtomicBool, Ordering};

use engine::access::{FoundTools, ListedServer, ListedTool, Notation, ToolIndex, ToolQuery};
use engine::{Caller, RunError};
use sandbox::BoxFuture;

use super::book::ToolBook;
use super::session::hides;
use crate::{Dialect, FindQuery, FoundTool, ToolHost, Viewer};

fn dialect(notation: Notation) -> Dialect {
    match notation {
        Notation::Python => Dialect::Python,
        Notation::TypeScript => Dialect::TypeScript,
    }
}

fn listed(tool: FoundTool) -> ListedTool {
    let FoundTool { name, own_name, signature, about, effect, access } = tool;
    let (effect, access) = (effect.name(), access.name());
    ListedTool { name, own_name, signature, about, effect, access, input: None, output: None }
}

/// The server of that name or alias.
fn server_of(host: &dyn ToolHost, viewer: Viewer<'_>, name: &str) -> Option<String> {
    let known = host.servers(viewer);
    let exact = known.iter().find(|one| one.name == name);
    let found = exact.or_else(|| known.iter().find(|one| super::session::alias(&one.name) == name))?;
    Some(found.name.clone())
}

/// Everything about the tool of that exact name, if there is one for the viewer.
async fn described(host: &dyn ToolHost, viewer: Viewer<'_>, query: &ToolQuery<'_>) -> Option<ListedTool> {
    let (server, tool) =
        query.words.split_once('.').filter(|_| !query.words.contains(char::is_whitespace))?;
    let is_asked = query.servers.is_empty() || query.servers.iter().any(|one| one == server);
    let server = server_of(host, viewer, server)?;
    let found = host.describe(viewer.principal, &server, tool).await.ok().filter(|_| is_asked)?;
    if !viewer.sees(&found.server, &found.tool, &found.alias) {
        return None;
    }
    let signature = match query.notation {
        Notation::Python => found.python,
        Notation::TypeScript => found.typescript,
    };
    Some(ListedTool {
        name: query.words.to_owned(),
        own_name: format!("{}.{}", found.server, found.tool),
        signature,
        about: found.about,
        effect: found.effect.name(),
        access: found.access.name(),
        input: Some(found.input_schema),
        output: found.output_schema,
    })
}

impl ToolIndex for ToolBook {
    fn find<'a>(&'a self, query: ToolQuery<'a>) -> BoxFuture<'a, FoundTools> {
        Box::pin(async move {
            let host = &*self.shared.host;
            let hides = hides(&self.shared.gatekeeper, query.caller);
            let viewer = Viewer { principal: &query.caller.principal, is_hidden: hides.as_deref() };
            if let Some(one) = described(host, viewer, &query).await {
                return FoundTools { tools: vec![one], total: 1, ..FoundTools::default() };
            }
            let servers = (!query.servers.is_empty()).then_some(query.servers);
            let dialect = dialect(query.notation);
            let ToolQuery { words, limit, .. } = query;
            let asked = FindQuery { viewer, words, servers, dialect, limit };
            let found = host.find(asked).await;
            let servers = match query.words.trim().is_empty() && servers.is_none() {
                false => Vec::new(),
                true => host
                    .servers(viewer)
                    .into_iter()
                    .map(|one| ListedServer { name: one.name, about: one.about, tools: one.tools })
                    .collect(),
            };
            FoundTools {
                tools: found.tools.into_iter().map(listed).collect(),
                total: found.total,
                more: found.more,
                servers,
                failed: found.failed,
            }
        })
    }

    fn declarations<'a>(
        &'a self,
        caller: &'a Caller,
        server: &'a str,
        notation: Notation,
    ) -> BoxFuture<'a, Result<String, RunError>> {
        Box::pin(async move {
            let (host, principal) = (&*self.shared.host, &caller.principal);
            let unknown = || RunError::new("unknown_server", "there is no such server");
            let server = server_of(host, Viewer::of(principal), server).ok_or_else(unknown)?;
            let dialect = dialect(notation);
            if let Some(hides) = hides(&self.shared.gatekeeper, caller) {
                let is_any = AtomicBool::new(false);
                let notes = |server: &str, own: &str, alias: &str| {
                    is_any.fetch_or(hides(server, own, alias), Ordering::Relaxed);
                    false
                };
                let viewer = Viewer { principal, is_hidden: Some(&notes) };
                let servers = Some(std::slice::from_ref(&server));
                host.find(FindQuery { viewer, words: "", servers, dialect, limit: 0 }).await;
                if is_any.load(Ordering::Relaxed) {
                    return Err(unknown());
                }
            }
            let made = host.stubs(principal, &server, dialect).await;
            made.map_err(|error| RunError::new(error.code.name(), error.message).remedy(error.remedy))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::access::AccessBook;
    use engine::{Caller, Gatekeeper};

    use super::super::fake::FakeHost;
    use super::super::rules_tests::book;
    use super::super::{ToolBook, ToolBookParts};
    use super::*;

    #[tokio::test]
    async fn tools_that_a_policy_hides_by_any_name_are_not_found_and_not_counted() {
        let rules =
            serde_json::json!({"version": "1", "default": "allow", "hide": ["odd_server.echo", "x.write"]});
        let folder = harness::TestFolder::new();
        let gatekeeper = Arc::new(Gatekeeper::new(folder.path(), book(&rules)));
        let parts = ToolBookParts { web: None, host: Arc::new(FakeHost::default()), gatekeeper };
        let (tools, caller) = (ToolBook::new(parts, folder.path()), Caller::local());
        let index = tools.tool_index().unwrap();
        let query =
            |words| ToolQuery { caller: &caller, words, servers: &[], notation: Notation::Python, limit: 1 };
        for words in ["odd-server.echo", "odd_server.echo", "x.write"] {
            assert_eq!(index.find(query(words)).await.total, 0, "{words}");
        }
        // Of five servers, one has none.
        let found = index.find(query("echo")).await;
        assert_eq!((found.total, found.more), (4, 3));
        assert_eq!(index.find(query("x.echo")).await.total, 1);
        for server in ["odd-server", "odd_server", "x", "nothing"] {
            let refused = index.declarations(&caller, server, Notation::Python).await.unwrap_err();
            assert_eq!(refused.code, "unknown_server", "{server}");
        }
        assert!(index.declarations(&caller, "mail", Notation::Python).await.is_ok());
    }
}
