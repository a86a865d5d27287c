//! The file tools over a real workspace.

use engine::Principal;
use engine::workspace::{Pace, Quota};
use rmcp::model::{CallToolResult, JsonObject};
use serde_json::{Value, json};

use super::*;
use crate::file_urls::FileUrlMaker;
use crate::test_workspaces::{SANDBOX, TestWorkspaces};
use crate::tools::list_files::list;
use crate::tools::read_file::read;
use crate::tools::write_file::write;

/// A PNG with valid structure; its pixels and checksums are invalid.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0sum.\0\0\0\x01IDATxsum.\0\0\0\0IENDsum.";
/// Size of the PNG's header.
const PNG_HEADER_BYTES: usize = 33;

/// URLs without a signature.
struct PlainUrls;

impl FileUrlMaker for PlainUrls {
    fn make(&self, _: FileAction, _: &Principal, _: &str, path: &FilePath) -> Option<FileUrl> {
        let url = format!("http://localhost:8808/files/token/{}", path.name());
        Some(FileUrl { url, expires_ms: 1000 })
    }
}

fn sandbox() -> SandboxId {
    SandboxId::parse(SANDBOX).unwrap()
}

struct Bench {
    workspaces: TestWorkspaces,
    caller: Caller,
    file_urls: Option<FileUrls>,
}

impl Bench {
    fn new() -> Self {
        Self { workspaces: TestWorkspaces::new(), caller: Caller::local(), file_urls: None }
    }

    fn over_http() -> Self {
        Self { file_urls: Some(FileUrls::new(PlainUrls)), ..Self::new() }
    }

    fn caller(&self) -> FileAccess<'_> {
        FileAccess { workspaces: &self.workspaces, caller: &self.caller, file_urls: self.file_urls.as_ref() }
    }

    async fn call(&self, tool: &str, given: Value) -> (Value, CallToolResult) {
        let Value::Object(mut given) = given else { panic!("an object") };
        let given: JsonObject = {
            given.entry("sandbox_id").or_insert(json!(SANDBOX));
            given
        };
        let caller = self.caller();
        let result = match tool {
            "read_file" => read(&caller, given).await,
            "write_file" => write(&caller, given).await,
            _ => list(&caller, given).await,
        };
        (result.structured_content.clone().unwrap(), result)
    }

    async fn code(&self, tool: &str, given: Value) -> String {
        let (fields, result) = self.call(tool, given).await;
        assert_eq!(result.is_error, Some(true), "{fields}");
        fields["error"]["code"].as_str().unwrap().to_owned()
    }
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

#[tokio::test]
async fn what_is_written_is_read_back() {
    let bench = Bench::new();
    let (written, _) = bench.call("write_file", json!({"path": "a/b.txt", "text": "grüße\n"})).await;
    assert_eq!(written["size_bytes"], 8);
    assert_eq!(written["uri"], format!("palisade://sandboxes/{SANDBOX}/files/a/b.txt"));
    bench.call("write_file", json!({"path": "/workspace/a/b.txt", "base64": "IQ==", "append": true})).await;
    let (read, result) = bench.call("read_file", json!({"path": "a/b.txt"})).await;
    assert_eq!((&read["text"], &read["mime_type"]), (&json!("grüße\n!"), &json!("text/plain")));
    assert_eq!((text(&result), read.get("next_offset")), ("grüße\n!", None));
}

#[tokio::test]
async fn a_long_file_is_read_in_parts_that_end_with_whole_characters() {
    let bench = Bench::new();
    bench.workspaces.put("long", "€".repeat(10_000));
    let (first, result) = bench.call("read_file", json!({"path": "long"})).await;
    assert_eq!((&first["next_offset"], &first["size_bytes"]), (&json!(19_998), &json!(30_000)));
    assert!(text(&result).ends_with("[bytes 0 to 19998 of 30000; offset 19998 reads on]"));
    let (rest, _) = bench.call("read_file", json!({"path": "long", "offset": 19_998})).await;
    assert_eq!((rest["text"].as_str().unwrap().len(), rest.get("next_offset")), (10_002, None));
    let (tiny, _) = bench.call("read_file", json!({"path": "long", "limit": 1})).await;
    assert_eq!(tiny["next_offset"], 1, "a reader always gets on");
}

