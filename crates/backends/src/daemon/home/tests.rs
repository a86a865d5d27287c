//! The end of a server's containers, with engines that answer wrongly or not at all.

use serde_json::json;

use super::super::api::LABEL;
use super::super::fake::{FakeEngine, block_on};
use super::*;

/// Lists what two servers have, whatever it was asked for.
fn of_two_servers(method: &str, path: &str) -> Option<(u16, String)> {
    let of = |id: &str, server: &str| json!({ "Id": id, "Labels": { LABEL: server } });
    match method {
        "DELETE" => Some((200, "{}".to_owned())),
        _ if path.contains("/images/") => {
            Some((200, json!([of("sha256:a2", "palisade-1"), of("sha256:b2", "palisade-2")]).to_string()))
        }
        _ => Some((200, json!([of("a1", "palisade-1"), of("b1", "palisade-2")]).to_string())),
    }
}

#[test]
fn an_engine_that_ignores_filters_loses_nothing_of_others() {
    let engine = FakeEngine::start("others", of_two_servers);
    assert!(!block_on(remove_labelled(&engine.client(), "palisade-1")).unwrap());
    let removed = engine.calls("DELETE");
    assert!(removed[0].starts_with("/v1.40/containers/a1?"), "{removed:?}");
    assert!(removed[1].starts_with("/v1.40/images/sha256:a2?"), "{removed:?}");
    assert_eq!(removed.len(), 2, "{removed:?}");
}

/// Has nothing.
fn with_nothing(method: &str, _: &str) -> Option<(u16, String)> {
    Some((200, if method == "GET" { "[]" } else { "{}" }.to_owned()))
}

#[test]
fn a_directory_that_stays_does_not_keep_the_containers() {
    let engine = FakeEngine::start("discard", with_nothing);
    let folder = engine.folder().join("palisade-fake-discard");
    // As if a workspace were still mounted there, which must not be removed with its directory.
    fs::create_dir_all(folder.join("1").join(FILES).join("kept")).unwrap();
    fs::create_dir_all(folder.join("2")).unwrap();
    assert!(block_on(clear(&engine.client(), Engine::Docker, &folder, 1)).is_err());
    let asked = engine.calls("GET");
    assert!(asked.iter().any(|path| path.contains("/containers/json")), "{asked:?}");
    assert!(folder.join("1").join(FILES).join("kept").exists());
    assert!(!folder.join("2").exists());
    fs::remove_dir(folder.join("1").join(FILES).join("kept")).unwrap();
    block_on(clear(&engine.client(), Engine::Docker, &folder, 1)).unwrap();
    assert!(!folder.exists());
}

#[test]
fn a_socket_without_an_engine_does_not_delay_the_end() {
    let folder = std::env::temp_dir().join(format!("palisade-fake-stale-{}", std::process::id()));
    fs::create_dir_all(folder.join("1")).unwrap();
    let socket = folder.join("socket");
    // A killed engine leaves the file.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let began = std::time::Instant::now();
    let cleared = block_on(clear(&Client::new(&socket), Engine::Docker, &folder, LATECOMER_ROUNDS));
    assert!(began.elapsed() < CLEAR_PATIENCE / 2, "{:?}", began.elapsed());
    assert_eq!(cleared.unwrap_err().to_string(), format!("no engine listens at {}", socket.display()));
    // The next server asks again.
    assert!(folder.exists() && !folder.join("1").exists());
    fs::remove_dir_all(folder).unwrap();
}
