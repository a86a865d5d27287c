//! What callers learn about tools before a run calls them: `find_tools` and the declarations.

use engine::RunError;
use engine::access::{FoundTools, ListedServer, ListedTool, Notation, ToolIndex, ToolQuery};
use policy::Principal;
use sandbox::BoxFuture;

use super::book::ToolBook;
use crate::{Dialect, FindQuery, FoundTool, ToolHost};

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

/// Everything about the tool of that exact name, if there is one.
async fn described(host: &dyn ToolHost, query: &ToolQuery<'_>) -> Option<ListedTool> {
    let (server, tool) =
        query.words.split_once('.').filter(|_| !query.words.contains(char::is_whitespace))?;
    let is_asked = query.servers.is_empty() || query.servers.iter().any(|one| one == server);
    let known = host.servers(query.principal);
    let server = known.iter().find(|one| one.name == server || super::session::alias(&one.name) == server)?;
    let found = host.describe(query.principal, &server.name, tool).await.ok().filter(|_| is_asked)?;
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
            if let Some(one) = described(host, &query).await {
                return FoundTools { tools: vec![one], total: 1, ..FoundTools::default() };
            }
            let servers = (!query.servers.is_empty()).then_some(query.servers);
            let dialect = dialect(query.notation);
            let ToolQuery { principal, words, limit, .. } = query;
            let asked = FindQuery { principal, words, servers, dialect, limit };
            let found = host.find(asked).await;
            let servers = match query.words.trim().is_empty() && servers.is_none() {
                false => Vec::new(),
                true => host
                    .servers(principal)
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
        principal: &'a Principal,
        server: &'a str,
        notation: Notation,
    ) -> BoxFuture<'a, Result<String, RunError>> {
        Box::pin(async move {
            let made = self.shared.host.stubs(principal, server, dialect(notation)).await;
            made.map_err(|error| RunError::new(error.code.name(), error.message).remedy(error.remedy))
        })
    }
}
