//! The simple index of Python packages: HTML (PEP 503) or JSON (PEP 691), with upload times from the legacy document
//! where the index has none. What a tool gets is JSON, filtered.

use std::collections::HashMap;

use engine::packages::Ecosystem;
use serde_json::{Value, json};

use super::documents::{Counted, Wanted};
use super::html::anchors;
use super::{AgeRule, Withheld, join, last_name};
use crate::blobs::{Algorithm, BlobId};
use crate::clock::{parse_ms, stamp};
use crate::fetch::FetchError;
use crate::requirement::{is_name, normal_name};
use crate::settings::Mirror;

const ACCEPT: &str = "application/vnd.pypi.simple.v1+json, text/html;q=0.5";
/// The media type of the index that tools get.
pub(crate) const SIMPLE_JSON: &str = "application/vnd.pypi.simple.v1+json";
const FILE_NAME_BYTES_MAX: usize = 255;
/// The most files of one package.
const FILES_MAX: usize = 50_000;

/// A file of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProjectFile {
    pub(crate) filename: String,
    pub(crate) url: String,
    pub(crate) blob: Option<BlobId>,
    pub(crate) requires_python: Option<String>,
    pub(crate) uploaded_ms: Option<i64>,
    pub(crate) is_yanked: bool,
    pub(crate) size: Option<u64>,
    /// The digest of its metadata, if the mirror offers them apart (PEP 658).
    pub(crate) metadata: Option<BlobId>,
}

impl ProjectFile {
    pub(crate) fn is_wheel(&self) -> bool {
        self.filename.ends_with(".whl")
    }

    /// Name and version, by the file name.
    pub(crate) fn release(&self) -> Option<(String, &str)> {
        let (name, version) = match self.filename.strip_suffix(".whl") {
            Some(stem) => {
                let mut parts = stem.split('-');
                (parts.next()?, parts.next()?)
            }
            None => {
                let stem =
                    self.filename.strip_suffix(".tar.gz").or_else(|| self.filename.strip_suffix(".zip"))?;
                stem.rsplit_once('-')?
            }
        };
        is_name(Ecosystem::Pypi, name).then(|| (normal_name(Ecosystem::Pypi, name), version))
    }
}

/// Reads the files of a package.
pub(crate) async fn project(
    documents: &Counted<'_>,
    mirror: &Mirror,
    name: &str,
) -> Result<Vec<ProjectFile>, FetchError> {
    let (ecosystem, url) = (Ecosystem::Pypi, mirror.below(&format!("{name}/")));
    let file = format!("{name}.doc");
    let wanted = Wanted { ecosystem, mirror, file: &file, url: &url, accept: ACCEPT, is_final: false };
    let stored = documents.get(&wanted).await?;
    let mut files = match stored.is_json {
        true => read_json(&stored.bytes, &url)?,
        false => read_html(&stored.bytes, &url)?,
    };
    if files.iter().any(|file| file.uploaded_ms.is_none() && file.is_wheel() && !file.is_yanked) {
        add_upload_times(documents, mirror, name, &mut files).await;
    }
    Ok(files)
}

/// Takes upload times that the index does not have from the legacy document. Without it they stay unknown.
async fn add_upload_times(documents: &Counted<'_>, mirror: &Mirror, name: &str, files: &mut [ProjectFile]) {
    let base = mirror.base.to_string();
    let base =
        base.trim_end_matches('/').strip_suffix("/simple").unwrap_or(&base).trim_end_matches('/').to_owned();
    let (ecosystem, file, url) =
        (Ecosystem::Pypi, format!("{name}.times"), format!("{base}/pypi/{name}/json"));
    let wanted =
        Wanted { ecosystem, mirror, file: &file, url: &url, accept: "application/json", is_final: false };
    let Ok(stored) = documents.get(&wanted).await else { return };
    let Ok(read) = serde_json::from_slice::<Value>(&stored.bytes) else { return };
    let releases = read["releases"].as_object().into_iter().flat_map(|map| map.values());
    let listed = releases.chain(std::iter::once(&read["urls"])).filter_map(Value::as_array).flatten();
    let times: HashMap<&str, i64> = listed
        .filter_map(|entry| {
            let at = entry["upload_time_iso_8601"].as_str().and_then(parse_ms)?;
            Some((entry["digests"]["sha256"].as_str()?, at))
        })
        .collect();
    for file in files.iter_mut().filter(|file| file.uploaded_ms.is_none()) {
        file.uploaded_ms = file.blob.as_ref().and_then(|blob| times.get(blob.digest()).copied());
    }
}

