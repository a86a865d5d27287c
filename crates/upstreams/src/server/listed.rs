//! The listing of a server's tools: at each start, and when they change.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Server, Session, locked};
use crate::client::change::Change;
use crate::client::era::{Era, Hello};
use crate::client::{Bounds, Connection, listing};
use crate::host::ToolError;
use crate::{clean, redact};

/// How long a listing is trusted where the server cannot say that it changed.
const LISTING_AGE_MAX: Duration = Duration::from_secs(600);

impl Server {
    /// Lists the tools, and compares them with what was pinned. Credentials are taken out of all that the server said.
    pub(super) async fn list(
        self: &Arc<Self>,
        session: &Session,
        hello: Option<Hello>,
    ) -> Result<(), ToolError> {
        let deadline = Instant::now() + listing::LISTING_PATIENCE;
        // Taken first: a change that is announced while the pages are read is read again.
        let change = Change::take(&session.connection);
        let definitions = match hello.as_ref().is_none_or(|hello| hello.has_tools) {
            true => listing::tools(&session.connection, deadline).await,
            false => Ok(Vec::new()),
        };
        let secrets = session.secrets();
        let mut definitions = definitions.map_err(|error| redact::error(error, &secrets))?;
        let shared = (self.key != self.spec.name).then(|| (self.shelf.clone(), self.spec.name.clone()));
        let listed = self.update(move |catalogue| {
            definitions.iter_mut().for_each(|definition| redact::result(definition, &secrets));
            if let Some(hello) = hello {
                catalogue.header.era = Some(hello.era);
                catalogue.header.version = hello.version;
                catalogue.header.name = hello.name;
                let is_fine = clean::suspicion(&hello.instructions).is_none();
                catalogue.header.instructions = if is_fine { hello.instructions } else { String::new() };
            }
            match shared {
                Some((shelf, name)) => catalogue.list_beside(&shelf.load(&name), definitions),
                None => catalogue.list(definitions),
            }
        });
        listed.await?;
        *locked(&session.listed) = Instant::now();
        change.listed();
        Ok(())
    }

    /// Asks to be told when the tools change. In the other era servers tell it without being asked.
    pub(super) async fn subscribe(&self, session: &Session) {
        if session.era == Era::Stateless
            && let Connection::Lines(peer) = &session.connection
        {
            peer.subscribe();
        }
    }

    /// Lists the tools again if the server says that they changed, or cannot say it. A caller whose time passes leaves that
    /// to the next one.
    pub(super) async fn refresh(
        self: &Arc<Self>,
        session: &Session,
        bounds: &Bounds,
    ) -> Result<(), ToolError> {
        tokio::select! {
            refreshed = self.refreshed(session) => refreshed,
            error = bounds.passed() => Err(error),
        }
    }

    async fn refreshed(self: &Arc<Self>, session: &Session) -> Result<(), ToolError> {
        let is_old = matches!(session.connection, Connection::Http(_))
            && locked(&session.listed).elapsed() > LISTING_AGE_MAX;
        if is_old || session.connection.is_changed() {
            let _turn = session.relisting.lock().await;
            if is_old || session.connection.is_changed() {
                self.list(session, None).await?;
            }
        }
        Ok(())
    }
}
