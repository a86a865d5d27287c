//! Background checks of this machine: which languages exist, a canary run of each, and the wall.
//!
//! Languages come first because the tool list needs them. The other checks start when a caller asks, or
//! shortly after the start, so that they never delay the first answer. Some results are inconclusive: no
//! sandbox could be built, or a probe took too long. Those checks are repeated later in the background.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    Caller, CanaryMemory, Engine, RunError, RunRequest, RunResult, Runtime, RuntimeError, WallFailure,
};
use sandbox::{Enforced, Outcome};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;

/// How long the canaries wait for a first question before they start anyway.
const QUIET: Duration = Duration::from_millis(300);
/// How long an answer about the machine waits for the checks.
const PATIENCE: Duration = Duration::from_secs(3);

/// The results so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    /// Whether the search for languages is complete.
    pub(crate) is_looked: bool,
    /// Languages with an interpreter, by name.
    pub(crate) languages: BTreeMap<String, Language>,
    /// Languages without an interpreter, and the reason.
    pub(crate) unavailable: BTreeMap<String, RuntimeError>,
    /// The wall, examined from outside the sandbox.
    pub(crate) wall: Option<Result<Enforced, String>>,
}

/// A language that was found.
#[derive(Debug, Clone)]
pub(crate) struct Language {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) canary: Canary,
}

/// State of a language's canary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Canary {
    Checking,
    Working,
    Broken(String),
}

impl Findings {
    /// Languages that are not known to fail.
    pub(crate) fn offered(&self) -> Vec<String> {
        let is_sound = |language: &Language| !matches!(language.canary, Canary::Broken(_));
        let sound = self.languages.iter().filter(|(_, language)| is_sound(language));
        sound.map(|(name, _)| name.clone()).collect()
    }

    /// Records the result of a search for a language, and the last result of its canary.
    fn note(&mut self, name: String, (found, seen): Looked) {
        match found {
            Ok(runtime) => {
                let canary = seen.map_or(Canary::Checking, |seen| match seen.verdict {
                    Ok(()) => Canary::Working,
                    Err(reason) => Canary::Broken(reason),
                });
                self.unavailable.remove(&name);
                self.languages.insert(name, Language { runtime, canary });
            }
            Err(error) => drop(self.unavailable.insert(name, error)),
        }
    }

    fn is_complete(&self) -> bool {
        let is_checked = |language: &Language| language.canary != Canary::Checking;
        let is_without_wall = matches!(self.wall, Some(Err(_)));
        self.is_looked && self.wall.is_some() && (is_without_wall || self.languages.values().all(is_checked))
    }
}

/// The result of a search for a language, and the last result of its canary.
type Looked = (Result<Arc<Runtime>, RuntimeError>, Option<CanaryMemory>);

/// Looks for a language.
async fn look_for(engine: &Engine, name: &str) -> Looked {
    let found = engine.runtimes().find(name).await;
    let seen = match &found {
        Ok(runtime) => engine.runtimes().recall_canary(runtime).await,
        Err(_) => None,
    };
    (found, seen)
}

/// Holds the results of the checks.
pub(crate) struct Checks {
    known: watch::Sender<Findings>,
    asked: Notify,
    offered: watch::Sender<Vec<String>>,
}

impl Checks {
    /// Starts the checks.
    pub(crate) fn start(engine: Arc<Engine>) -> Arc<Self> {
        let checks = Arc::new(Self {
            known: watch::Sender::new(Findings::default()),
            asked: Notify::new(),
            offered: watch::Sender::default(),
        });
        tokio::spawn(Arc::clone(&checks).look(engine));
        checks
    }

    /// The results, once the search for languages is complete.
    pub(crate) async fn languages(&self) -> Findings {
        let mut known = self.known.subscribe();
        let found = known.wait_for(|findings| findings.is_looked).await;
        found.map(|findings| findings.clone()).unwrap_or_default()
    }

    /// Changes when the set of offered languages changes.
    pub(crate) fn offered(&self) -> watch::Receiver<Vec<String>> {
        self.offered.subscribe()
    }

    /// The results once every check is complete, or the results so far when [`PATIENCE`] is over.
    pub(crate) async fn all(&self) -> Findings {
        self.asked.notify_one();
        let mut known = self.known.subscribe();
        tokio::time::timeout(PATIENCE, known.wait_for(Findings::is_complete)).await.map(drop).ok();
        self.languages().await
    }

    /// Checks again now: the wall, then a canary of each language that was found.
    pub(crate) async fn again(&self, engine: &Engine) -> Vec<(String, Result<(), String>)> {
        let wall = self.look_at_wall(engine).await;
        let is_without_wall = wall.is_err();
        let mut found = vec![("wall".to_owned(), wall)];
        if is_without_wall {
            // No canary could run, and each would take the same time to fail.
            return found;
        }
        for (name, language) in self.languages().await.languages {
            found.push((name, self.try_canary(engine, &language.runtime).await));
        }
        found
    }

    async fn look(self: Arc<Self>, engine: Arc<Engine>) {
        let findings = find_all(&engine).await;
        self.known.send_replace(findings);
        self.tell_offered();
        tokio::time::timeout(QUIET, self.asked.notified()).await.ok();
        self.look_at_wall(&engine).await.ok();
        self.try_unsure(&engine).await;
        tokio::join!(self.find_late_ones(&engine), self.look_when_regained(&engine));
    }

