//! Packages over the fake wall and a book of the test: what is asked for, refused, shown, attached and recorded.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::{Folder, PATIENCE, config, engine_config, obedient, program};
use engine::packages::{
    Ecosystem, PackageBook, PackageCall, PackageSet, PackageVersion, REQUIREMENTS_MAX, Wanted,
};
use engine::{
    Caller, Durability, Engine, FinishedRun, OpenRequest, RunError, RunRequest, Runs, Store, StoreConfig,
};
use policy::{Scope, Scopes};
use sandbox::fake::FakeBackend;
use sandbox::{Layer, Outcome};

/// A book that has nothing at first, and remembers what it made.
#[derive(Default)]
struct Book {
    made: Mutex<Vec<Vec<String>>>,
    recalled: AtomicUsize,
    present: Mutex<Vec<PackageVersion>>,
}

impl Book {
    fn set(call: &PackageCall<'_>, was_cached: bool) -> PackageSet {
        let name = call.requirements.join("+");
        let one = |text: &String| PackageVersion { name: text.clone(), version: "1".to_owned() };
        PackageSet {
            ecosystem: call.ecosystem,
            layer: Layer { digest: name, path: PathBuf::from("/layers"), target: PathBuf::new() },
            requirements: call.requirements.to_vec(),
            packages: call.requirements.iter().map(one).collect(),
            modules: Vec::new(),
            was_cached,
            in_use: Arc::new(()),
        }
    }
}

impl PackageBook for Book {
    fn offered(&self) -> Vec<Ecosystem> {
        vec![Ecosystem::Pypi]
    }

    fn recall(&self, call: &PackageCall<'_>) -> Option<PackageSet> {
        self.recalled.fetch_add(1, Ordering::SeqCst);
        *self.present.lock().unwrap() = call.present.to_vec();
        let is_there = self.made.lock().unwrap().iter().any(|known| known == call.requirements);
        is_there.then(|| Self::set(call, true))
    }

    fn prepare<'a>(
        &'a self,
        call: PackageCall<'a>,
    ) -> Pin<Box<dyn Future<Output = Result<PackageSet, RunError>> + Send + 'a>> {
        Box::pin(async move {
            if call.requirements.iter().any(|text| text == "missing") {
                return Err(RunError::new("package_not_found", "there is no such package"));
            }
            self.made.lock().unwrap().push(call.requirements.to_vec());
            Ok(Self::set(&call, false))
        })
    }
}

fn runs(folder: &Folder, fake: &FakeBackend, book: Option<&Arc<Book>>) -> Arc<Runs> {
    let engine = Engine::new(Arc::new(fake.clone()), engine_config(64 << 30));
    book.into_iter().for_each(|book| engine.offer_packages(Arc::clone(book) as Arc<_>));
    let store = Store::new(StoreConfig::new(folder.path()));
    Runs::new(Arc::new(engine), store, config(Durability::BeforeReply))
}

fn wanted(texts: &[&str]) -> Vec<Wanted> {
    let one = |text: &&str| Wanted { ecosystem: Ecosystem::Pypi, requirement: (*text).to_owned() };
    texts.iter().map(one).collect()
}

async fn complete(runs: &Arc<Runs>, caller: &Caller, packages: Vec<Wanted>) -> Arc<FinishedRun> {
    let request = RunRequest { packages, ..program("exit 0") };
    let started = runs.start(caller, request).unwrap();
    tokio::time::timeout(PATIENCE, started.finished()).await.unwrap()
}

fn code(run: &Arc<FinishedRun>) -> String {
    run.result.error.as_ref().map(|error| error.code.clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_run_with_packages_reports_them_and_what_the_installation_took() {
    let (folder, book) = (Folder::new(), Arc::new(Book::default()));
    let runs = runs(&folder, &obedient(), Some(&book));
    let caller = Caller::local();
    let first = complete(&runs, &caller, wanted(&["b", "a", "b"])).await;
    assert_eq!(first.result.outcome, Outcome::Completed, "{:?}", first.result.error);
    let names: Vec<&str> = first.result.packages.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["a", "b"], "sorted and without duplicates");
    assert!(first.result.install_ms.is_some());
    let second = complete(&runs, &caller, wanted(&["a", "b"])).await;
    assert_eq!((second.result.install_ms, second.result.packages.len()), (None, 2));
    let third = complete(&runs, &caller, Vec::new()).await;
    assert!(third.result.packages.is_empty() && book.recalled.load(Ordering::SeqCst) == 2);
    assert_eq!(code(&complete(&runs, &caller, wanted(&["missing"])).await), "package_not_found");
}

#[tokio::test]
async fn packages_are_refused_with_stable_codes() {
    let (folder, book) = (Folder::new(), Arc::new(Book::default()));
    let runs_with = runs(&folder, &obedient(), Some(&book));
    let caller = Caller::local();
    let long = "x".repeat(257);
    for bad in [vec!["a"; REQUIREMENTS_MAX + 1], vec![""], vec!["a\nb"], vec![&long]] {
        assert_eq!(code(&complete(&runs_with, &caller, wanted(&bad)).await), "bad_packages");
    }
    let npm = vec![Wanted { ecosystem: Ecosystem::Npm, requirement: "lodash".to_owned() }];
    assert_eq!(code(&complete(&runs_with, &caller, npm).await), "packages_off");
    let runner = Caller { scopes: Scopes::of(&[Scope::Run]), ..Caller::local() };
    assert_eq!(code(&complete(&runs_with, &runner, wanted(&["a"])).await), "insufficient_scope");
    assert_eq!(book.recalled.load(Ordering::SeqCst), 0, "nothing was asked of the book");
    let other = Folder::new();
    let runs_without = runs(&other, &obedient(), None);
    assert_eq!(code(&complete(&runs_without, &caller, wanted(&["a"])).await), "packages_off");
    let request = OpenRequest { packages: wanted(&["a"]), ..OpenRequest::default() };
    let error = runs_without.sandboxes().open(&caller, request).await.unwrap_err();
    assert!(error.code == "packages_off" && error.remedy.is_some());
}

#[tokio::test]
async fn packages_of_a_sandbox_are_recorded_and_later_ones_come_with_those_that_it_has() {
    let (folder, book) = (Folder::new(), Arc::new(Book::default()));
    let fake = obedient();
    let caller = Caller::local();
    let first = runs(&folder, &fake, Some(&book));
    let request = OpenRequest { packages: wanted(&["a"]), ..OpenRequest::default() };
    let (info, _) = first.sandboxes().open(&caller, request).await.unwrap();
    assert_eq!(info.packages[0].requirements, ["a"]);
    let installed = first.sandboxes().install(&caller, &info.id, wanted(&["b"]), None).await.unwrap();
    assert_eq!((installed.packages[0].requirements.join(" ").as_str(), installed.attach_ms), ("a b", None));
    assert_eq!(book.present.lock().unwrap()[0].name, "a", "the versions that it has are told");
    assert!(fake.attached().is_empty(), "a sandbox that is asleep has nothing to attach to");
    first.shutdown(engine::Stop::Killed, PATIENCE).await;
    let second = runs(&folder, &fake, Some(&book));
    let packages = second.sandboxes().packages(&caller, &info.id).await.unwrap();
    assert_eq!(packages[0].requirements, ["a", "b"], "the next server knows");
    let stranger = Caller { principal: engine::Principal::new("stranger").unwrap(), ..Caller::local() };
    let error = second.sandboxes().install(&stranger, &info.id, wanted(&["c"]), None).await.unwrap_err();
    assert_eq!(error.code, "unknown_sandbox");
}