#[tokio::test]
async fn bytes_are_base64_and_pictures_are_shown() {
    let bench = Bench::new();
    bench.workspaces.put("blob", b"\xff\xfe");
    bench.workspaces.put("plot.png", PNG);
    bench.workspaces.put("fake.png", "<html>");
    let (blob, _) = bench.call("read_file", json!({"path": "blob"})).await;
    assert_eq!(blob["base64"], "//4=");
    let (shown, _) = bench.call("read_file", json!({"path": "blob", "encoding": "text"})).await;
    assert_eq!(shown["text"], "\\xff\\xfe");
    let (picture, result) = bench.call("read_file", json!({"path": "plot.png"})).await;
    let image = serde_json::to_value(&result.content[1]).unwrap();
    assert_eq!((&image["type"], &image["mimeType"]), (&json!("image"), &json!("image/png")));
    assert_eq!(image["data"], encoded(PNG));
    assert!(picture.get("base64").is_none() && picture.get("text").is_none());
    let (asked, result) = bench.call("read_file", json!({"path": "plot.png", "encoding": "base64"})).await;
    assert_eq!((asked["base64"].as_str(), result.content.len()), (Some(encoded(PNG).as_str()), 1));
    bench.workspaces.put("header.png", &PNG[..PNG_HEADER_BYTES]);
    let (header, result) = bench.call("read_file", json!({"path": "header.png"})).await;
    assert_eq!((result.content.len(), header["mime_type"].as_str()), (1, Some("image/png")));
    assert_eq!(header["base64"].as_str(), Some(encoded(&PNG[..PNG_HEADER_BYTES]).as_str()));
    let (_, result) = bench.call("read_file", json!({"path": "fake.png"})).await;
    assert_eq!(text(&result), "<html>");
}

#[tokio::test]
async fn a_list_shows_what_is_there() {
    let bench = Bench::new();
    bench.workspaces.put("a/b.txt", "12345");
    bench.workspaces.put("evil\u{1b}[2J\nname", "");
    bench.workspaces.put(".cache/x", "");
    let (flat, result) = bench.call("list_files", json!({})).await;
    assert_eq!(text(&result), ".cache/\na/\nevil\u{fffd}[2J\u{fffd}name  0 bytes");
    assert_eq!((flat["entries"].as_array().unwrap().len(), &flat["complete"]), (3, &json!(true)));
    let (deep, result) = bench.call("list_files", json!({"recursive": true})).await;
    assert!(text(&result).starts_with(".cache/  (not opened)\na/\na/b.txt  5 bytes\n"), "{}", text(&result));
    assert_eq!(deep["entries"][0]["unopened"], true);
    let (below, _) = bench.call("list_files", json!({"path": "/workspace/a"})).await;
    assert_eq!(
        (&below["entries"][0]["path"], &below["entries"][0]["size_bytes"]),
        (&json!("a/b.txt"), &json!(5))
    );
}

#[tokio::test]
async fn refusals_have_codes() {
    let bench =
        Bench { workspaces: TestWorkspaces::with(Quota { bytes: 1 << 20, inodes: 10 }), ..Bench::new() };
    bench.workspaces.put("folder/file", "x");
    for (tool, given, code) in [
        ("read_file", json!({"path": "gone"}), "not_found"),
        ("read_file", json!({"path": "folder"}), "is_directory"),
        ("read_file", json!({"path": "../x"}), "bad_path"),
        ("read_file", json!({"path": "/etc/passwd"}), "bad_path"),
        ("read_file", json!({}), "bad_arguments"),
        ("read_file", json!({"path": "x", "encoding": "hex"}), "bad_arguments"),
        ("read_file", json!({"path": "folder/file", "sandbox_id": "sbx_other"}), "unknown_sandbox"),
        ("read_file", json!({"path": "folder/file", "sandbox_id": "../x"}), "unknown_sandbox"),
        ("write_file", json!({"path": "folder", "text": ""}), "is_directory"),
        ("write_file", json!({"path": "x", "text": "", "base64": ""}), "bad_arguments"),
        ("write_file", json!({"path": "x", "base64": "!"}), "bad_arguments"),
        ("write_file", json!({"path": "x"}), "bad_arguments"),
        ("write_file", json!({"path": "x", "append": true}), "bad_arguments"),
        ("write_file", json!({"path": "x", "text": "x".repeat(engine::INPUT_BYTES_MAX + 1)}), "too_large"),
        ("write_file", json!({"path": "x", "text": "x".repeat(2 << 20)}), "disk_full"),
        ("list_files", json!({"path": "gone"}), "not_found"),
        ("list_files", json!({"path": "a/../b"}), "bad_path"),
        ("list_files", json!({"sandbox_id": "sbx_other"}), "unknown_sandbox"),
    ] {
        assert_eq!(bench.code(tool, given.clone()).await, code, "{tool} {given:.100}");
    }
    bench.workspaces.close();
    assert_eq!(bench.code("read_file", json!({"path": "folder/file"})).await, "unknown_sandbox");
}

