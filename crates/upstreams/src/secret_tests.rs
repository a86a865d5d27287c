//! Credentials of a server in what it says beside results: errors of listings and starts, definitions, its hello.

use policy::Principal;
use serde_json::{Value, json};

use crate::oauth::{Granted, TokenStore};
use crate::played::{self, Changing};
use crate::{Dialect, FindQuery, ServerState, ToolHost, ToolName, Upstreams, Viewer};

const TOKEN: &str = "t0ken-of-the-owner";
const SECRET: &str = "s3cret-of-the-server";
/// So long that the credential is cut in two at the longest message.
const LONG: usize = 585;

fn owner() -> Principal {
    Principal::local()
}

/// All that the host tells about its servers and tools.
async fn told(host: &Upstreams) -> String {
    let owner = owner();
    let query = FindQuery {
        viewer: Viewer::of(&owner),
        words: "",
        servers: None,
        dialect: Dialect::Python,
        limit: 100,
    };
    let found = host.find(query).await;
    let described: Vec<Value> = match host.describe(&owner, "s", "echo").await {
        Ok(described) => vec![json!(described)],
        Err(error) => vec![json!(error.to_string())],
    };
    let stubs = host.stubs(&owner, "s", Dialect::TypeScript).await;
    format!("{} {described:?} {stubs:?} {}", json!(host.servers(Viewer::of(&owner))), json!(found))
}

async fn call(host: &Upstreams) -> Result<crate::ToolAnswer, crate::ToolError> {
    host.call(played::call(&owner(), ToolName::Spelled("echo"))).await
}

#[tokio::test]
async fn definitions_and_the_hello_of_a_server_are_shown_without_its_credentials() {
    let folder = harness::TestFolder::new();
    let mut tool = played::tool("echo");
    tool["description"] = format!("{} {SECRET}", "word ".repeat(56)).into();
    tool["inputSchema"] =
        json!({ "type": "object", "properties": { "a": { "type": "string", "default": SECRET } } });
    let host = played::host(&folder, &[SECRET], move |request| {
        let mut messages = played::ordinary(request, std::slice::from_ref(&tool));
        if request["method"] == "initialize" {
            messages[0]["result"]["instructions"] = format!("use {SECRET}").into();
            messages[0]["result"]["serverInfo"]["name"] = SECRET.into();
        }
        messages
    });
    assert!(call(&host).await.is_ok());
    let told = told(&host).await;
    assert!(told.contains("use [redacted]") && !told.contains("s3cret"), "{told}");
    let catalogue = std::fs::read_to_string(folder.path().join("tools/s.catalogue")).unwrap();
    assert!(!catalogue.contains("s3cret"), "{catalogue}");
    host.close().await;
}

#[tokio::test]
async fn errors_of_starts_and_listings_are_told_without_credentials() {
    for failing in ["initialize", "tools/list"] {
        let folder = harness::TestFolder::new();
        let host = played::host(&folder, &[SECRET], move |request| match request["method"] == failing {
            true => played::refusal(request, &format!("{}{SECRET}", "x".repeat(LONG - 80))),
            false => played::ordinary(request, &[played::tool("echo")]),
        });
        let error = call(&host).await.unwrap_err();
        assert!(error.message.contains("xxx") && !error.message.contains("s3c"), "{failing}: {error}");
        let ServerState::Failed { reason } = &host.servers(Viewer::of(&owner()))[0].state else {
            panic!("{failing}")
        };
        assert!(!reason.contains("s3c"), "{reason}");
    }
}

#[tokio::test]
async fn an_error_is_cut_after_its_credentials_are_taken_out() {
    let folder = harness::TestFolder::new();
    // The credential begins at each place near the bound.
    let places = std::sync::atomic::AtomicUsize::new(LONG - 60);
    let host = played::host(&folder, &[SECRET], move |request| match request["method"] == "tools/call" {
        true => {
            let place = places.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            played::refusal(request, &format!("{}{SECRET}", "x".repeat(place)))
        }
        false => played::ordinary(request, &[played::tool("echo")]),
    });
    for _ in 0..60 {
        let error = call(&host).await.unwrap_err();
        assert!(!error.message.contains("s3"), "{error}");
    }
    host.close().await;
}

#[tokio::test]
async fn the_error_of_another_listing_is_told_without_credentials() {
    let folder = harness::TestFolder::new();
    let tools = Changing::default();
    tools.set(&["echo"]);
    let listings = std::sync::atomic::AtomicUsize::new(0);
    let host = played::host(&folder, &[SECRET], move |request| {
        let is_listing = request["method"] == "tools/list";
        match is_listing && listings.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0 {
            true => played::refusal(request, SECRET),
            false => tools.play(request),
        }
    });
    assert!(call(&host).await.is_ok(), "the server tells of a change here");
    let error = call(&host).await.unwrap_err();
    assert!(error.message.contains("[redacted]") && !error.message.contains("s3cret"), "{error}");
    host.close().await;
}

fn granted(url: &str) -> Granted {
    Granted {
        url: url.to_owned(),
        resource: url.to_owned(),
        token_endpoint: url.to_owned(),
        client_id: "c".to_owned(),
        access_token: TOKEN.to_owned(),
        refresh_token: None,
        expires_s: None,
        scope: String::new(),
    }
}

#[tokio::test]
async fn a_start_with_a_login_fails_without_its_token_in_the_reason() {
    let folder = harness::TestFolder::new();
    let (host, url) =
        played::host_at_address(&folder, |request, token| played::refusal(request, &format!("bad {token}")))
            .await;
    TokenStore::new(folder.path()).save("s", &owner(), &granted(&url)).unwrap();
    let error = call(&host).await.unwrap_err();
    assert!(error.message.contains("bad [redacted]"), "{error}");
    let ServerState::Failed { reason } = &host.servers(Viewer::of(&owner()))[0].state else {
        panic!("it has not failed")
    };
    assert!(!reason.contains(TOKEN), "{reason}");
}

#[tokio::test]
async fn a_principal_sees_nothing_of_the_servers_of_another() {
    let folder = harness::TestFolder::new();
    let other = Principal::new("key:bob").unwrap();
    let (host, url) = played::host_at_address(&folder, |request, token| {
        let mut messages = played::ordinary(request, &[played::tool("echo")]);
        if request["method"] == "initialize" && token == TOKEN {
            messages[0]["result"]["instructions"] = "for the owner".into();
        }
        messages
    })
    .await;
    TokenStore::new(folder.path()).save("s", &owner(), &granted(&url)).unwrap();
    assert!(call(&host).await.is_ok());
    let of_owner = &host.servers(Viewer::of(&owner()))[0];
    assert_eq!(
        (of_owner.instructions.as_str(), of_owner.tools, &of_owner.state),
        ("for the owner", 1, &ServerState::Ready)
    );
    let of_other = &host.servers(Viewer::of(&other))[0];
    assert_eq!((of_other.instructions.as_str(), of_other.about.as_str(), of_other.tools), ("", "", 0));
    assert_eq!((of_other.is_listed, &of_other.state), (false, &ServerState::Idle));
    host.close().await;
}
