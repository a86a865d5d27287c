//! The answers of the broker to the go command.

use std::fs::File;
use std::sync::Arc;

use engine::packages::Ecosystem;
use serde::{Deserialize, Serialize};

use super::names::{Module, escaped, order};
use super::request::{GoRequest, Sums, is_listed};
use crate::blobs::{Algorithm, BlobId};
use crate::clock::parse_ms;
use crate::fetch::FetchError;
use crate::index::{Wanted, Withheld};
use crate::session::{NoAnswer, Note, Offer, Session};
use crate::settings::{Mirror, NO_DATABASE};

const GO: Ecosystem = Ecosystem::Go;
/// The most requests of one installation. Each module may name others, without an end.
pub(crate) const REQUESTS_MAX: u64 = 16_384;
/// The most versions of one module.
const VERSIONS_MAX: usize = 50_000;
/// The most versions of one module whose age is asked for before its list is served. The others are examined when they are
/// asked for.
const PROBED_MAX: usize = 64;

/// The end of versions that have no `go.mod`.
const INCOMPATIBLE: &str = "+incompatible";

/// An answer.
pub(crate) enum Answer {
    /// A document as it is.
    Document(Vec<u8>),
    /// The archive of a module.
    Archive(File),
}

/// What a proxy says about a version.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Info {
    version: String,
    #[serde(default)]
    time: Option<String>,
}

impl Info {
    /// Whether it is about that version. One from 2 on whose path does not end with it, and that has no `go.mod`, is found
    /// without its suffix ("Non-module compatibility" in the Go reference).
    fn is_of(&self, asked: &str) -> bool {
        self.version.strip_suffix(INCOMPATIBLE).unwrap_or(&self.version) == asked || self.version == asked
    }
}

/// Which blob is the archive of a module. The checksum database has no digest of the archive itself.
#[derive(Serialize, Deserialize)]
struct Pin {
    sha256: String,
}

/// Why there is no answer.
enum Refused {
    /// The mirror has none, or failed.
    Fetch(FetchError),
    /// A rule of the operator withholds it.
    Rule,
}

impl From<FetchError> for Refused {
    fn from(error: FetchError) -> Self {
        Self::Fetch(error)
    }
}

/// Answers a request of the go command.
pub(crate) async fn answer(session: &Arc<Session>, path: &str) -> Result<Answer, NoAnswer> {
    let request = GoRequest::parse(path).ok_or(NoAnswer::NotFound)?;
    let name = request.name().to_owned();
    if session.has_asked(REQUESTS_MAX) {
        session.note(Note::Failed { name, error: FetchError::Endless });
        return Err(NoAnswer::Failed);
    }
    let asked = Arc::clone(session);
    let answered = session.supply.fetcher.aside(async move { fetched(&asked, &request).await }).await;
    match answered.map_err(Refused::Fetch).and_then(std::convert::identity) {
        Ok(answer) => Ok(answer),
        // The go command asks for every path that could be that of a module: most of them are none.
        Err(Refused::Fetch(FetchError::NotFound) | Refused::Rule) => Err(NoAnswer::NotFound),
        Err(Refused::Fetch(error)) => {
            session.note(Note::Failed { name, error: session.explained(error) });
            Err(NoAnswer::Failed)
        }
    }
}

impl GoRequest {
    /// The name by which an error tells what was asked for.
    fn name(&self) -> &str {
        match self {
            Self::List(path) | Self::Latest(path) => path,
            Self::Info(module) | Self::Mod(module) | Self::Zip(module) => &module.path,
            Self::Sums { database, .. } => database,
        }
    }
}

async fn fetched(session: &Arc<Session>, request: &GoRequest) -> Result<Answer, Refused> {
    let at = At::new(session)?;
    let document = match request {
        GoRequest::List(path) => at.list(path).await?,
        GoRequest::Latest(path) => at.latest(path).await?,
        GoRequest::Info(module) => {
            at.examine(module).await?;
            at.info(module).await?.0
        }
        GoRequest::Mod(module) => at.document(&module.document("mod"), IS_FINAL).await?,
        GoRequest::Zip(module) => return at.archive(module).await.map(Answer::Archive),
        GoRequest::Sums { database, .. } if !session.supply.config.has_database(database) => {
            return Err(Refused::Fetch(FetchError::NotFound));
        }
        // Without this answer the go command would try to reach the database itself.
        GoRequest::Sums { asked: Sums::Supported, .. } => Vec::new(),
        GoRequest::Sums { database, asked } => {
            let (below, can_change) = asked.document();
            at.document(&format!("sumdb/{database}/{below}"), !can_change).await?
        }
    };
    Ok(Answer::Document(document))
}