    /// Checks the wall now. The error says why there is none.
    async fn look_at_wall(&self, engine: &Engine) -> Result<(), String> {
        let wall = engine.backend().probe().await;
        let wall = wall.map_err(|error| {
            let failure = WallFailure::of(&error);
            format!("{}: {}", failure.summary(), failure.remedy)
        });
        let looked = wall.as_ref().map(drop).map_err(Clone::clone);
        self.known.send_modify(|findings| findings.wall = Some(wall));
        looked
    }

    /// Runs a canary of each language without a recent success.
    async fn try_unsure(&self, engine: &Engine) {
        let mut found: Vec<_> =
            self.known.borrow().languages.values().map(|it| Arc::clone(&it.runtime)).collect();
        // Compilers take longest, and callers wait for the other languages.
        found.sort_by_key(|runtime| runtime.is_compiled());
        for runtime in &found {
            let seen = engine.runtimes().recall_canary(runtime).await;
            if !seen.is_some_and(|seen| seen.is_fresh) {
                self.try_canary(engine, runtime).await.ok();
            }
        }
    }

    /// Runs a canary and records its result, unless it is inconclusive.
    async fn try_canary(&self, engine: &Engine, runtime: &Runtime) -> Result<(), String> {
        let canary = canary(engine, runtime).await?;
        let tried = match &canary {
            Canary::Broken(reason) => Err(reason.clone()),
            Canary::Checking | Canary::Working => Ok(()),
        };
        let mut is_news = false;
        self.known.send_modify(|findings| {
            if let Some(language) = findings.languages.get_mut(runtime.name()) {
                is_news = language.canary != canary;
                language.canary = canary;
            }
        });
        if let Err(reason) = &tried
            && is_news
        {
            tracing::warn!(language = runtime.name(), reason, "language_broken");
        }
        self.tell_offered();
        tried
    }

    fn tell_offered(&self) {
        let offered = self.known.borrow().offered();
        self.offered.send_if_modified(|known| std::mem::replace(known, offered.clone()) != offered);
    }

    /// Probes again the languages whose probes took too long, until each has answered.
    async fn find_late_ones(&self, engine: &Arc<Engine>) {
        loop {
            let late: Vec<(String, u64)> = {
                let known = self.known.borrow();
                let late = known.unavailable.iter();
                late.filter_map(|(name, error)| Some((name.clone(), error.retry_after_ms()?))).collect()
            };
            let Some(pause) = late.iter().map(|(_, pause)| *pause).min() else { return };
            tokio::time::sleep(Duration::from_millis(pause)).await;
            for (name, _) in late {
                let looked = look_for(engine, &name).await;
                let runtime = looked.0.as_ref().ok().cloned();
                self.known.send_modify(|findings| findings.note(name, looked));
                self.tell_offered();
                if let Some(runtime) = runtime {
                    self.try_canary(engine, &runtime).await.ok();
                }
            }
        }
    }

    /// Repeats the checks that ran while no sandbox could be built, once sandboxes can be built again.
    async fn look_when_regained(&self, engine: &Engine) {
        loop {
            engine.wall_regained().await;
            self.look_at_wall(engine).await.ok();
            self.try_unsure(engine).await;
        }
    }
}

/// Probes every language, several at once, and recalls the last results of their canaries.
async fn find_all(engine: &Arc<Engine>) -> Findings {
    let mut looking = JoinSet::new();
    for name in engine.runtimes().names() {
        let engine = Arc::clone(engine);
        looking.spawn(async move { (name.to_owned(), look_for(&engine, name).await) });
    }
    let mut findings = Findings { is_looked: true, ..Findings::default() };
    while let Some(looked) = looking.join_next().await {
        if let Ok((name, looked)) = looked {
            findings.note(name, looked);
        }
    }
    findings
}

/// The result of a canary run. The error means that it could not run and is inconclusive.
async fn canary(engine: &Engine, runtime: &Runtime) -> Result<Canary, String> {
    let (code, expected) = runtime.canary();
    let (language, code) = (runtime.name().to_owned(), code.to_owned());
    let request = RunRequest { language, code, cold: true, ..RunRequest::default() };
    // The canary is never cancelled; the default limits bound it.
    let (_stop, stopped) = oneshot::channel();
    let result = engine.run(&Caller::local(), request, None, stopped).await;
    let canary = judge(&result, expected);
    let is_without_word =
        matches!(result.outcome, Outcome::Unavailable | Outcome::Killed | Outcome::Cancelled);
    let verdict = if let Canary::Broken(reason) = &canary { Err(reason.clone()) } else { Ok(()) };
    if is_without_word {
        // A busy or stopped server is inconclusive about a language, and so is a server without a wall.
        return verdict.map(|()| Canary::Checking);
    }
    engine.runtimes().remember_canary(runtime, &verdict).await;
    Ok(canary)
}

fn judge(result: &RunResult, expected: &str) -> Canary {
    if result.outcome == Outcome::Completed && result.execution().stdout == expected.as_bytes() {
        return Canary::Working;
    }
    let message = |error: &RunError| match &error.cause {
        Some(cause) => format!("{} ({cause})", error.message),
        None => error.message.clone(),
    };
    let said = result.error.as_ref().map_or_else(|| "it printed something else".to_owned(), message);
    Canary::Broken(format!("its canary run ended with {}: {said}", result.outcome.name()))
}
