//! What operators do: the functions that the admin API and the command line share.
//!
//! ```text
//! service/admin (HTTP, scopes) --+
//!                                +--> here --> keys, policies, runs, sandboxes, quotas
//! palisade/cli (the same user) --+
//! ```
//! A lookup across principals takes an [`Operator`]: a proof that the caller may administer the server. Answers have no
//! program, no output, no argument and no secret, except the text of a key in the answer that makes it.

mod explain;
mod keys;
mod quotas;
mod runs;
mod sandboxes;

use policy::{Caller, Principal, Scope};

use crate::gatekeeper::Approval;

pub use self::explain::{Counter, ExplainedCall, ExplainedStep, Explanation, explain};
pub use self::keys::{KeyView, NotCreated, caller_named, create_key, key_event, may_do_nothing};
pub use self::quotas::{PrincipalQuotas, QuotaView};
pub use self::runs::{RunDetail, RunView};
pub use self::sandboxes::SandboxView;

/// A caller that may administer the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator(Caller);

impl Operator {
    /// The caller as an operator, if its scopes allow that.
    pub fn of(caller: &Caller) -> Option<Self> {
        caller.may(Scope::Admin).then(|| Self(caller.clone()))
    }

    /// Who it is.
    pub fn caller(&self) -> &Caller {
        &self.0
    }
}

/// Which part of a list is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageAsk {
    /// Only items of this principal.
    pub principal: Option<Principal>,
    /// Only items after this one, by the cursor of an earlier page.
    pub after: Option<String>,
    /// The most items.
    pub limit: usize,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, in the order of the list.
    pub items: Vec<T>,
    /// The cursor of the next part, if there may be one.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// The first items after the cursor. Each item has a text that orders the list and is unique in it.
    pub fn of(all: impl IntoIterator<Item = T>, ask: &PageAsk, order: impl Fn(&T) -> String) -> Self {
        let mut keyed: Vec<(String, T)> = all.into_iter().map(|item| (order(&item), item)).collect();
        keyed.retain(|(key, _)| ask.after.as_ref().is_none_or(|after| key > after));
        keyed.sort_by(|one, other| one.0.cmp(&other.0));
        keyed.dedup_by(|one, other| one.0 == other.0);
        let is_more = keyed.len() > ask.limit;
        keyed.truncate(ask.limit);
        let next = keyed.last().filter(|_| is_more).map(|(key, _)| key.clone());
        Self { items: keyed.into_iter().map(|(_, item)| item).collect(), next }
    }
}

/// A part of a list of approvals, newest first.
pub fn approvals_in_order(all: Vec<Approval>, ask: &PageAsk) -> Page<Approval> {
    Page::of(all, ask, |approval| newest_first(approval.created_ms, approval.id.as_str()))
}

/// The text that orders a list by time, newest first, and then by id.
fn newest_first(created_ms: u64, id: &str) -> String {
    format!("{:020}.{id}", u64::MAX - created_ms)
}

/// The time in such a text.
fn time_of(cursor: &str) -> Option<u64> {
    let digits = cursor.split_once('.')?.0;
    Some(u64::MAX - digits.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use policy::Scopes;

    use super::*;

    #[test]
    fn only_a_caller_with_the_scope_admin_is_an_operator() {
        for scope in Scope::ALL {
            let caller = Caller { scopes: Scopes::of(&[scope]), ..Caller::local() };
            assert_eq!(Operator::of(&caller).is_some(), scope == Scope::Admin, "{scope}");
        }
    }

    #[test]
    fn pages_follow_each_other_without_a_gap_or_a_repetition() {
        let all: Vec<u64> = (0..23).collect();
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let ask = PageAsk { after, limit: 5, principal: None };
            let page = Page::of(all.clone(), &ask, |time| newest_first(*time, "x"));
            assert!(page.items.len() <= 5);
            seen.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, all.into_iter().rev().collect::<Vec<_>>());
    }

    #[test]
    fn the_time_of_a_cursor_comes_back_and_nothing_else_is_one() {
        assert_eq!(time_of(&newest_first(7, "run_1")), Some(7));
        for bad in ["", ".", "x.y", "18446744073709551616.a", "-1.a"] {
            assert_eq!(time_of(bad), None, "{bad}");
        }
    }
}
