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
