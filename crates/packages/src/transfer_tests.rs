//! Archives for import that are hostile: nothing of them is placed outside the store, or under a digest that it does not have.

use sha2::{Digest, Sha256};

use super::*;
use crate::files::hex;
use crate::layers::{Form, Harvested};

/// An entry of an archive: its name, as it is, its kind and its content or target.
type Entry<'a> = (&'a str, EntryType, &'a str);

/// The library refuses to write such names, so the header is filled by hand.
fn archive(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let is_link = matches!(*kind, EntryType::Symlink | EntryType::Link);
        let content = if is_link { "" } else { *content };
        let mut header = header(*kind, content.len() as u64, 0o644);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..name.len()].copy_from_slice(name.as_bytes());
        if is_link {
            let target = entries.iter().find(|entry| entry.0 == *name).unwrap().2;
            gnu.linkname[..target.len()].copy_from_slice(target.as_bytes());
        }
        header.set_cksum();
        builder.append(&header, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Imports into a new state directory. Returns the error, and the files that are there afterwards.
fn imported(entries: &[Entry<'_>]) -> (Option<String>, Vec<PathBuf>) {
    let folder = harness::TestFolder::new();
    let state = folder.path().join("above/state");
    fs::create_dir_all(&state).unwrap();
    let error = import(&state, archive(entries).as_slice()).err().map(|error| error.to_string());
    (error, files_beneath(folder.path()).unwrap())
}

#[track_caller]
fn refused(entries: &[Entry<'_>], reason: &str) {
    let (error, files) = imported(entries);
    assert!(error.as_ref().is_some_and(|error| error.contains(reason)), "{entries:?}: {error:?}");
    assert!(files.iter().all(|path| !path.ends_with("evil")), "{entries:?}: {files:?}");
}

const FILE: EntryType = EntryType::Regular;
const DIGEST: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn manifest_of(digest: &str) -> String {
    format!(
        r#"{{"format":1,"digest":"{digest}","ecosystem":"pypi","interpreter":"x","made_ms":0,"bytes":0,"entries":0,"packages":[],"modules":[]}}"#
    )
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in [
        "../evil",
        "/evil",
        "layers/../../evil",
        "index/pypi/../../../evil.doc",
        "index/pypi/evil",
        "index/pypi/mirror/sub/evil.doc",
        "index/evil.doc",
        "blobs/../evil",
        "blobs/sha256/aa/../../../../evil",
        "sets/../evil.json",
        "evil",
        "other/evil",
    ] {
        refused(&[(name, FILE, "{}")], "");
    }
}

#[test]
fn a_blob_is_kept_only_under_the_digest_of_its_content() {
    let digest = hex(&Sha256::digest("content"));
    let name = |digest: &str| format!("blobs/sha256/{}/{digest}", &digest[..2]);
    let (error, files) = imported(&[(&name(&digest), FILE, "content")]);
    assert_eq!((error, files.iter().any(|path| path.ends_with(&digest))), (None, true), "{files:?}");
    let (error, files) = imported(&[(&name(&digest), FILE, "changed")]);
    assert!(error.is_some_and(|error| error.contains("digest")) && files.is_empty(), "{files:?}");
}

#[test]
fn a_layer_is_kept_only_under_the_digest_of_its_files() {
    let place = format!("layers/{DIGEST}/manifest.json");
    let file = format!("layers/{DIGEST}/files/module.py");
    let (manifest, other) = (manifest_of(DIGEST), manifest_of(&"b".repeat(64)));
    refused(&[(&place, FILE, &manifest), (&file, FILE, "x")], "a layer differs from its digest");
    refused(&[(&place, FILE, &other), (&file, FILE, "x")], "a layer differs from its digest");
    refused(&[(&file, FILE, "x")], "a layer without a manifest");
    refused(&[("layers/evil/manifest.json", FILE, &manifest_of("evil"))], "a layer differs from its digest");
}

#[test]
fn links_and_devices_of_an_archive_are_refused() {
    let place = format!("layers/{DIGEST}/manifest.json");
    let file = format!("layers/{DIGEST}/files/link");
    let manifest = manifest_of(DIGEST);
    let with = |kind, target: &'static str, reason| {
        refused(&[(&place, FILE, &manifest), (&file, kind, target)], reason);
    };
    with(EntryType::Symlink, "/etc/passwd", "leads out");
    with(EntryType::Symlink, "../../../evil", "leads out");
    with(EntryType::Link, "/etc/passwd", "a pipe, a socket or a device");
    with(EntryType::Char, "", "a pipe, a socket or a device");
    with(EntryType::Fifo, "", "a pipe, a socket or a device");
    for place in ["index/pypi/mirror/x.doc", "sets/x.json"] {
        refused(&[(place, EntryType::Symlink, "/etc/passwd")], "something else than files");
    }
}

/// Each of these links stays in the tree by its names. Together they lead out of it.
#[test]
fn nothing_of_an_archive_is_placed_through_links() {
    let place = format!("layers/{DIGEST}/manifest.json");
    let manifest = manifest_of(DIGEST);
    let inside = |path: &str| format!("layers/{DIGEST}/files/{path}");
    let directories = ["top", "p", "p/q"].map(inside);
    let (first, second, evil) = (inside("p/q/r"), inside("p/q/r/l"), inside("p/q/r/l/evil"));
    let mut entries: Vec<Entry<'_>> = vec![(&place, FILE, &manifest)];
    entries.extend(directories.iter().map(|path| (path.as_str(), EntryType::Directory, "")));
    entries.push((&first, EntryType::Symlink, "../../top"));
    entries.push((&second, EntryType::Symlink, "../../../x"));
    entries.push((&evil, FILE, "x"));
    refused(&entries, "not in a directory of the package");
}

/// The resolver works for every caller, so an archive does not choose it.
#[test]
fn an_archive_brings_no_other_resolver() {
    let set = |digest: &str| format!(r#"{{"digest":"{digest}","ecosystem":"pypi","requirements":[]}}"#);
    let (_, wheel) = uv::wheel().unwrap();
    let key = |wheel: &str| format!("sets/{RESOLVER_KEY}{wheel}.json");
    refused(&[(&key(wheel.digest()), FILE, &set(DIGEST))], "a set without its layer");
    // A layer whose files have the digest that it says, with something else in place of the resolver.
    let content = "other";
    let digest = hex(&Sha256::digest(content));
    let form = Form::File { is_executable: false, bytes: content.len() as u64, digest };
    let made = Harvested { entries: [("uv".to_owned(), form)].into(), ..Harvested::default() };
    let layer = made.digest();
    let (manifest, file) = (format!("layers/{layer}/manifest.json"), format!("layers/{layer}/files/uv"));
    let archive = |wheel: &str| {
        [
            (manifest.clone(), manifest_of(&layer)),
            (file.clone(), content.to_owned()),
            (key(wheel), set(&layer)),
        ]
    };
    let entries = archive(wheel.digest());
    let entries: Vec<Entry<'_>> =
        entries.iter().map(|(name, content)| (name.as_str(), FILE, content.as_str())).collect();
    refused(&entries, "a resolver that is not the pinned one");
    // One that this version never asks for is left out.
    let entries = archive(DIGEST);
    let entries: Vec<Entry<'_>> =
        entries.iter().map(|(name, content)| (name.as_str(), FILE, content.as_str())).collect();
    let (error, files) = imported(&entries);
    assert_eq!(error, None);
    assert!(
        files.iter().any(|path| path.ends_with("uv"))
            && !files.iter().any(|path| path.to_string_lossy().contains("sets/")),
        "{files:?}"
    );
}

#[test]
fn a_set_leads_to_a_layer_that_is_there() {
    let set = format!(r#"{{"digest":"{DIGEST}","ecosystem":"pypi","requirements":[]}}"#);
    refused(&[(&format!("sets/{DIGEST}.json"), FILE, &set)], "a set without its layer");
    let outside = r#"{"digest":"../../../above","ecosystem":"pypi","requirements":[]}"#;
    refused(&[(&format!("sets/{DIGEST}.json"), FILE, outside)], "a set without its layer");
}
