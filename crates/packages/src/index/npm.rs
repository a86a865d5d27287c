//! Documents of the npm registry ("packuments"), filtered: versions by age, digests and hosts, and only the fields that
//! a resolver reads.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::packages::Ecosystem;
use serde_json::{Map, Value, json};

use super::documents::{Counted, Wanted};
use super::{AgeRule, Withheld};
use crate::blobs::{Algorithm, BlobId};
use crate::clock::parse_ms;
use crate::fetch::FetchError;
use crate::files::hex;
use crate::settings::Mirror;

/// The full document, because the short form has no times.
const ACCEPT: &str = "application/json";
/// The fields of a version that a resolver and an installer read.
const FIELDS: [&str; 15] = [
    "name",
    "version",
    "dependencies",
    "optionalDependencies",
    "peerDependencies",
    "peerDependenciesMeta",
    "bundleDependencies",
    "bundledDependencies",
    "bin",
    "engines",
    "os",
    "cpu",
    "libc",
    "hasInstallScript",
    "type",
];

/// A version that is offered, with its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tarball {
    pub(crate) version: String,
    pub(crate) url: String,
    pub(crate) blob: BlobId,
}

/// A filtered document.
pub(crate) struct Page {
    pub(crate) body: Vec<u8>,
    pub(crate) tarballs: Vec<Tarball>,
    pub(crate) withheld: Vec<(String, Withheld)>,
}

/// Reads the document of a package.
pub(crate) async fn packument(
    documents: &Counted<'_>,
    mirror: &Mirror,
    name: &str,
) -> Result<Value, FetchError> {
    let escaped = name.replace('/', "%2f");
    let (ecosystem, file, url) = (Ecosystem::Npm, format!("{escaped}.doc"), mirror.below(&escaped));
    let wanted = Wanted { ecosystem, mirror, file: &file, url: &url, accept: ACCEPT, is_final: false };
    let stored = documents.get(&wanted).await?;
    let read = serde_json::from_slice::<Value>(&stored.bytes);
    read.map_err(|_| FetchError::Malformed("the document is not JSON".to_owned()))
}

/// The document that a tool gets. `base` is where it reaches the broker.
pub(crate) fn page(
    document: &Value,
    name: &str,
    rule: &AgeRule,
    base: &str,
    would_fetch: impl Fn(&str) -> bool,
) -> Page {
    let (mut versions, mut tarballs, mut withheld) = (Map::new(), Vec::new(), Vec::new());
    for (version, entry) in document["versions"].as_object().into_iter().flatten() {
        let uploaded_ms = document["time"][version].as_str().and_then(parse_ms);
        match offer(name, version, entry, &would_fetch).and_then(|tarball| match rule.refusal(uploaded_ms) {
            Some(reason) => Err(reason),
            None => Ok(tarball),
        }) {
            Err(reason) => withheld.push((version.clone(), reason)),
            Ok(tarball) => {
                let mut kept: Map<String, Value> = Map::new();
                for field in FIELDS {
                    if let Some(value) = entry.get(field) {
                        kept.insert(field.to_owned(), value.clone());
                    }
                }
                let digest = tarball.blob.digest();
                let file = name.rsplit('/').next().unwrap_or(name);
                kept.insert(
                    "dist".to_owned(),
                    json!({
                        "integrity": entry["dist"]["integrity"],
                        "tarball": format!("{base}/-/files/{digest}/{file}-{version}.tgz"),
                    }),
                );
                versions.insert(version.clone(), Value::Object(kept));
                tarballs.push(tarball);
            }
        }
    }
    let tags = tags(document, &versions);
    let body = json!({"name": name, "dist-tags": tags, "versions": versions}).to_string().into_bytes();
    Page { body, tarballs, withheld }
}

/// The file of a version, if the index names it well.
fn offer(
    name: &str,
    version: &str,
    entry: &Value,
    would_fetch: &impl Fn(&str) -> bool,
) -> Result<Tarball, Withheld> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+-".contains(&byte);
    let is_own = entry["name"].as_str() == Some(name) && entry["version"].as_str() == Some(version);
    if !is_own || version.is_empty() || !version.bytes().all(is_plain) {
        return Err(Withheld::Misnamed);
    }
    let blob = entry["dist"]["integrity"].as_str().and_then(digest).ok_or(Withheld::NoDigest)?;
    let url = entry["dist"]["tarball"].as_str().unwrap_or_default();
    if !would_fetch(url) {
        return Err(Withheld::Elsewhere);
    }
    Ok(Tarball { version: version.to_owned(), url: url.to_owned(), blob })
}

/// The strong digest of an integrity value (Subresource Integrity).
pub(crate) fn digest(integrity: &str) -> Option<BlobId> {
    integrity.split_ascii_whitespace().find_map(|one| {
        let encoded = one.strip_prefix("sha512-")?.split('?').next()?;
        BlobId::new(Algorithm::Sha512, &hex(&STANDARD.decode(encoded).ok()?))
    })
}

/// Tags that lead to a version that is offered. `latest` moves to the highest one below, if its own is withheld.
fn tags(document: &Value, versions: &Map<String, Value>) -> Map<String, Value> {
    let mut tags = Map::new();
    for (tag, version) in document["dist-tags"].as_object().into_iter().flatten() {
        if version.as_str().is_some_and(|version| versions.contains_key(version)) {
            tags.insert(tag.clone(), version.clone());
        }
    }
    if !tags.contains_key("latest") {
        let stable: BTreeSet<([u64; 3], &String)> =
            versions.keys().filter_map(|version| Some((numbers(version)?, version))).collect();
        let latest = document["dist-tags"]["latest"].as_str().and_then(numbers);
        let below = stable.iter().rev().find(|(own, _)| latest.is_none_or(|latest| *own <= latest));
        if let Some((_, version)) = below.or(stable.last()) {
            tags.insert("latest".to_owned(), json!(version));
        }
    }
    tags
}

/// The numbers of a version that is not a pre-release.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let version = version.split('+').next()?;
    let mut parts = version.split('.').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}
