//! One installation's view of the mirrors: what the builder was offered, what it took, and why something was withheld.
//!
//! The broker serves the answers; [`crate::explain`] turns the notes into an error that a model can act on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::packages::Ecosystem;
use tokio::sync::mpsc;

use crate::blobs::{BlobId, Blobs};
use crate::clock::now_ms;
use crate::fetch::{FetchError, SharedFetcher};
use crate::index::{AgeRule, Documents, Withheld, npm, pypi};
use crate::requirement::{is_name, normal_name};
use crate::settings::{Mirror, PackagesConfig};

/// The most notes of one installation.
const NOTES_MAX: usize = 4096;
/// The most packages whose index one installation reads. Each may name others, without an end.
const PAGES_MAX: u64 = 4096;
/// The most files that are offered to one builder.
const OFFERS_MAX: usize = 500_000;
/// The most bytes of a metadata file.
const METADATA_BYTES_MAX: u64 = 4 << 20;

/// What installations share: settings, mirrors, documents and blobs.
pub(crate) struct Supply {
    pub(crate) config: PackagesConfig,
    pub(crate) fetcher: SharedFetcher,
    pub(crate) documents: Documents,
    pub(crate) blobs: Blobs,
}

impl Supply {
    pub(crate) fn mirror(&self, ecosystem: Ecosystem) -> Option<&Mirror> {
        self.config.mirrors.get(&ecosystem)
    }

    pub(crate) fn age_rule(&self) -> AgeRule {
        let min_age_ms = i64::try_from(self.config.min_age.as_millis()).unwrap_or(i64::MAX);
        AgeRule {
            latest_ms: now_ms().saturating_sub(min_age_ms),
            min_age_ms,
            allow_unknown: self.config.allow_unknown_age || min_age_ms == 0,
        }
    }
}

/// A file that the builder may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) url: String,
    pub(crate) blob: BlobId,
    pub(crate) metadata: Option<BlobId>,
}

/// Something that may explain why an installation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// The index does not have the package.
    Missing { name: String },
    /// A rule of the operator refuses it.
    Denied { name: String, reason: String },
    /// Another registry has it, which the server does not ask.
    Elsewhere { name: String },
    /// Releases were withheld.
    Withheld { name: String, version: String, why: Withheld },
    /// Nothing of the package is left to install.
    Nothing { name: String },
    /// The mirror failed.
    Failed { name: String, error: FetchError },
}

/// One installation.
pub(crate) struct Session {
    pub(crate) supply: Arc<Supply>,
    pub(crate) ecosystem: Ecosystem,
    progress: Option<mpsc::Sender<String>>,
    offered: Mutex<HashMap<String, Offer>>,
    taken: Mutex<BTreeMap<String, Offer>>,
    notes: Mutex<Vec<Note>>,
    /// Documents that are asked for once, by their files.
    finals: Mutex<BTreeSet<String>>,
    fetched_bytes: AtomicU64,
    pages: AtomicU64,
}

