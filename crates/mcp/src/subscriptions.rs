//! `subscriptions/listen`: notifies a client when the tool list changes, and when a run writes output.

use std::time::Duration;

use engine::{Caller, FoundRun, LogRange};
use rmcp::model::{ErrorData, SubscriptionFilter};
use rmcp::service::SubscriptionContext;
use serde_json::json;
use tokio::task::JoinSet;

use super::doors::Door;
use super::resources::Address;
use super::{Server, caller};

/// Maximum number of addresses in one subscription.
const RESOURCES_MAX: usize = 64;
/// Minimum time between two notifications about the same resource.
const PAUSE: Duration = Duration::from_millis(500);

/// The part of the requested filter that the server accepts: changes of the tool list, and logs of runs.
/// Ownership is not checked here; only a run's owner receives notifications.
pub(crate) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let mut accepted = SubscriptionFilter::default();
    accepted.tools_list_changed = requested.tools_list_changed;
    accepted.resource_subscriptions = requested.resource_subscriptions.as_ref().map(|uris| {
        let is_log = |uri: &&String| matches!(Address::parse(uri), Some(Address::Log(..)));
        uris.iter().filter(is_log).take(RESOURCES_MAX).cloned().collect()
    });
    accepted
}

/// Runs until the client or the server ends the subscription.
pub(crate) async fn listen(server: &Server, context: SubscriptionContext) -> Result<(), ErrorData> {
    let caller = caller(context.request_context())?;
    let mut watching = JoinSet::new();
    for uri in context.accepted().resource_subscriptions.iter().flatten() {
        let Some(notices) = run_notices(server, &caller, uri).await else { continue };
        let (sink, uri) = (context.sink().clone(), uri.clone());
        watching.spawn(async move {
            let mut notices = notices;
            while notices.next().await {
                if sink.notify_resource_updated(uri.clone()).await.is_err() {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    let (mut tools, mut policies) = (server.checks.offered(), server.engine.gatekeeper().changes());
    let mut seen = server.tools_for(&caller).await;
    loop {
        tokio::select! {
            () = context.cancelled() => return Ok(()),
            _ = server.ended() => return Ok(()),
            Ok(()) = tools.changed() => {}
            Ok(()) = policies.changed() => {}
        }
        let now = server.tools_for(&caller).await;
        if now != seen {
            // The sink applies the client's filter and drops notifications that the client did not request.
            context.sink().notify_tool_list_changed().await.ok();
            seen = now;
        }
    }
}

/// Notifications about one run: more output, then its end.
struct RunNotices {
    run: engine::LiveRun,
    written: tokio::sync::watch::Receiver<u64>,
    is_over: bool,
}

impl RunNotices {
    async fn next(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        tokio::select! {
            _ = self.run.finished() => self.is_over = true,
            changed = self.written.changed() => self.is_over = changed.is_err(),
        }
        true
    }
}

async fn run_notices(server: &Server, caller: &Caller, uri: &str) -> Option<RunNotices> {
    let Some(Address::Log(id, LogRange { .. })) = Address::parse(uri) else { return None };
    let asked = json!({ "run_id": id.as_str() });
    drop(Door::Subscription.open(server.engine.gatekeeper(), caller, asked).await.ok()?);
    match server.runs.find(caller, &id).await {
        Ok(Some(FoundRun::Live(run))) => Some(RunNotices { written: run.subscribe(), run, is_over: false }),
        _ => None,
    }
}
