//! Tests of the keys in memory: who is identified, and how soon an end is noticed.

use std::os::unix::fs::PermissionsExt;

use engine::NewKey;
use harness::TestFolder;
use policy::{Scope, Scopes};

use super::super::Callers;
use super::*;

struct Scene {
    folder: TestFolder,
    operator: Keys,
    callers: Arc<Callers>,
    ended: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    fn new() -> Self {
        let folder = TestFolder::new();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let ended: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&ended);
        let on_end = move |principal: &Principal, secrets: SecretsBefore, _: Telling| {
            let which = if secrets == SecretsBefore::ALL { "" } else { " (old secret)" };
            told.lock().unwrap().push(format!("{}{which}", principal.as_str()));
        };
        let callers = Callers::new(folder.path(), None, true, None, Box::new(on_end));
        Self { operator: Keys::new(folder.path()), folder, callers, ended }
    }

    fn make(&self, name: &str, life: Option<Duration>) -> (Key, String) {
        let expires_ms = life.map(|life| unix_ms() + u64::try_from(life.as_millis()).unwrap());
        let scopes = Scopes::of(&[Scope::Run]);
        let new = NewKey { name: name.to_owned(), scopes, policy: None, expires_ms };
        let (key, text) = self.operator.create(&new, unix_ms()).unwrap();
        (key, text.reveal().to_owned())
    }

    fn look(&self) {
        assert!(self.callers.keys.look(&self.callers.on_end));
    }

    async fn identify(&self, shown: &str) -> Result<Identified, String> {
        let identified = self.callers.identify(Some(shown.as_bytes())).await;
        identified.map_err(|why| why.reason.into_owned())
    }

    fn ended(&self) -> Vec<String> {
        self.ended.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn a_key_is_its_holder_and_a_revoked_one_ends_all_that_it_began() {
    let scene = Scene::new();
    let (key, text) = scene.make("ci", None);
    scene.look();
    let found = scene.identify(&text).await.unwrap();
    assert_eq!((found.caller.label.as_ref(), &found.caller.principal), ("key:ci", &key.id.principal()));
    assert!(found.caller.may(Scope::Run) && !found.caller.may(Scope::Sandbox));
    assert!(scene.callers.holder(&key.id.principal(), u64::MAX).await.is_some());
    scene.operator.revoke("ci", unix_ms()).unwrap();
    scene.look();
    found.credential.ended().await;
    assert_eq!(scene.ended(), [key.id.principal().as_str()]);
    assert_eq!(scene.identify(&text).await.unwrap_err(), REVOKED);
    assert!(scene.callers.holder(&key.id.principal(), u64::MAX).await.is_none());
    let again = Callers::new(
        scene.folder.path(),
        None,
        true,
        None,
        Box::new(|_, _, _| panic!("nothing is left to end")),
    );
    assert!(again.keys.look(&again.on_end));
}

#[tokio::test]
async fn what_a_secret_got_ends_with_it_and_not_before() {
    let scene = Scene::new();
    let (key, _) = scene.make("ci", None);
    let (now_ms, principal) = (unix_ms(), key.id.principal());
    let before_s = now_ms / 1000 - 60;
    scene.operator.rotate("ci", Duration::from_secs(600), now_ms).unwrap();
    scene.look();
    assert!(scene.callers.holder(&principal, before_s).await.is_some(), "the old secret still counts");
    scene.operator.rotate("ci", Duration::ZERO, now_ms + 2000).unwrap();
    scene.look();
    assert!(scene.callers.holder(&principal, before_s).await.is_none());
    assert!(scene.callers.holder(&principal, now_ms / 1000 + 2).await.is_some());
}

#[tokio::test]
async fn a_wrong_secret_learns_nothing_about_the_key() {
    let scene = Scene::new();
    let ((_, text), (_, other)) = (scene.make("a", None), scene.make("b", None));
    scene.look();
    scene.operator.revoke("a", unix_ms()).unwrap();
    scene.look();
    let (_, foreign) = Scene::new().make("a", None);
    assert_eq!(scene.identify(&foreign).await.unwrap_err(), UNKNOWN);
    let parts: Vec<&str> = text.split('_').collect();
    let mixed = other.replacen(other.split('_').nth(1).unwrap(), parts[1], 1);
    assert_eq!(scene.identify(&mixed).await.unwrap_err(), MISTYPED);
    assert_eq!(scene.identify(&text[..text.len() - 1]).await.unwrap_err(), MISTYPED);
}

#[tokio::test]
async fn an_expired_key_ends_without_a_change_of_the_database() {
    let scene = Scene::new();
    let (key, text) = scene.make("brief", Some(Duration::from_millis(300)));
    scene.look();
    let found = scene.identify(&text).await.unwrap();
    found.credential.ended().await;
    assert_eq!(scene.identify(&text).await.unwrap_err(), EXPIRED);
    scene.look();
    assert_eq!(scene.ended(), [key.id.principal().as_str()]);
}

#[tokio::test]
async fn a_rotated_key_goes_on_and_its_old_secret_ends_after_the_overlap() {
    let scene = Scene::new();
    let (_, first) = scene.make("ci", None);
    scene.look();
    let old = scene.identify(&first).await.unwrap();
    let (_, second) = scene.operator.rotate("ci", Duration::from_millis(400), unix_ms()).unwrap();
    scene.look();
    assert!(scene.identify(&first).await.is_ok());
    let new = scene.identify(second.reveal()).await.unwrap();
    assert_eq!(old.caller.principal, new.caller.principal);
    scene.identify(&first).await.unwrap().credential.ended().await;
    scene.look();
    old.credential.ended().await;
    assert_eq!(scene.identify(&first).await.unwrap_err(), ROTATED);
    assert!(scene.ended().is_empty(), "the key itself goes on");
    assert!(scene.identify(second.reveal()).await.is_ok());
    scene.operator.rotate("ci", Duration::ZERO, unix_ms()).unwrap();
    scene.look();
    new.credential.ended().await;
    assert_eq!(scene.ended().len(), 1, "a replaced secret ends what it began");
}

#[tokio::test]
async fn keys_that_cannot_be_read_do_not_count() {
    let scene = Scene::new();
    let (_, text) = scene.make("ci", None);
    scene.look();
    assert!(scene.identify(&text).await.is_ok());
    let gate = scene.folder.path().join("gate");
    std::fs::set_permissions(&gate, std::fs::Permissions::from_mode(0o777)).unwrap();
    scene.callers.keys.confirmed_ms.store(0, Ordering::Release);
    assert_eq!(scene.identify(&text).await.unwrap_err(), UNREADABLE);
    std::fs::set_permissions(&gate, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(scene.identify(&text).await.is_ok(), "a request looks by itself");
}

#[tokio::test]
async fn identifying_a_key_costs_microseconds_and_its_use_is_noted() {
    let scene = Scene::new();
    let (key, text) = scene.make("ci", None);
    scene.look();
    let mut times = Vec::new();
    for _ in 0..2000 {
        let begun = Instant::now();
        assert!(scene.callers.identify(Some(text.as_bytes())).await.is_ok());
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    println!("identify: p50 {:?}, p99 {:?}", times[1000], times[1980]);
    assert!(times[1000] < Duration::from_millis(2), "{:?}", times[1000]);
    scene.callers.note_used();
    let noted = scene.operator.list().unwrap().into_iter().find(|found| found.id == key.id).unwrap();
    assert!(noted.used_ms.is_some());
}

#[tokio::test]
async fn a_key_that_was_made_a_moment_ago_counts_without_waiting_for_the_next_look() {
    let scene = Scene::new();
    scene.look();
    let (_, text) = scene.make("new", None);
    assert!(scene.identify(&text).await.is_ok());
    let (_, next) = scene.make("next", None);
    assert!(scene.identify(&next).await.is_ok(), "the keys were looked at less than 20 ms ago");
}

#[tokio::test]
async fn a_secret_that_was_replaced_is_as_good_as_none() {
    let scene = Scene::new();
    let (_, first) = scene.make("ci", None);
    scene.operator.rotate("ci", Duration::ZERO, unix_ms()).unwrap();
    scene.look();
    assert_eq!(scene.identify(&first).await.unwrap_err(), UNKNOWN, "its form and its id are right");
}

#[tokio::test]
async fn what_the_old_secret_got_ends_with_the_overlap() {
    let scene = Scene::new();
    let (key, _) = scene.make("ci", None);
    let rotated_ms = unix_ms() - 10_000;
    scene.operator.rotate("ci", Duration::from_secs(1), rotated_ms).unwrap();
    scene.look();
    let principal = key.id.principal();
    assert!(scene.callers.holder(&principal, rotated_ms / 1000 - 60).await.is_none());
    assert!(scene.callers.holder(&principal, rotated_ms / 1000 + 1).await.is_some());
}

#[tokio::test]
async fn a_revocation_counts_although_the_task_that_looks_is_held_up() {
    let scene = Scene::new();
    let (_, text) = scene.make("ci", None);
    scene.look();
    scene.operator.revoke("ci", unix_ms()).unwrap();
    let until = Instant::now() + 10 * FRESH;
    while scene.identify(&text).await.is_ok() {
        assert!(Instant::now() < until, "old knowledge decides");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(scene.identify(&text).await.unwrap_err(), REVOKED);
}
