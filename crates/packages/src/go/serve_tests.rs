//! What the broker answers to the go command when a proxy answers in unusual ways.

use std::io::{Read, Seek};
use std::sync::Mutex;

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
            _ => return Err(404),
        };
        Ok(info(version))
    });
    let folder = harness::TestFolder::new();
    let session = session(&folder, GO, &mirror, |_| {});
    let told = document(&session, "/mod.example/x/@v/v2.0.0.info").await.unwrap();
    assert!(told.contains("v2.0.0+incompatible"), "{told}");
    for other in ["v2.1.0", "v2.3.0+incompatible"] {
        assert_eq!(document(&session, &format!("/mod.example/x/@v/{other}.info")).await, None, "{other}");
    }
}

/// A mirror with one module, whose other answers are told by the test.
struct Changing {
    address: String,
    told: Arc<Mutex<Body>>,
}

impl Changing {
    fn new() -> Self {
        let told = Arc::new(Mutex::new(Err(404)));
        let now = Arc::clone(&told);
        let address = serve(move |path| match path {
            "/mod.example/x/@v/v1.0.0.info" => Ok(info("v1.0.0")),
            _ => now.lock().unwrap().clone(),
        });
        Self { address, told }
    }

    fn tell(&self, answer: Result<&str, u16>) {
        *self.told.lock().unwrap() = answer.map(|text| text.as_bytes().to_vec());
    }

    fn session(&self, folder: &harness::TestFolder, database: &str) -> Arc<Session> {
        session(folder, GO, &self.address, |config| config.go_sumdb = database.to_owned())
    }
}

async fn archive(session: &Arc<Session>) -> Option<String> {
    let Ok(Answer::Archive(mut file)) = answer(session, "/mod.example/x/@v/v1.0.0.zip").await else {
        return None;
    };
    let mut text = String::new();
    // Comparing its digest may have left it at its end.
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    Some(text)
}

#[tokio::test]
async fn documents_and_archives_of_a_failed_installation_are_asked_for_again() {
    let (folder, mirror) = (harness::TestFolder::new(), Changing::new());
    let start = || mirror.session(&folder, "sums.example+1+key");
    let all = async |session: &Arc<Session>| {
        let lookup = document(session, "/sumdb/sums.example/lookup/mod.example/x@v1.0.0").await;
        (document(session, "/mod.example/x/@v/v1.0.0.mod").await, lookup, archive(session).await)
    };
    let each = |text: &str| (Some(text.to_owned()), Some(text.to_owned()), Some(text.to_owned()));
    mirror.tell(Ok("wrong"));
    let failed = start();
    assert_eq!(all(&failed).await, each("wrong"));
    mirror.tell(Ok("right"));
    assert_eq!(all(&start()).await, each("wrong"), "they are asked for once");
    failed.doubt_finals();
    mirror.tell(Err(503));
    assert_eq!(all(&start()).await, each("wrong"), "they serve while the mirror is down");
    mirror.tell(Ok("right"));
    assert_eq!(all(&start()).await, each("right"));
    mirror.tell(Err(503));
    assert_eq!(all(&start()).await, each("right"), "they are in no doubt any more");
}

#[tokio::test]
async fn without_a_database_the_first_archive_stays_after_a_failure() {
    let (folder, mirror) = (harness::TestFolder::new(), Changing::new());
    mirror.tell(Ok("first"));
    let failed = mirror.session(&folder, NO_DATABASE);
    assert_eq!(archive(&failed).await.as_deref(), Some("first"));
    failed.doubt_finals();
    mirror.tell(Ok("another"));
    assert_eq!(archive(&mirror.session(&folder, NO_DATABASE)).await.as_deref(), Some("first"));
}

#[tokio::test]
async fn an_archive_that_was_packed_anew_is_taken_if_a_database_decides() {
    let (folder, mirror) = (harness::TestFolder::new(), Changing::new());
    mirror.tell(Ok("packed"));
    assert!(archive(&mirror.session(&folder, NO_DATABASE)).await.is_some());
    // As if the store had become too large.
    std::fs::remove_dir_all(folder.path().join("blobs")).unwrap();
    mirror.tell(Ok("packed anew"));
    let session = mirror.session(&folder, NO_DATABASE);
    assert_eq!(archive(&session).await, None);
    let (name, error) = ("mod.example/x".to_owned(), FetchError::Mismatch);
    assert_eq!(session.notes(), [Note::Failed { name, error }]);
    let compared = || mirror.session(&folder, "sum.golang.org");
    assert_eq!(archive(&compared()).await.as_deref(), Some("packed anew"));
    mirror.tell(Err(404));
    assert_eq!(archive(&compared()).await.as_deref(), Some("packed anew"), "it is pinned now");
}

#[tokio::test]
async fn a_document_of_a_version_that_cannot_be_read_is_not_kept() {
    let (folder, mirror) = (harness::TestFolder::new(), Changing::new());
    let session = mirror.session(&folder, NO_DATABASE);
    let path = "/mod.example/x/@v/v1.1.0.info";
    for wrong in ["<html>", r#"{"Version": "v9.0.0"}"#] {
        mirror.tell(Ok(wrong));
        assert_eq!(document(&session, path).await, None, "{wrong}");
    }
    let right = String::from_utf8(info("v1.1.0")).unwrap();
    mirror.tell(Ok(&right));
    assert_eq!(document(&session, path).await, Some(right));
}
