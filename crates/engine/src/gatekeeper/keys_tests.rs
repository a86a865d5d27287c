//! Tests of the keys' life: names, ids, rotation, what others see, and who may look.

use std::os::unix::fs::PermissionsExt;

use harness::TestFolder;
use policy::Scope;

use super::super::key_text::ShownKey;
use super::*;

const NOW: u64 = 1_800_000_000_000;

fn named(name: &str) -> NewKey {
    let scopes = Scopes::of(&[Scope::Sandbox]);
    NewKey { name: name.to_owned(), scopes, policy: Some("team".to_owned()), expires_ms: None }
}

fn private() -> TestFolder {
    let folder = TestFolder::new();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

fn digest(text: &KeyText) -> KeyDigest {
    ShownKey::parse(text.reveal().as_bytes()).unwrap().digest
}

#[test]
fn a_key_is_kept_as_a_digest_and_names_its_holder() {
    let folder = private();
    let keys = Keys::new(folder.path());
    assert!(keys.list().unwrap().is_empty());
    assert!(!folder.path().join("gate").exists(), "looking makes nothing");
    let (key, text) = keys.create(&named("ci"), NOW).unwrap();
    assert_eq!(key.digest, digest(&text));
    let caller = key.caller();
    assert_eq!((&*caller.label, caller.policy.as_deref()), ("key:ci", Some("team")));
    assert_eq!(caller.principal.as_str(), format!("key:{}", key.id));
    assert!(caller.may(Scope::Run) && !caller.may(Scope::Admin));
    assert_eq!(Keys::new(folder.path()).list().unwrap(), [key]);
    let secret = text.reveal().split('_').nth(2).unwrap().to_owned();
    for entry in std::fs::read_dir(folder.path().join("gate")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(
            !bytes.windows(64).any(|part| part == secret.as_bytes()),
            "{} has the secret",
            path.display()
        );
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{}", path.display());
    }
    assert_eq!(std::fs::metadata(folder.path().join("gate")).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_name_is_unique_among_keys_in_force_and_a_reused_one_is_a_new_id() {
    let folder = private();
    let keys = Keys::new(folder.path());
    let (first, _) = keys.create(&named("ci"), NOW).unwrap();
    assert!(matches!(keys.create(&named("ci"), NOW), Err(KeyError::NameTaken(_))));
    assert_eq!(keys.revoke("ci", NOW + 1).unwrap().state(NOW + 1), KeyState::Revoked);
    assert_eq!(keys.revoke(first.id.as_str(), NOW + 9).unwrap().revoked_ms, Some(NOW + 1), "for good");
    let (second, _) = keys.create(&named("ci"), NOW + 2).unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(keys.revoke("ci", NOW + 3).unwrap().id, second.id, "the one in force");

    let brief = NewKey { expires_ms: Some(NOW + 10), ..named("brief") };
    let (brief, _) = keys.create(&brief, NOW).unwrap();
    assert!(matches!(keys.create(&named("brief"), NOW + 9), Err(KeyError::NameTaken(_))));
    keys.create(&named("brief"), NOW + 10).unwrap();
    let old = keys.list().unwrap().into_iter().find(|key| key.id == brief.id).unwrap();
    assert_eq!(old.state(NOW), KeyState::Revoked, "it does not come back with an earlier clock");
}

#[test]
fn a_rotated_key_has_another_secret_and_the_old_one_counts_as_long_as_it_was_said() {
    let folder = private();
    let keys = Keys::new(folder.path());
    let (key, first) = keys.create(&named("ci"), NOW).unwrap();
    let (rotated, second) = keys.rotate("ci", Duration::from_secs(600), NOW + 5).unwrap();
    assert_eq!((&rotated.id, rotated.rotated_ms), (&key.id, Some(NOW + 5)));
    assert_eq!(rotated.digest, digest(&second));
    assert_eq!(rotated.previous, Some((digest(&first), NOW + 600_005)));
    let (again, third) = keys.rotate(key.id.as_str(), Duration::ZERO, NOW + 6).unwrap();
    assert_eq!((again.digest, again.previous), (digest(&third), None));
    keys.revoke("ci", NOW + 7).unwrap();
    let over = keys.rotate("ci", Duration::ZERO, NOW + 8).unwrap_err();
    assert!(over.to_string().contains("revoked"), "{over}");
}

#[test]
fn what_cannot_be_is_refused_with_a_remedy() {
    let folder = private();
    let keys = Keys::new(folder.path());
    for bad in ["", "owner", "a b", "a/b", "ключ", "a\n", "0123456789abcdef", &"x".repeat(65)] {
        assert!(matches!(keys.create(&named(bad), NOW), Err(KeyError::BadName(_))), "{bad:?}");
    }
    let past = NewKey { expires_ms: Some(NOW), ..named("late") };
    assert!(matches!(keys.create(&past, NOW), Err(KeyError::PastExpiry)));
    for unknown in ["nobody", "0123456789abcdef"] {
        assert!(matches!(keys.revoke(unknown, NOW), Err(KeyError::Unknown(_))));
        assert!(matches!(keys.rotate(unknown, Duration::ZERO, NOW), Err(KeyError::Unknown(_))));
    }
    assert!(!folder.path().join("gate").exists(), "nothing was written");
}

#[test]
fn another_process_sees_a_change_and_nothing_else_costs_a_read() {
    let folder = private();
    let (own, other) = (Keys::new(folder.path()), Keys::new(folder.path()));
    let mut seen = None;
    assert_eq!(own.read_if_changed(&mut seen).unwrap(), Some(Vec::new()));
    assert_eq!(own.read_if_changed(&mut seen).unwrap(), None);
    let (key, _) = other.create(&named("ci"), NOW).unwrap();
    assert_eq!(own.read_if_changed(&mut seen).unwrap(), Some(vec![key.clone()]));
    assert_eq!(own.read_if_changed(&mut seen).unwrap(), None);
    own.note_used(&[(key.id.clone(), NOW + 9)]).unwrap();
    assert_eq!(own.read_if_changed(&mut seen).unwrap(), None, "its own change");
    let revoked = other.revoke("ci", NOW + 10).unwrap();
    assert_eq!(revoked.used_ms, Some(NOW + 9));
    assert_eq!(own.read_if_changed(&mut seen).unwrap(), Some(vec![revoked]));
    for file in ["keys.db", "keys.db-wal", "keys.db-shm"] {
        std::fs::remove_file(folder.path().join("gate").join(file)).ok();
    }
    assert_eq!(own.read_if_changed(&mut seen).unwrap(), Some(Vec::new()), "the file is gone");
    Keys::new(folder.path()).create(&named("new"), NOW).unwrap();
    assert_eq!(own.read_if_changed(&mut seen).unwrap().unwrap()[0].name, "new", "another file");
}

#[test]
fn folders_and_files_that_others_can_use_are_refused() {
    let folder = private();
    let keys = Keys::new(folder.path());
    keys.create(&named("ci"), NOW).unwrap();
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let (gate, file) = (folder.path().join("gate"), folder.path().join("gate/keys.db"));
    for (path, bad, good) in
        [(gate.as_path(), 0o770, 0o700), (folder.path(), 0o777, 0o700), (file.as_path(), 0o640, 0o600)]
    {
        set(path, bad);
        let error = keys.list().unwrap_err().to_string();
        assert!(error.contains("chmod"), "{error}");
        assert!(keys.create(&named("evil"), NOW).is_err() && keys.revoke("ci", NOW).is_err());
        set(path, good);
    }
    assert_eq!(keys.list().unwrap().len(), 1);
}

#[test]
fn a_newer_layout_stops_this_program() {
    let folder = private();
    let keys = Keys::new(folder.path());
    keys.create(&named("ci"), NOW).unwrap();
    let other = Connection::open(folder.path().join("gate/keys.db")).unwrap();
    other.pragma_update(None, "user_version", LAYOUT + 1).unwrap();
    let error = keys.revoke("ci", NOW).unwrap_err();
    assert!(matches!(error, KeyError::Store(StoreError::TooNew { .. })), "{error}");
    assert!(keys.list().is_err());
}

#[test]
fn a_key_is_over_from_the_moment_of_its_expiry() {
    let folder = private();
    let keys = Keys::new(folder.path());
    let (key, _) = keys.create(&NewKey { expires_ms: Some(NOW + 1000), ..named("ci") }, NOW).unwrap();
    assert_eq!(key.state(NOW + 999), KeyState::InForce);
    assert_eq!(key.state(NOW + 1000), KeyState::Expired);
    let rotated = keys.rotate("ci", Duration::ZERO, NOW + 1000);
    assert!(matches!(rotated, Err(KeyError::Over { state: KeyState::Expired, .. })), "{rotated:?}");
}
