//! What the broker answers to the go command when a proxy answers in unusual ways.

use super::*;
use crate::test_mirror::{Body, serve, session};

const OLD: &str = "2020-01-01T00:00:00Z";

/// The document of a version that is old enough.
fn info(version: &str) -> Vec<u8> {
    format!(r#"{{"Version": "{version}", "Time": "{OLD}"}}"#).into_bytes()
}

async fn document(session: &Arc<Session>, path: &str) -> Option<String> {
    match answer(session, path).await {
        Ok(Answer::Document(bytes)) => Some(String::from_utf8(bytes).unwrap()),
        _ => None,
    }
}

#[tokio::test]
async fn a_version_without_a_go_mod_is_found_without_its_suffix() {
    let mirror = serve(|path| -> Body {
        let version = match path {
            "/mod.example/x/@v/v2.0.0.info" => "v2.0.0+incompatible",
            "/mod.example/x/@v/v2.1.0.info" => "v2.2.0+incompatible",
            "/mod.example/x/@v/v2.3.0+incompatible.info" => "v2.3.0",
            _ => return None,
        };
        Some(info(version))
    });
    let folder = harness::TestFolder::new();
    let session = session(&folder, GO, &mirror, |_| {});
    let told = document(&session, "/mod.example/x/@v/v2.0.0.info").await.unwrap();
    assert!(told.contains("v2.0.0+incompatible"), "{told}");
    for other in ["v2.1.0", "v2.3.0+incompatible"] {
        assert_eq!(document(&session, &format!("/mod.example/x/@v/{other}.info")).await, None, "{other}");
    }
}