/// For documents whose content cannot change.
const IS_FINAL: bool = true;

/// One installation and its mirror.
struct At<'a> {
    session: &'a Arc<Session>,
    mirror: &'a Mirror,
}

impl<'a> At<'a> {
    fn new(session: &'a Arc<Session>) -> Result<Self, FetchError> {
        Ok(Self { session, mirror: session.mirror()? })
    }

    async fn document(&self, below: &str, is_final: bool) -> Result<Vec<u8>, FetchError> {
        let (url, file) = (self.mirror.below(below), file_name(below));
        if is_final {
            self.session.note_final(&file);
        }
        let wanted =
            Wanted { ecosystem: GO, mirror: self.mirror, file: &file, url: &url, accept: "*/*", is_final };
        let count = |bytes| self.session.count(bytes);
        let stored = self.session.supply.documents.counted(&count).get(&wanted).await?;
        Ok(stored.bytes.to_vec())
    }

    /// The versions of a module, without the newest ones that are too young.
    async fn list(&self, path: &str) -> Result<Vec<u8>, FetchError> {
        let listed = self.document(&format!("{}/@v/list", escaped(path)), !IS_FINAL).await?;
        let unreadable = |reason: &str| FetchError::Malformed(reason.to_owned());
        let text = std::str::from_utf8(&listed).map_err(|_| unreadable("the list is not UTF-8"))?;
        let mut versions: Vec<&str> = text.lines().map(str::trim).filter(|line| is_listed(line)).collect();
        if versions.len() > VERSIONS_MAX {
            return Err(unreadable("the list has too many versions"));
        }
        versions.sort_by_key(|version| order(version));
        let mut withheld = Vec::new();
        while let Some(newest) = versions.last().filter(|_| withheld.len() < PROBED_MAX) {
            let module = Module { path: path.to_owned(), version: (*newest).to_owned() };
            match self.withheld(&module).await {
                Ok(None) => break,
                Ok(Some(why)) => withheld.push((module.version, why)),
                // The mirror lists a version that it does not have.
                Err(FetchError::NotFound) => {
                    withheld.push((module.version, Withheld::TooYoung { until_ms: None }));
                }
                Err(error) => return Err(error),
            }
            versions.pop();
        }
        if versions.is_empty()
            && let Some((version, why)) = withheld.into_iter().next()
        {
            self.session.withhold(path, &version, why);
        }
        let mut text = versions.join("\n");
        text.push('\n');
        Ok(text.into_bytes())
    }

    /// The version of a module without a list, if it is old enough.
    async fn latest(&self, path: &str) -> Result<Vec<u8>, Refused> {
        let document = self.document(&format!("{}/@latest", escaped(path)), !IS_FINAL).await?;
        let (info, released_ms) = read_info(&document)?;
        let module = Module::new(path, &info.version).ok_or_else(|| malformed("a version that is none"))?;
        self.refuse(&module, self.session.supply.age_rule().refusal(released_ms))?;
        Ok(document)
    }

    /// Refuses a version that is too young.
    async fn examine(&self, module: &Module) -> Result<(), Refused> {
        let why = self.withheld(module).await?;
        self.refuse(module, why)
    }

    fn refuse(&self, module: &Module, why: Option<Withheld>) -> Result<(), Refused> {
        let Some(why) = why else { return Ok(()) };
        self.session.withhold(&module.path, &module.version, why);
        Err(Refused::Rule)
    }

    /// Why a version may not be installed yet.
    async fn withheld(&self, module: &Module) -> Result<Option<Withheld>, FetchError> {
        let rule = self.session.supply.age_rule();
        if rule.accepts_all() {
            return Ok(None);
        }
        let (_, released_ms) = self.info(module).await?;
        Ok(rule.refusal(released_ms))
    }