fn malformed(reason: &str) -> FetchError {
    FetchError::Malformed(reason.to_owned())
}

fn read_html(bytes: &[u8], url: &str) -> Result<Vec<ProjectFile>, FetchError> {
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("the index is not UTF-8"))?;
    let mut files = Vec::new();
    anchors(text, |attributes| {
        let get =
            |name: &str| attributes.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
        let Some(link) = get("href").and_then(|href| join(url, href)) else { return };
        let (link, fragment) = link.split_once('#').unwrap_or((&link, ""));
        let Some(filename) = last_name(link).filter(|name| is_file_name(name)) else { return };
        let metadata = get("data-core-metadata").or_else(|| get("data-dist-info-metadata"));
        files.push(ProjectFile {
            filename,
            url: link.to_owned(),
            blob: fragment.strip_prefix("sha256=").and_then(sha256),
            requires_python: get("data-requires-python").map(str::to_owned),
            uploaded_ms: get("data-upload-time").and_then(parse_ms),
            is_yanked: get("data-yanked").is_some(),
            size: None,
            metadata: metadata.and_then(|value| sha256(value.strip_prefix("sha256=")?)),
        });
    });
    if files.len() > FILES_MAX { Err(malformed("the index has too many files")) } else { Ok(files) }
}

fn read_json(bytes: &[u8], url: &str) -> Result<Vec<ProjectFile>, FetchError> {
    let read: Value = serde_json::from_slice(bytes).map_err(|_| malformed("the index is not JSON"))?;
    let listed = read["files"].as_array().ok_or_else(|| malformed("the index has no files"))?;
    if listed.len() > FILES_MAX {
        return Err(malformed("the index has too many files"));
    }
    let file = |entry: &Value| {
        let link = join(url, entry["url"].as_str()?)?;
        let link = link.split('#').next().unwrap_or_default().to_owned();
        let filename = entry["filename"].as_str().filter(|name| is_file_name(name))?.to_owned();
        let metadata = entry.get("core-metadata").or_else(|| entry.get("dist-info-metadata"));
        Some(ProjectFile {
            filename,
            url: link,
            blob: entry["hashes"]["sha256"].as_str().and_then(sha256),
            requires_python: entry["requires-python"].as_str().map(str::to_owned),
            uploaded_ms: entry["upload-time"].as_str().and_then(parse_ms),
            is_yanked: !matches!(entry.get("yanked"), None | Some(Value::Bool(false) | Value::Null)),
            size: entry["size"].as_u64(),
            metadata: metadata.and_then(|value| sha256(value["sha256"].as_str()?)),
        })
    };
    Ok(listed.iter().filter_map(file).collect())
}

fn sha256(digest: &str) -> Option<BlobId> {
    BlobId::new(Algorithm::Sha256, digest)
}

fn is_file_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+!".contains(&byte);
    name.len() <= FILE_NAME_BYTES_MAX
        && name.bytes().all(is_plain)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Why a file is not offered.
pub(crate) fn withheld(
    file: &ProjectFile,
    name: &str,
    rule: &AgeRule,
    source_builds: bool,
) -> Option<Withheld> {
    if file.release().is_none_or(|(own, _)| own != name) {
        return Some(Withheld::Misnamed);
    }
    if file.is_yanked {
        return Some(Withheld::Yanked);
    }
    if file.blob.is_none() {
        return Some(Withheld::NoDigest);
    }
    if !file.is_wheel() && !source_builds {
        return Some(Withheld::Source);
    }
    rule.refusal(file.uploaded_ms)
}

/// The index that a tool gets.
pub(crate) fn page(name: &str, files: &[&ProjectFile]) -> Vec<u8> {
    let entry = |file: &&ProjectFile| {
        let digest = file.blob.as_ref().map(BlobId::digest).unwrap_or_default();
        let mut entry = json!({
            "filename": file.filename,
            "url": format!("/files/{digest}/{}", file.filename),
            "hashes": {"sha256": digest},
            "yanked": false,
        });
        if let Some(versions) = &file.requires_python {
            entry["requires-python"] = json!(versions);
        }
        if let Some(at) = file.uploaded_ms {
            entry["upload-time"] = json!(stamp(at));
        }
        if let Some(size) = file.size {
            entry["size"] = json!(size);
        }
        if let Some(metadata) = &file.metadata {
            entry["core-metadata"] = json!({"sha256": metadata.digest()});
        }
        entry
    };
    let files: Vec<Value> = files.iter().map(entry).collect();
    let page = json!({"meta": {"api-version": "1.1"}, "name": name, "files": files});
    page.to_string().into_bytes()
}
