//! Keys as operators see them, and the rules of making one.

use policy::{Book, Bound, Caller, Principal, Scope};
use serde::Serialize;

use crate::audit::Event;
use crate::gatekeeper::{Key, KeyError, KeyText, Keys, NewKey};

/// A key without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyView {
    /// Its name, unique among the keys in force.
    pub name: String,
    /// Its id.
    pub id: String,
    /// The principal of its holder.
    pub principal: String,
    /// What its holder may do.
    pub scopes: Vec<&'static str>,
    /// The policy that binds its holder.
    pub policy: Option<String>,
    /// `in force`, `expired` or `revoked`.
    pub state: &'static str,
    /// When it was made, in milliseconds since the epoch, as all times here.
    pub created_ms: u64,
    /// When it ends.
    pub expires_ms: Option<u64>,
    /// When it got its present secret, if that is not its first.
    pub rotated_ms: Option<u64>,
    /// When it was used last, to about a minute.
    pub last_used_ms: Option<u64>,
    /// When it was revoked.
    pub revoked_ms: Option<u64>,
}

impl KeyView {
    /// A key at that time.
    pub fn new(key: &Key, now_ms: u64) -> Self {
        Self {
            name: key.name.clone(),
            id: key.id.as_str().to_owned(),
            principal: key.id.principal().as_str().to_owned(),
            scopes: key.scopes.iter().map(Scope::name).collect(),
            policy: key.policy.clone(),
            state: key.state(now_ms).name(),
            created_ms: key.created_ms,
            expires_ms: key.expires_ms,
            rotated_ms: key.rotated_ms,
            last_used_ms: key.used_ms,
            revoked_ms: key.revoked_ms,
        }
    }

    /// The text that orders lists of keys: by name, then by age.
    pub fn order(&self) -> String {
        format!("{}.{:020}.{}", self.name, self.created_ms, self.id)
    }
}

/// Why a key was not made.
#[derive(Debug, thiserror::Error)]
pub enum NotCreated {
    /// No policy has the name.
    #[error("no policy is named `{name}`; there are {known}")]
    UnknownPolicy {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The key itself cannot be made.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Makes a key, whose policy must be one of the book.
pub fn create_key(keys: &Keys, book: &Book, new: &NewKey, now_ms: u64) -> Result<(Key, KeyText), NotCreated> {
    if let Some(policy) = new.policy.as_ref().filter(|policy| book.get(policy).is_none()) {
        let name = policy.chars().filter(|c| !c.is_control()).take(64).collect();
        return Err(NotCreated::UnknownPolicy { name, known: book.names().join(", ") });
    }
    Ok(keys.create(new, now_ms)?)
}

/// What the audit tells of a change of a key: `key_created`, `key_revoked`, `key_rotated`.
pub fn key_event(kind: &'static str, key: &Key) -> Event {
    let scopes: Vec<&str> = key.scopes.iter().map(Scope::name).collect();
    Event::new(kind)
        .with("key", key.id.as_str())
        .with("name", key.name.as_str())
        .with("scopes", scopes.join(","))
        .with("policy", key.policy.clone())
        .with("expires_ms", key.expires_ms)
}

/// Whether a key may call tools by its scopes, but none by policy.
pub fn may_do_nothing(book: &Book, key: &Key) -> bool {
    let calls_tools = key.scopes.contain(Scope::Run);
    calls_tools && key.policy.is_none() && matches!(book.of(&key.caller()), Bound::Nothing)
}

/// The caller with that label, as bindings and quotas see it. `None` if the label can be nobody's.
pub fn caller_named(label: &str, keys: &[Key]) -> Option<Caller> {
    let held =
        keys.iter().find(|key| label.strip_prefix("key:") == Some(&*key.name) && key.revoked_ms.is_none());
    if let Some(key) = held {
        return Some(key.caller());
    }
    let principal = match label {
        "local" => Principal::local(),
        "anonymous" => Principal::anonymous(),
        "owner" | "token" | "key:owner" => return Some(Caller::token_holder()),
        other => Principal::new(other)?,
    };
    Some(Caller { label: label.into(), ..Caller::owner(principal) })
}
