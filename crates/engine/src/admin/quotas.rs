//! Quotas of the callers that are known: the holders of keys in force, and the holder of the server's own token.

use policy::Caller;
use serde::Serialize;

use super::{Operator, Page, PageAsk};
use crate::clock::unix_ms;
use crate::gatekeeper::{Key, KeyState, QuotaUse};
use crate::result::RunError;
use crate::sandboxes::Sandboxes;

/// A quota and how much of it is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuotaView {
    /// What is limited; the name has the unit.
    pub amount: &'static str,
    /// The most.
    pub limit: u64,
    /// What is used now.
    pub used: u64,
}

/// The quotas of a caller. An amount that is not limited is not among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrincipalQuotas {
    /// Whose they are.
    pub principal: String,
    /// A name for people: `owner`, `key:NAME`.
    pub label: String,
    /// The limited amounts.
    pub quotas: Vec<QuotaView>,
}

impl Sandboxes {
    /// The quotas of the holders of these keys and of the server's owner, by label.
    pub async fn quotas_across(
        &self,
        _operator: &Operator,
        keys: &[Key],
        ask: &PageAsk,
    ) -> Result<Page<PrincipalQuotas>, RunError> {
        let now_ms = unix_ms();
        let holders = keys.iter().filter(|key| key.state(now_ms) == KeyState::InForce).map(Key::caller);
        let is_wanted = |caller: &Caller| ask.principal.as_ref().is_none_or(|one| *one == caller.principal);
        let callers = std::iter::once(Caller::token_holder()).chain(holders).filter(is_wanted);
        let page = Page::of(callers, ask, |caller| format!("{}.{}", caller.label, caller.principal.as_str()));
        let mut items = Vec::with_capacity(page.items.len());
        for caller in &page.items {
            let used = self.quotas_in_use(caller).await?;
            items.push(PrincipalQuotas {
                principal: caller.principal.as_str().to_owned(),
                label: caller.label.to_string(),
                quotas: used.iter().map(view).collect(),
            });
        }
        Ok(Page { items, next: page.next })
    }
}

fn view(QuotaUse { amount, limit, used }: &QuotaUse) -> QuotaView {
    QuotaView { amount: amount.name(), limit: *limit, used: *used }
}
