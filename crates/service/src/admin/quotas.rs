//! Quotas and their use.

use std::sync::Arc;

use super::Admin;
use super::answer::{Answer, Answering};
use super::ask::Ask;
use super::keys::of_keys;

/// `GET /quotas`.
pub(super) fn list(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let keys = of_keys(&admin, |keys| keys.list()).await?;
        let sandboxes = admin.runs.sandboxes();
        Answer::page(&sandboxes.quotas_across(&ask.operator()?, &keys, &ask.page()?).await?)
    })
}
