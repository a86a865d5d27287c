//! How a server is started: as a process of the user, or behind a wall that the composition provides.

use std::path::PathBuf;
use std::sync::Arc;

use policy::Principal;
use sandbox::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::client::Connection;
use crate::client::http::HttpPeer;
use crate::client::lines::{Behind, LinePeer};
use crate::client::process::{self, Filled};
use crate::host::{ToolError, ToolErrorCode};
use crate::oauth::{Credential, TokenStore};
use crate::redact;
use crate::spec::{HttpSpec, SECRET_BYTES_LEAST, ServerSpec, ServerWall, StdioSpec, Transport};
use crate::tls::Dialer;

/// Starts programs behind Palisade's own wall.
pub trait WalledStart: Send + Sync {
    /// Starts a program. Its standard error is kept, to explain its end.
    fn start<'a>(&'a self, program: WalledProgram<'a>) -> BoxFuture<'a, Result<WalledProcess, ToolError>>;
}

/// A program to start behind the wall.
pub struct WalledProgram<'a> {
    /// The server's name.
    pub server: &'a str,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its environment.
    pub env: Vec<(String, String)>,
    /// Directories that it may read, besides the system's own.
    pub read: &'a [PathBuf],
    /// Directories that it may also write.
    pub write: &'a [PathBuf],
    /// Names of access for its traffic.
    pub access: &'a [String],
    /// Its working directory.
    pub cwd: Option<&'a std::path::Path>,
}

/// A program behind the wall. Dropping the streams ends it.
pub struct WalledProcess {
    /// Its standard output.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// Its standard input.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Ends it, and tells what it said last.
    pub end: Box<dyn WalledEnd>,
    /// Credentials that it got beside [`WalledProgram::env`]: its results must not show them.
    pub secrets: Vec<String>,
}

/// The end of a program behind the wall.
pub trait WalledEnd: Send + Sync {
    /// Ends it, and waits until it is gone.
    fn end(&self) -> BoxFuture<'_, ()>;

    /// The end of its standard error. May be empty.
    fn last_words(&self) -> Vec<u8>;
}

struct Walled(Box<dyn WalledEnd>);

impl Behind for Walled {
    fn end(&self) -> BoxFuture<'_, ()> {
        self.0.end()
    }

    fn last_words(&self) -> String {
        process::last_line(&self.0.last_words())
    }
}

/// What starting a server needs.
#[derive(Clone)]
pub(crate) struct Starter {
    /// The executable that knows the role of the supervisor.
    pub(crate) launcher: PathBuf,
    pub(crate) wall: Option<Arc<dyn WalledStart>>,
    pub(crate) dialer: Dialer,
    pub(crate) tokens: TokenStore,
}

/// A started connection and the credentials that went into it.
pub(crate) struct Started {
    pub(crate) connection: Connection,
    pub(crate) secrets: Vec<String>,
}

fn unavailable(message: String) -> ToolError {
    ToolError::new(ToolErrorCode::ServerUnavailable, message)
}

impl Starter {
    /// Starts a server, or prepares the connection to it, for one principal.
    pub(crate) async fn start(&self, spec: &ServerSpec, principal: &Principal) -> Result<Started, ToolError> {
        let mut secrets = Vec::new();
        let connected = match &spec.transport {
            Transport::Http(http) => headers(http, &mut secrets).map(|headers| {
                let credential = self.credential(spec, http, principal);
                Connection::Http(Box::new(HttpPeer::new(http.url.clone(), headers, credential)))
            }),
            Transport::Stdio(stdio) => self.process(spec, stdio, &mut secrets).await.map(Connection::Lines),
        };
        match connected {
            Ok(connection) => Ok(Started { connection, secrets }),
            // A reason may quote an argument.
            Err(error) => Err(redact::error(error, &secrets)),
        }
    }

    /// The tokens of a principal for a server.
    pub(crate) fn credential(
        &self,
        spec: &ServerSpec,
        http: &HttpSpec,
        principal: &Principal,
    ) -> Arc<Credential> {
        Credential::new(&spec.name, principal, &http.url, (self.tokens.clone(), self.dialer.clone()))
    }

    async fn process(
        &self,
        spec: &ServerSpec,
        stdio: &StdioSpec,
        secrets: &mut Vec<String>,
    ) -> Result<LinePeer, ToolError> {
        let mut args = Vec::new();
        for (place, template) in stdio.args.iter().enumerate() {
            let filled =
                template.fill(secrets).map_err(|why| unavailable(format!("args[{place}]: {why}")))?;
            args.push(filled);
        }
        let mut env = std::collections::BTreeMap::new();
        for (name, template) in &stdio.env {
            let value = template.fill(secrets).map_err(|why| unavailable(format!("env.{name}: {why}")))?;
            env.insert(name.clone(), value);
        }
        let ServerWall::Own { read, write, access } = &stdio.wall else {
            let filled = Filled { command: &stdio.command, args, env, cwd: stdio.cwd.as_deref() };
            return process::start(&self.launcher, filled);
        };
        let Some(wall) = &self.wall else {
            return Err(unavailable("no wall can hold this server here".to_owned())
                .with_remedy("`palisade doctor` says why; `wall = \"none\"` runs it without one"));
        };
        let mut command = vec![stdio.command.clone()];
        command.extend(args);
        let env = env.into_iter().collect();
        let program = WalledProgram {
            server: &spec.name,
            command,
            env,
            read,
            write,
            access,
            cwd: stdio.cwd.as_deref(),
        };
        let WalledProcess { reader, writer, end, secrets: of_access } = wall.start(program).await?;
        secrets.extend(of_access.into_iter().filter(|secret| secret.len() >= SECRET_BYTES_LEAST));
        Ok(LinePeer::new(reader, writer, Box::new(Walled(end))))
    }
}

fn headers(http: &HttpSpec, secrets: &mut Vec<String>) -> Result<http::HeaderMap, ToolError> {
    let mut headers = http::HeaderMap::new();
    for (name, template) in &http.headers {
        let text = template.fill(secrets).map_err(|why| unavailable(format!("headers.{name}: {why}")))?;
        let mut value = http::HeaderValue::from_str(&text)
            .map_err(|_| unavailable(format!("headers.{name}: it is no value of a header")))?;
        value.set_sensitive(true);
        headers.insert(name.clone(), value);
    }
    Ok(headers)
}