    /// The document of a version, and its time. One that cannot be read is not kept.
    async fn info(&self, module: &Module) -> Result<(Vec<u8>, Option<i64>), FetchError> {
        let below = module.document("info");
        let document = self.document(&below, IS_FINAL).await?;
        match read_info(&document) {
            Ok((info, released_ms)) if info.is_of(&module.version) => Ok((document, released_ms)),
            read => {
                self.session.supply.documents.forget(GO, self.mirror, &file_name(&below));
                Err(read.err().unwrap_or_else(|| malformed("the document of another version")))
            }
        }
    }

    /// The archive of a module: the only answer that holds code.
    async fn archive(&self, module: &Module) -> Result<File, Refused> {
        let supply = &self.session.supply;
        if let Some(reason) = supply.config.rules.refusal(GO, &module.path) {
            self.session.note(Note::Denied { name: module.path.clone(), reason });
            return Err(Refused::Rule);
        }
        self.examine(module).await?;
        let below = module.document("zip");
        let (url, pin) = (self.mirror.below(&below), file_name(&format!("{below}.sha256")));
        let kept = supply.documents.kept(GO, self.mirror, &pin);
        let pinned = kept.and_then(|(bytes, is_doubted)| {
            let pin: Pin = serde_json::from_slice(&bytes).ok()?;
            Some((BlobId::new(Algorithm::Sha256, &pin.sha256)?, is_doubted))
        });
        if pinned.is_none() {
            self.session.tell(format!("fetching {} {}", module.path, module.version));
        }
        // Without a database the first archive decides what a version is.
        let is_compared = supply.config.go_sumdb != NO_DATABASE;
        if is_compared {
            self.session.note_final(&pin);
        }
        let fetched = match &pinned {
            None => Fetched::new(self.session.blob(None, &url).await?),
            Some((known, _)) if !is_compared => Fetched::known(self.session.blob(Some(known), &url).await?),
            Some((known, is_doubted)) => self.compared(known, *is_doubted, &url).await?,
        };
        let Fetched { blob, file, is_new } = fetched;
        if is_new {
            let pinned = serde_json::to_vec(&Pin { sha256: blob.digest().to_owned() }).unwrap_or_default();
            supply.documents.keep(GO, self.mirror, &pin, pinned);
        }
        let (name, version) = (module.path.clone(), module.version.clone());
        self.session.note_taken(Offer { name, version, url, blob, metadata: None });
        Ok(file)
    }

    /// An archive that the go command compares with the checksum database: what was pinned is only the one that was fetched last. A
    /// mirror may pack the same files anew, and it may have answered wrongly once.
    async fn compared(&self, known: &BlobId, is_doubted: bool, url: &str) -> Result<Fetched, FetchError> {
        let pinned = async || self.session.blob(Some(known), url).await.map(Fetched::known);
        let anew = async || self.session.blob(None, url).await.map(Fetched::new);
        match is_doubted {
            true => match anew().await {
                Err(error) if error.is_passing() => pinned().await,
                fetched => fetched,
            },
            false => match pinned().await {
                Err(FetchError::Mismatch) => anew().await,
                fetched => fetched,
            },
        }
    }
}

/// The archive of a module.
struct Fetched {
    blob: BlobId,
    file: File,
    /// Whether it has to be pinned.
    is_new: bool,
}

impl Fetched {
    fn new((blob, file): (BlobId, File)) -> Self {
        Self { blob, file, is_new: true }
    }

    fn known((blob, file): (BlobId, File)) -> Self {
        Self { blob, file, is_new: false }
    }
}

fn malformed(reason: &str) -> FetchError {
    FetchError::Malformed(reason.to_owned())
}

fn read_info(document: &[u8]) -> Result<(Info, Option<i64>), FetchError> {
    let info: Info =
        serde_json::from_slice(document).map_err(|_| malformed("the document of a version is not JSON"))?;
    let released_ms = info.time.as_deref().and_then(parse_ms);
    Ok((info, released_ms))
}

/// The name of a document in the store. Long names become digests.
fn file_name(below: &str) -> String {
    const NAME_BYTES_MAX: usize = 240;
    let name = format!("{}.doc", below.replace('/', "%2f"));
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    use sha2::{Digest, Sha256};
    format!("{}.doc", crate::files::hex(&Sha256::digest(below)))
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
