//! Keys: listed, made, revoked and rotated.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::admin::{KeyView, Page, create_key, key_event, may_do_nothing};
use engine::audit::Event;
use engine::{Key, KeyError, KeyState, KeyText, Keys, NewKey};
use policy::{Scope, Scopes};
use serde::Deserialize;
use serde_json::json;

use super::Admin;
use super::answer::{Answer, Answering, Refusal};
use super::ask::Ask;

const MS_PER_S: u64 = 1000;
/// The longest time of a key or of an overlap: a hundred years.
pub(super) const SPAN_S_MAX: u64 = 3_155_760_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    name: String,
    scopes: Vec<String>,
    #[serde(default)]
    policy: Option<String>,
    #[serde(default)]
    expires_in_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rotation {
    #[serde(default)]
    overlap_s: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Empty {}

/// `GET /keys`.
pub(super) fn list(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let page = ask.page()?;
        let is_all = match ask.parameter("state") {
            None | Some("in_force") => false,
            Some("all") => true,
            Some(_) => {
                let message = "the parameter `state` has no such value";
                return Err(Refusal::bad("bad_query", message, "give in_force or all"));
            }
        };
        let now_ms = unix_ms();
        let keys = of_keys(&admin, |keys| keys.list()).await?;
        let wanted = keys.iter().filter(|key| is_all || key.state(now_ms) == KeyState::InForce);
        let views = wanted.map(|key| KeyView::new(key, now_ms));
        Answer::page(&Page::of(views, &page, KeyView::order))
    })
}

/// `POST /keys`.
pub(super) fn create(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let wanted: Wanted = ask.body()?;
        let scopes: Result<Scopes, _> = wanted.scopes.iter().map(|name| name.parse::<Scope>()).collect();
        let scopes =
            scopes.map_err(|error| Refusal::bad("unknown_scope", error.to_string(), "name other scopes"))?;
        if wanted.scopes.len() > Scope::ALL.len() {
            return Err(Refusal::bad(
                "bad_body",
                "`scopes` has more items than there are scopes",
                "name each scope once",
            ));
        }
        if scopes.is_empty() {
            return Err(Refusal::bad(
                "no_scope",
                "a key without a scope may do nothing",
                "name at least one scope",
            ));
        }
        check_span("expires_in_s", wanted.expires_in_s.unwrap_or_default())?;
        let now_ms = unix_ms();
        let expires_ms = wanted.expires_in_s.map(|s| now_ms.saturating_add(s.saturating_mul(MS_PER_S)));
        let new = NewKey { name: wanted.name, scopes, policy: wanted.policy, expires_ms };
        let book = admin.runs.engine().gatekeeper().book();
        let made_by = Arc::clone(&book);
        let (key, text) = blocking(&admin, move |keys| create_key(keys, &made_by, &new, now_ms)).await??;
        record_made(&admin, &ask, &key).await?;
        tracing::info!(principal = %ask.caller, key = key.id.as_str(), scopes = %key.scopes, "key_created");
        let warning = may_do_nothing(&book, &key).then(|| {
            format!(
                "no policy binds key:{}, so it may call no tool: name a policy, or bind the key",
                key.name
            )
        });
        let mut told = with_secret(&key, &text);
        told["warning"] = json!(warning);
        Answer::created(&told)
    })
}

/// `POST /keys/{key}/revoke`.
pub(super) fn revoke(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let Empty {} = ask.body()?;
        let (name, now_ms) = (ask.id().to_owned(), unix_ms());
        let key = of_keys(&admin, move |keys| keys.revoke(&name, now_ms)).await?;
        tell(&admin, key_event("key_revoked", &key).by(&ask.caller));
        tracing::info!(principal = %ask.caller, key = key.id.as_str(), "key_revoked");
        Answer::ok(&KeyView::new(&key, now_ms))
    })
}

/// `POST /keys/{key}/rotate`.
pub(super) fn rotate(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let Rotation { overlap_s } = ask.body()?;
        check_span("overlap_s", overlap_s)?;
        let (name, now_ms, overlap) = (ask.id().to_owned(), unix_ms(), Duration::from_secs(overlap_s));
        let (key, text) = of_keys(&admin, move |keys| keys.rotate(&name, overlap, now_ms)).await?;
        tell(&admin, key_event("key_rotated", &key).by(&ask.caller));
        tracing::info!(principal = %ask.caller, key = key.id.as_str(), "key_rotated");
        let mut told = with_secret(&key, &text);
        told["warning"] = json!(null);
        Answer::ok(&told)
    })
}

fn check_span(name: &str, seconds: u64) -> Result<(), Refusal> {
    match seconds > SPAN_S_MAX {
        true => {
            let remedy = format!("give at most {SPAN_S_MAX}");
            Err(Refusal::bad("bad_body", format!("`{name}` is too long"), remedy))
        }
        false => Ok(()),
    }
}

/// A key that is not in the audit is not handed out.
async fn record_made(admin: &Admin, ask: &Ask, key: &Key) -> Result<(), Refusal> {
    let event = key_event("key_created", key).by(&ask.caller);
    let recorded = admin.runs.engine().gatekeeper().audit().note_before(event);
    if let Err(error) = recorded {
        let (id, now_ms) = (key.id.as_str().to_owned(), unix_ms());
        of_keys(admin, move |keys| keys.revoke(&id, now_ms)).await?;
        return Err(error.into());
    }
    Ok(())
}

/// Records what an operator did.
pub(super) fn tell(admin: &Admin, event: Event) {
    admin.runs.engine().gatekeeper().audit().note(event);
}

fn with_secret(key: &Key, text: &KeyText) -> serde_json::Value {
    json!({ "key": KeyView::new(key, unix_ms()), "secret": text.reveal() })
}

/// Works with the keys away from the runtime: a change of keys waits for the disk.
async fn blocking<T: Send + 'static>(
    admin: &Admin,
    work: impl FnOnce(&Keys) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let keys = Arc::clone(&admin.keys);
    let done = tokio::task::spawn_blocking(move || work(&keys)).await;
    done.map_err(|_| Refusal::own("the keys could not be used"))
}

/// The same, for work that only the keys can refuse.
pub(super) async fn of_keys<T: Send + 'static>(
    admin: &Admin,
    work: impl FnOnce(&Keys) -> Result<T, KeyError> + Send + 'static,
) -> Result<T, Refusal> {
    Ok(blocking(admin, work).await??)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
