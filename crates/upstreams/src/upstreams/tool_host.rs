//! The implementation of [`ToolHost`]: what the broker and `find_tools` ask of the servers.

use std::sync::Arc;
use std::time::Instant;

use policy::Principal;
use sandbox::BoxFuture;
use serde_json::{Map, Value};

use super::Upstreams;
use crate::answers::{finished, learnable};
use crate::catalogue::{Catalogue, Pin, Tool};
use crate::client::Bounds;
use crate::host::{
    Dialect, FindQuery, FoundTools, ResourceRead, ServerInfo, ToolAccess, ToolAnswer, ToolCall,
    ToolDefinition, ToolError, ToolErrorCode, ToolHost, ToolName, ToolStanding, Viewer,
};
use crate::server::Server;
use crate::spec::{ServerSpec, ServerWall, Transport};
use crate::stubs;
use crate::view::{access, check, definition, unknown_tool};

const ABOUT_CHARACTERS_MAX: usize = 200;

impl ToolHost for Upstreams {
    fn servers(&self, viewer: Viewer<'_>) -> Vec<ServerInfo> {
        let info = |shared: &Arc<Server>| {
            let server = self.of(shared, viewer.principal);
            let (spec, catalogue) = (&server.spec, server.catalogue());
            let is_seen = |tool: &&Tool| viewer.sees(&spec.name, &tool.facts.name, &tool.facts.alias);
            let is_offered = |tool: &&Tool| is_seen(tool) && access(spec, tool) != ToolAccess::Deny;
            let is_held = |tool: &&Tool| is_seen(tool) && tool.pin() != Pin::Accepted;
            let about = match spec.about.is_empty() {
                true => crate::clean::line(&catalogue.header.instructions, ABOUT_CHARACTERS_MAX),
                false => spec.about.clone(),
            };
            let is_walled = match &spec.transport {
                Transport::Stdio(stdio) => Some(stdio.wall != ServerWall::None),
                Transport::Http(_) => None,
            };
            ServerInfo {
                name: spec.name.clone(),
                about,
                state: server.state(),
                tools: catalogue.tools.iter().filter(is_offered).count(),
                is_listed: catalogue.header.is_listed,
                held: catalogue.tools.iter().filter(is_held).count(),
                labels: spec.labels.clone(),
                refuses: spec.refuses.clone(),
                instructions: catalogue.header.instructions.clone(),
                is_walled,
            }
        };
        self.servers.iter().map(info).collect()
    }

    fn find<'a>(&'a self, query: FindQuery<'a>) -> BoxFuture<'a, FoundTools> {
        Box::pin(self.search(query))
    }

    fn standing<'a>(
        &'a self,
        principal: &'a Principal,
        server: &'a str,
        tool: &'a str,
    ) -> BoxFuture<'a, Result<ToolStanding, ToolError>> {
        Box::pin(async move {
            let (server, catalogue) = self.listed(principal, server).await?;
            let spec = &server.spec;
            let tool = catalogue.get(tool).ok_or_else(|| unknown_tool(&spec.name, tool, &catalogue))?;
            Ok(ToolStanding {
                server: spec.name.clone(),
                tool: tool.facts.name.clone(),
                alias: tool.facts.alias.clone(),
                effect: tool.facts.effect,
                access: access(spec, tool),
                labels: spec.labels.clone(),
                refuses: spec.refuses.clone(),
                digest: tool.facts.digest.clone(),
            })
        })
    }

    fn describe<'a>(
        &'a self,
        principal: &'a Principal,
        server: &'a str,
        tool: &'a str,
    ) -> BoxFuture<'a, Result<ToolDefinition, ToolError>> {
        Box::pin(async move {
            let (server, catalogue) = self.listed(principal, server).await?;
            let spec = &server.spec;
            let tool = catalogue.get(tool).ok_or_else(|| unknown_tool(&spec.name, tool, &catalogue))?;
            Ok(definition(spec, tool))
        })
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolAnswer, ToolError>> {
        Box::pin(async move {
            let deadline = call.deadline.min(Instant::now() + self.server(call.server)?.spec.timeout);
            let bounds = Bounds { deadline, cancel: call.cancel, bytes_max: call.answer_bytes_max };
            let server = self.of(self.server(call.server)?, call.principal);
            if !server.catalogue().header.is_listed {
                server.connected(&bounds).await?;
            }
            let (spec, catalogue) = (&server.spec, server.catalogue());
            let tool = meant(spec, &catalogue, call.tool)?;
            check(spec, tool)?;
            let (name, digest) = (tool.facts.name.clone(), tool.facts.digest.clone());
            let mut params = Map::new();
            params.insert("name".to_owned(), Value::from(name.as_str()));
            params.insert("arguments".to_owned(), Value::Object(call.arguments));
            // Asked again when the server runs: its definitions may have changed.
            let judged = ToolName::Judged { own: &name, digest: &digest };
            let is_allowed = |now: &Catalogue| check(spec, meant(spec, now, judged)?);
            let answer = server.request("tools/call", params, &bounds, is_allowed).await?;
            let answer = finished(answer, &spec.labels)?;
            if call.is_learned_from
                && server.is_learning(&name)
                && !tool.has_output_schema()
                && let Some(shape) = learnable(&answer.result)
            {
                server.learn(&name, &digest, shape);
            }
            Ok(answer)
        })
    }

    fn read<'a>(&'a self, read: ResourceRead<'a>) -> BoxFuture<'a, Result<ToolAnswer, ToolError>> {
        Box::pin(async move {
            let server = self.of(self.server(read.server)?, read.principal);
            let deadline = read.deadline.min(Instant::now() + server.spec.timeout);
            let bounds = Bounds { deadline, cancel: read.cancel, bytes_max: read.answer_bytes_max };
            let mut params = Map::new();
            params.insert("uri".to_owned(), Value::from(read.uri));
            let answer = server.request("resources/read", params, &bounds, |_| Ok(())).await?;
            finished(answer, &server.spec.labels)
        })
    }

    fn stubs<'a>(
        &'a self,
        principal: &'a Principal,
        server: &'a str,
        dialect: Dialect,
    ) -> BoxFuture<'a, Result<String, ToolError>> {
        Box::pin(async move {
            let (server, catalogue) = self.listed(principal, server).await?;
            Ok(stubs::declarations(&server.spec.name, &catalogue, dialect))
        })
    }
}

/// The tool that a call means. One that was judged is that tool in that definition, or none.
fn meant<'c>(spec: &ServerSpec, catalogue: &'c Catalogue, name: ToolName<'_>) -> Result<&'c Tool, ToolError> {
    match name {
        ToolName::Spelled(name) => {
            catalogue.get(name).ok_or_else(|| unknown_tool(&spec.name, name, catalogue))
        }
        ToolName::Judged { own, digest } => {
            let tool = catalogue.named(own).ok_or_else(|| unknown_tool(&spec.name, own, catalogue))?;
            if tool.facts.digest == digest {
                return Ok(tool);
            }
            // Refused by the operator's word, or held: that says more.
            check(spec, tool)?;
            let message =
                format!("the definition of `{}.{own}` has changed since the call was judged", spec.name);
            Err(ToolError::new(ToolErrorCode::ToolHeld, message).with_remedy("make the call again"))
        }
    }
}