#[tokio::test]
async fn somebody_elses_sandbox_is_one_that_never_was() {
    let bench = Bench { caller: Caller::owner(Principal::anonymous()), ..Bench::new() };
    bench.workspaces.put("file", "x");
    let (theirs, _) = bench.call("read_file", json!({"path": "file"})).await;
    let (nobodys, _) = bench.call("read_file", json!({"path": "file", "sandbox_id": "sbx_other"})).await;
    assert_eq!(theirs, nobodys);
}

#[tokio::test]
async fn large_files_go_by_url_where_there_are_any() {
    let bench = Bench::over_http();
    bench.workspaces.put("large", vec![b'x'; 50_000]);
    let (read, _) = bench.call("read_file", json!({"path": "large"})).await;
    assert!(read["download_url"].as_str().unwrap().starts_with("http://localhost:8808/files/"));
    let (small, _) = bench.call("read_file", json!({"path": "large", "offset": 49_999})).await;
    assert!(small.get("download_url").is_none());
    let (put, result) = bench.call("write_file", json!({"path": "in/big.bin"})).await;
    let url = put["upload_url"].as_str().unwrap();
    assert!(url.starts_with("http://localhost:8808/files/") && url.ends_with("/big.bin"));
    assert_eq!(put["size_bytes_max"], TRANSFER_BYTES_MAX);
    assert!(text(&result).contains(url) && put["expires_at"].is_string());
}

#[tokio::test]
async fn artifacts_have_addresses_digests_and_urls() {
    let bench = Bench::over_http();
    let workspace = bench.caller().workspace(&sandbox()).await.unwrap();
    let before = workspace.snapshot(Pace::Aside).await.unwrap();
    bench.workspaces.put("out/a b.csv", "1,2\n");
    let changes = before.changes(Pace::Aside).await.unwrap();
    let (fields, blocks) = artifacts(&bench.caller(), &sandbox(), &changes.files);
    let fields = json!(fields);
    assert_eq!(fields[0]["uri"], format!("palisade://sandboxes/{SANDBOX}/files/out/a%20b.csv"));
    assert_eq!((&fields[0]["mime_type"], &fields[0]["size_bytes"]), (&json!("text/csv"), &json!(4)));
    assert_eq!(fields[0]["sha256"].as_str().unwrap().len(), 64);
    assert!(fields[0]["download_url"].is_string());
    let block = serde_json::to_value(&blocks[0]).unwrap();
    assert_eq!((&block["type"], &block["uri"]), (&json!("resource_link"), &fields[0]["uri"]));
}

#[tokio::test]
async fn small_pictures_among_the_artifacts_are_shown() {
    let bench = Bench::new();
    let workspace = bench.caller().workspace(&sandbox()).await.unwrap();
    let before = workspace.snapshot(Pace::Aside).await.unwrap();
    for number in 0..PICTURES_MAX + 1 {
        bench.workspaces.put(&format!("plot{number}.png"), PNG);
    }
    bench.workspaces.put("fake.png", "text");
    bench.workspaces.put("a-header.png", &PNG[..PNG_HEADER_BYTES]);
    bench.workspaces.put("a-large.png", [PNG, &vec![0; IMAGE_BYTES_MAX]].concat());
    let changes = before.changes(Pace::Aside).await.unwrap();
    let blocks = pictures(&*workspace, &changes.files).await;
    assert_eq!(blocks.len(), PICTURES_MAX);
    assert_eq!(serde_json::to_value(&blocks[0]).unwrap()["data"], encoded(PNG));
}

#[tokio::test]
async fn a_context_in_the_sandbox_id_changes_nothing_about_files() {
    let bench = Bench::over_http();
    let with = |context: &str| json!(format!("{SANDBOX}#{context}"));
    let written =
        bench.call("write_file", json!({"path": "a", "text": "one", "sandbox_id": with("etl")})).await.0;
    assert_eq!(written["uri"], format!("palisade://sandboxes/{SANDBOX}/files/a"), "{written}");
    for context in ["etl", "never-used", "default"] {
        let (read, _) = bench.call("read_file", json!({"path": "a", "sandbox_id": with(context)})).await;
        assert_eq!(read["text"], "one", "{read}");
        assert_eq!(read["uri"], written["uri"], "{read}");
        let (listed, _) = bench.call("list_files", json!({"sandbox_id": with(context)})).await;
        assert_eq!(listed["entries"][0]["path"], "a", "{listed}");
    }
    for bad in ["", "a b", "../a", "a#b"] {
        let given = json!({"path": "a", "sandbox_id": with(bad)});
        assert_eq!(bench.code("read_file", given).await, "bad_context", "{bad:?}");
    }
    let other = format!("sbx_{}#etl", "0".repeat(32));
    assert_eq!(bench.code("read_file", json!({"path": "a", "sandbox_id": other})).await, "unknown_sandbox");
}