/// Why the broker has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    NotFound,
    Denied,
    Failed,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(crate) fn new(
        supply: Arc<Supply>,
        ecosystem: Ecosystem,
        progress: Option<mpsc::Sender<String>>,
    ) -> Self {
        Self {
            supply,
            ecosystem,
            progress,
            offered: Mutex::default(),
            taken: Mutex::default(),
            notes: Mutex::default(),
            finals: Mutex::default(),
            fetched_bytes: AtomicU64::new(0),
            pages: AtomicU64::new(0),
        }
    }

    /// Tells the progress. A full channel loses messages.
    pub(crate) fn tell(&self, text: impl Into<String>) {
        if let Some(progress) = &self.progress {
            progress.try_send(text.into()).ok();
        }
    }

    pub(crate) fn note(&self, note: Note) {
        let mut notes = held(&self.notes);
        if notes.len() < NOTES_MAX && !notes.contains(&note) {
            notes.push(note);
        }
    }

    pub(crate) fn notes(&self) -> Vec<Note> {
        held(&self.notes).clone()
    }

    /// Notes that the installation relies on a document that is asked for once.
    pub(crate) fn note_final(&self, file: &str) {
        held(&self.finals).insert(file.to_owned());
    }

    /// Has the mirror asked again for such documents, because one of them may be wrong.
    pub(crate) fn doubt_finals(&self) {
        let Some(mirror) = self.supply.mirror(self.ecosystem) else { return };
        for file in std::mem::take(&mut *held(&self.finals)) {
            self.supply.documents.doubt(self.ecosystem, mirror, &file);
        }
    }

    /// The files that the builder took, by digest.
    pub(crate) fn taken(&self) -> BTreeMap<String, Offer> {
        held(&self.taken).clone()
    }

    /// The index of a package as the builder gets it.
    pub(crate) async fn page(self: &Arc<Self>, name: &str, base: &str) -> Result<Vec<u8>, NoAnswer> {
        if !is_name(self.ecosystem, name) {
            return Err(NoAnswer::NotFound);
        }
        let name = normal_name(self.ecosystem, name);
        if let Some(reason) = self.supply.config.rules.refusal(self.ecosystem, &name) {
            self.note(Note::Denied { name, reason });
            return Err(NoAnswer::Denied);
        }
        if self.supply.config.other_scope(self.ecosystem, &name).is_some() {
            self.note(Note::Elsewhere { name });
            return Err(NoAnswer::Denied);
        }
        if self.has_asked(PAGES_MAX) || held(&self.offered).len() > OFFERS_MAX {
            self.note(Note::Failed { name, error: FetchError::Endless });
            return Err(NoAnswer::Failed);
        }
        let (session, asked, base) = (Arc::clone(self), name.clone(), base.to_owned());
        let page = self.supply.fetcher.aside(async move {
            match session.ecosystem {
                Ecosystem::Pypi => session.python_page(&asked).await,
                Ecosystem::Npm => session.javascript_page(&asked, &base).await,
                // Its broker has no pages.
                Ecosystem::Go => Err(FetchError::NotFound),
            }
        });
        match page.await.and_then(std::convert::identity) {
            Ok(page) => Ok(page),
            Err(FetchError::NotFound) => {
                self.note(Note::Missing { name });
                Err(NoAnswer::NotFound)
            }
            Err(error) => {
                self.note(Note::Failed { name, error: self.explained(error) });
                Err(NoAnswer::Failed)
            }
        }
    }

    /// Counts a request to the index. Returns whether there were that many before.
    pub(crate) fn has_asked(&self, most: u64) -> bool {
        self.pages.fetch_add(1, Ordering::Relaxed) >= most
    }

    pub(crate) fn mirror(&self) -> Result<&Mirror, FetchError> {
        let missing = || FetchError::Unreachable("no mirror is configured".to_owned());
        self.supply.mirror(self.ecosystem).ok_or_else(missing)
    }

    async fn python_page(&self, name: &str) -> Result<Vec<u8>, FetchError> {
        let (supply, mirror) = (&self.supply, self.mirror()?);
        let count = |bytes| self.count(bytes);
        let files = pypi::project(&supply.documents.counted(&count), mirror, name).await?;
        let (rule, source_builds) = (supply.age_rule(), supply.config.source_builds);
        let mut offered = Vec::new();
        for file in &files {
            let Some((_, version)) = file.release() else { continue };
            let why = pypi::withheld(file, name, &rule, source_builds)
                .or_else(|| (!supply.fetcher.would_fetch(mirror, &file.url)).then_some(Withheld::Elsewhere));
            match (why, &file.blob) {
                (None, Some(blob)) => {
                    self.offer(Offer {
                        name: name.to_owned(),
                        version: version.to_owned(),
                        url: file.url.clone(),
                        blob: blob.clone(),
                        metadata: file.metadata.clone(),
                    });
                    offered.push(file);
                }
                (Some(why), _) => self.withhold(name, version, why),
                (None, None) => {}
            }
        }
        if offered.is_empty() {
            self.note(Note::Nothing { name: name.to_owned() });
        }
        Ok(pypi::page(name, &offered))
    }

    async fn javascript_page(&self, name: &str, base: &str) -> Result<Vec<u8>, FetchError> {
        let (supply, mirror) = (&self.supply, self.mirror()?);
        let count = |bytes| self.count(bytes);
        let document = npm::packument(&supply.documents.counted(&count), mirror, name).await?;
        let page = npm::page(&document, name, &supply.age_rule(), base, |url| {
            supply.fetcher.would_fetch(mirror, url)
        });
        if page.tarballs.is_empty() {
            self.note(Note::Nothing { name: name.to_owned() });
        }
        for tarball in page.tarballs {
            let (version, url, blob) = (tarball.version, tarball.url, tarball.blob);
            self.offer(Offer { name: name.to_owned(), version, url, blob, metadata: None });
        }
        for (version, why) in page.withheld {
            self.withhold(name, &version, why);
        }
        Ok(page.body)
    }

    pub(crate) fn withhold(&self, name: &str, version: &str, why: Withheld) {
        self.note(Note::Withheld { name: name.to_owned(), version: version.to_owned(), why });
    }

    /// Lets the builder ask for a file.
    pub(crate) fn offer(&self, offer: Offer) {
        held(&self.offered).insert(offer.blob.digest().to_owned(), offer);
    }

    /// The newest versions of a package that were offered, the newest first. Pre-releases are left out.
    pub(crate) fn newest(&self, name: &str, most: usize) -> Vec<String> {
        let offered = held(&self.offered);
        let numbered = offered.values().filter(|offer| offer.name == name).filter_map(|offer| {
            let numbers: Result<Vec<u64>, _> = offer.version.split('.').map(str::parse).collect();
            Some((numbers.ok()?, offer.version.clone()))
        });
        let sorted: std::collections::BTreeSet<_> = numbered.collect();
        sorted.into_iter().rev().take(most).map(|(_, version)| version).collect()
    }

    /// A file that was offered, after its digest was compared.
    pub(crate) async fn file(self: &Arc<Self>, digest: &str) -> Result<std::fs::File, NoAnswer> {
        let offer = held(&self.offered).get(digest).cloned().ok_or(NoAnswer::NotFound)?;
        let is_first = held(&self.taken).insert(digest.to_owned(), offer.clone()).is_none();
        if is_first {
            self.tell(format!("fetching {} {}", offer.name, offer.version));
        }
        let bytes_max = self.supply.config.bounds.blob_bytes_max;
        self.fetched(offer.name.clone(), offer.blob, offer.url, bytes_max).await
    }

    /// The metadata of a file that was offered.
    pub(crate) async fn metadata(self: &Arc<Self>, digest: &str) -> Result<std::fs::File, NoAnswer> {
        let offer = held(&self.offered).get(digest).cloned().ok_or(NoAnswer::NotFound)?;
        let metadata = offer.metadata.ok_or(NoAnswer::NotFound)?;
        self.fetched(offer.name, metadata, format!("{}.metadata", offer.url), METADATA_BYTES_MAX).await
    }

    async fn fetched(
        self: &Arc<Self>,
        name: String,
        blob: BlobId,
        url: String,
        bytes_max: u64,
    ) -> Result<std::fs::File, NoAnswer> {
        let session = Arc::clone(self);
        let fetched = self.supply.fetcher.aside(async move {
            let supply = &session.supply;
            let from = (&*supply.fetcher, session.mirror()?);
            supply.blobs.fetch(from, (&blob, &url), bytes_max, &|bytes| session.count(bytes)).await
        });
        fetched.await.and_then(std::convert::identity).map_err(|error| {
            self.note(Note::Failed { name, error: self.explained(error) });
            NoAnswer::Failed
        })
    }

    /// Counts what was fetched, up to the bound of one installation.
    pub(crate) fn count(&self, bytes: u64) -> io::Result<()> {
        let sum = self.fetched_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let most = self.supply.config.bounds.fetched_bytes_max;
        if sum > most { Err(io::Error::other("the installation fetches too much")) } else { Ok(()) }
    }

    /// The error of what is fetched: that of the bound, if it was reached.
    pub(crate) fn explained(&self, error: FetchError) -> FetchError {
        let most = self.supply.config.bounds.fetched_bytes_max;
        let is_too_much = self.fetched_bytes.load(Ordering::Relaxed) > most;
        if is_too_much { FetchError::TooLarge(most) } else { error }
    }

    /// A file whose digest is known only if it was fetched before. On the threads that fetch.
    pub(crate) async fn blob(
        &self,
        known: Option<&BlobId>,
        url: &str,
    ) -> Result<(BlobId, std::fs::File), FetchError> {
        let (supply, from) = (&self.supply, (&*self.supply.fetcher, self.mirror()?));
        let (bytes_max, count) = (supply.config.bounds.blob_bytes_max, |bytes| self.count(bytes));
        let fetched = match known {
            Some(id) => {
                supply.blobs.fetch(from, (id, url), bytes_max, &count).await.map(|file| (id.clone(), file))
            }
            None => supply.blobs.fetch_unknown(from, url, bytes_max, &count).await,
        };
        fetched.map_err(|error| self.explained(error))
    }

    /// Notes a file that the builder got.
    pub(crate) fn note_taken(&self, offer: Offer) {
        held(&self.taken).insert(offer.blob.digest().to_owned(), offer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(folder: &harness::TestFolder) -> Arc<Session> {
        session_of(folder, Ecosystem::Pypi)
    }

    /// An installation whose mirror does not answer.
    fn session_of(folder: &harness::TestFolder, ecosystem: Ecosystem) -> Arc<Session> {
        crate::test_mirror::session(folder, ecosystem, crate::test_mirror::NOTHING, |_| {})
    }

    async fn is_given_up(session: &Arc<Session>, name: &str) -> bool {
        assert_eq!(session.page(name, "").await, Err(NoAnswer::Failed), "nothing answers");
        session.notes().contains(&Note::Failed { name: name.to_owned(), error: FetchError::Endless })
    }

    #[tokio::test]
    async fn one_installation_reads_the_index_of_at_most_4096_packages() {
        let folder = harness::TestFolder::new();
        let session = session(&folder);
        session.pages.store(PAGES_MAX - 1, Ordering::Relaxed);
        assert!(!is_given_up(&session, "last").await);
        assert!(is_given_up(&session, "more").await);
    }

    #[tokio::test]
    async fn a_scope_of_another_registry_is_refused_and_not_asked_for() {
        let folder = harness::TestFolder::new();
        let session = crate::test_mirror::session(
            &folder,
            Ecosystem::Npm,
            &crate::test_mirror::serve(|_| Ok(b"{}".to_vec())),
            |config| config.other_scopes = ["@team".to_owned()].into(),
        );
        for (name, code, is_asked) in [
            ("@team/x", "packages_off", false),
            ("@teams/x", "package_not_found", true),
            ("team", "package_not_found", true),
        ] {
            assert_eq!(session.page(name, "").await != Err(NoAnswer::Denied), is_asked, "{name}");
            let wanted = crate::check_requirement(Ecosystem::Npm, name).unwrap();
            let told = crate::explain::at_once(&session, &wanted).expect("the mirror has nothing");
            assert_eq!(told.code, code, "{name}");
            assert_eq!(told.remedy.unwrap().contains("packages.mirrors"), !is_asked, "{name}");
        }
    }

    #[tokio::test]
    async fn documents_count_as_what_an_installation_fetches() {
        let page = br#"{"files": []}"#;
        let mirror = crate::test_mirror::serve(|_| Ok(page.to_vec()));
        let folder = harness::TestFolder::new();
        let session = crate::test_mirror::session(&folder, Ecosystem::Pypi, &mirror, |config| {
            config.bounds.fetched_bytes_max = 2 * page.len() as u64;
        });
        for name in ["one", "two", "one", "two"] {
            session.page(name, "").await.unwrap();
        }
        assert_eq!(session.page("three", "").await, Err(NoAnswer::Failed));
        let error = FetchError::TooLarge(2 * page.len() as u64);
        assert!(session.notes().contains(&Note::Failed { name: "three".to_owned(), error }));
    }

    #[tokio::test]
    async fn one_installation_is_offered_at_most_500_000_files() {
        let folder = harness::TestFolder::new();
        let session = session(&folder);
        let blob = BlobId::new(crate::blobs::Algorithm::Sha256, &"0".repeat(64)).unwrap();
        let text = String::new;
        let offer = Offer { name: text(), version: text(), url: text(), blob, metadata: None };
        let offers = (0..OFFERS_MAX).map(|number| (number.to_string(), offer.clone()));
        held(&session.offered).extend(offers);
        assert!(!is_given_up(&session, "last").await);
        held(&session.offered).insert("more".to_owned(), offer);
        assert!(is_given_up(&session, "more").await);
    }

    #[tokio::test]
    async fn one_installation_asks_a_proxy_for_a_bounded_number_of_documents() {
        let folder = harness::TestFolder::new();
        let session = session_of(&folder, Ecosystem::Go);
        let is_given_up = async |module: &str| {
            let path = format!("/example.org/{module}/@v/list");
            assert!(matches!(crate::go::answer(&session, &path).await, Err(NoAnswer::Failed)));
            let name = format!("example.org/{module}");
            session.notes().contains(&Note::Failed { name, error: FetchError::Endless })
        };
        session.pages.store(crate::go::serve::REQUESTS_MAX - 1, Ordering::Relaxed);
        assert!(!is_given_up("last").await);
        assert!(is_given_up("more").await);
    }

    #[tokio::test]
    async fn a_builder_asks_a_proxy_for_what_the_protocol_knows_and_the_operator_named() {
        let folder = harness::TestFolder::new();
        let session = session_of(&folder, Ecosystem::Go);
        for path in [
            "/example.org/../@v/list",
            "/sumdb/other.example/latest",
            "/simple/good/",
            "/example.org/x/@v/v1.exe",
        ] {
            let answer = crate::go::answer(&session, path).await;
            assert!(matches!(answer, Err(NoAnswer::NotFound)), "{path}");
        }
        assert_eq!(session.notes(), [], "the mirror is not asked");
        let supported = format!("/sumdb/{}/supported", session.supply.config.go_sumdb);
        assert!(crate::go::answer(&session, &supported).await.is_ok(), "without the mirror");
    }

    /// The names are also names of files in the store.
    #[tokio::test]
    async fn a_builder_asks_for_names_of_packages_and_for_nothing_else() {
        let folder = harness::TestFolder::new();
        let session = session(&folder);
        for name in ["", "..", "../../layers", "a/b", "a%2fb", ".hidden", "a\u{0}b", "\u{261}ood"] {
            assert_eq!(session.page(name, "").await, Err(NoAnswer::NotFound), "{name:?}");
        }
        assert_eq!(session.notes(), [], "the mirror is not asked");
        let unknown = "0".repeat(64);
        assert!(matches!(session.file(&unknown).await, Err(NoAnswer::NotFound)), "it was not offered");
        assert!(matches!(session.metadata(&unknown).await, Err(NoAnswer::NotFound)));
    }
}
