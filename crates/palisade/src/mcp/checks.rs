//! What works on this machine, found out once in the background: languages, a canary run of each, the wall.
//!
//! Languages come first because the tool list needs them. The rest starts when somebody asks or shortly after
//! the start, so that it never delays the first answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, RunError, RunRequest, RunResult, Runtime, RuntimeError};
use sandbox::{Enforced, Outcome};
use serde_json::json;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;

use crate::log::{self, LogLevel};

/// How long the canaries wait for somebody to ask.
const QUIET: Duration = Duration::from_millis(300);
/// How long an answer about the machine waits for them.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is known so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    /// Whether languages were looked for.
    pub(crate) is_looked: bool,
    /// Languages with an interpreter, by name.
    pub(crate) languages: BTreeMap<String, Language>,
    /// Languages without one, and why.
    pub(crate) unavailable: BTreeMap<String, RuntimeError>,
    /// The wall, examined from outside.
    pub(crate) wall: Option<Result<Enforced, String>>,
}

/// A language that was found.
#[derive(Debug, Clone)]
pub(crate) struct Language {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) canary: Canary,
}

/// Whether its canary lives.
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

    fn is_complete(&self) -> bool {
        let is_checked = |language: &Language| language.canary != Canary::Checking;
        self.is_looked && self.wall.is_some() && self.languages.values().all(is_checked)
    }
}

/// Holds what is known.
pub(crate) struct Checks {
    known: watch::Sender<Findings>,
    asked: Notify,
    offered: watch::Sender<Vec<String>>,
}

impl Checks {
    /// Starts looking.
    pub(crate) fn start(engine: Arc<Engine>) -> Arc<Self> {
        let checks = Arc::new(Self {
            known: watch::Sender::new(Findings::default()),
            asked: Notify::new(),
            offered: watch::Sender::default(),
        });
        tokio::spawn(Arc::clone(&checks).look(engine));
        checks
    }

    /// What is known once languages were looked for.
    pub(crate) async fn languages(&self) -> Findings {
        let mut known = self.known.subscribe();
        let found = known.wait_for(|findings| findings.is_looked).await;
        found.map(|findings| findings.clone()).unwrap_or_default()
    }

    /// Changes when the languages that are offered do.
    pub(crate) fn offered(&self) -> watch::Receiver<Vec<String>> {
        self.offered.subscribe()
    }

    /// What is known once everything was checked, or as much as there is after a while.
    pub(crate) async fn all(&self) -> Findings {
        self.asked.notify_one();
        let mut known = self.known.subscribe();
        tokio::time::timeout(PATIENCE, known.wait_for(Findings::is_complete)).await.map(drop).ok();
        self.languages().await
    }

    /// Looks once more, now: the wall, then a canary of each language that was found.
    pub(crate) async fn again(&self, engine: &Engine) -> Vec<(String, Result<(), String>)> {
        let wall = engine.backend().probe().await.map(drop).map_err(|error| error.to_string());
        let mut found = vec![("wall".to_owned(), wall)];
        for (name, language) in self.languages().await.languages {
            let canary = match canary(engine, &language.runtime).await {
                Canary::Broken(reason) => Err(reason),
                Canary::Checking | Canary::Working => Ok(()),
            };
            found.push((name, canary));
        }
        found
    }

    async fn look(self: Arc<Self>, engine: Arc<Engine>) {
        let findings = find_all(&engine).await;
        let unsure: Vec<Arc<Runtime>> = findings
            .languages
            .values()
            .map(|found| Arc::clone(&found.runtime))
            .filter(|runtime| !engine.runtimes().recall_canary(runtime).is_some_and(|seen| seen.is_fresh))
            .collect();
        self.offered.send_replace(findings.offered());
        self.known.send_replace(findings);
        tokio::time::timeout(QUIET, self.asked.notified()).await.ok();
        let wall = engine.backend().probe().await.map_err(|error| error.to_string());
        self.known.send_modify(|findings| findings.wall = Some(wall));
        for runtime in unsure {
            let canary = canary(&engine, &runtime).await;
            if let Canary::Broken(reason) = &canary {
                let fields = [("language", json!(runtime.name())), ("reason", json!(reason))];
                log::line(LogLevel::Warn, "language_broken", &fields);
            }
            self.known.send_modify(|findings| {
                if let Some(language) = findings.languages.get_mut(runtime.name()) {
                    language.canary = canary;
                }
            });
            let offered = self.known.borrow().offered();
            self.offered.send_if_modified(|known| std::mem::replace(known, offered.clone()) != offered);
        }
    }
}

/// Looks for every language, several at once, and recalls what their canaries showed before.
async fn find_all(engine: &Arc<Engine>) -> Findings {
    let mut looking = JoinSet::new();
    for name in engine.runtimes().names() {
        let engine = Arc::clone(engine);
        looking.spawn(async move { (name.to_owned(), engine.runtimes().find(name).await) });
    }
    let mut findings = Findings { is_looked: true, ..Findings::default() };
    while let Some(looked) = looking.join_next().await {
        match looked {
            Ok((name, Ok(runtime))) => {
                let seen = engine.runtimes().recall_canary(&runtime);
                let canary = seen.map_or(Canary::Checking, |seen| match seen.verdict {
                    Ok(()) => Canary::Working,
                    Err(reason) => Canary::Broken(reason),
                });
                drop(findings.languages.insert(name, Language { runtime, canary }));
            }
            Ok((name, Err(error))) => drop(findings.unavailable.insert(name, error)),
            Err(_) => {}
        }
    }
    findings
}

async fn canary(engine: &Engine, runtime: &Runtime) -> Canary {
    let (code, expected) = runtime.canary();
    let (language, code) = (runtime.name().to_owned(), code.to_owned());
    let request = RunRequest { language, code, cold: true, ..RunRequest::default() };
    // Nobody stops it; it has the default limits.
    let (_stop, stopped) = oneshot::channel();
    let result = engine.run(request, None, stopped).await;
    let canary = judge(&result, expected);
    // A busy or stopped server says nothing about a language.
    if !matches!(result.outcome, Outcome::Unavailable | Outcome::Killed | Outcome::Cancelled) {
        let verdict = if let Canary::Broken(reason) = &canary { Err(reason.clone()) } else { Ok(()) };
        engine.runtimes().remember_canary(runtime, &verdict);
    }
    canary
}

fn judge(result: &RunResult, expected: &str) -> Canary {
    if result.outcome == Outcome::Completed && result.stdout == expected.as_bytes() {
        return Canary::Working;
    }
    let message = |error: &RunError| match &error.cause {
        Some(cause) => format!("{} ({cause})", error.message),
        None => error.message.clone(),
    };
    let said = result.error.as_ref().map_or_else(|| "it printed something else".to_owned(), message);
    Canary::Broken(format!("its canary run ended with {}: {said}", result.outcome.name()))
}
