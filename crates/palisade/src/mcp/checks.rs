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
        let names: Vec<String> = engine.runtimes().names().map(str::to_owned).collect();
        let mut findings = Findings { is_looked: true, ..Findings::default() };
        // Together: each probe starts an interpreter, some take half a second the first time.
        let mut looking = JoinSet::new();
        for name in names {
            let engine = Arc::clone(&engine);
            looking.spawn(async move { (engine.runtimes().find(&name).await, name) });
        }
        while let Some(looked) = looking.join_next().await {
            let Ok((found, name)) = looked else { continue };
            match found {
                Ok(runtime) => {
                    drop(findings.languages.insert(name, Language { runtime, canary: Canary::Checking }))
                }
                Err(error) => drop(findings.unavailable.insert(name, error)),
            }
        }
        let languages: Vec<Arc<Runtime>> =
            findings.languages.values().map(|found| Arc::clone(&found.runtime)).collect();
        self.known.send_replace(findings);
        tokio::time::timeout(QUIET, self.asked.notified()).await.ok();
        let wall = engine.backend().probe().await.map_err(|error| error.to_string());
        self.known.send_modify(|findings| findings.wall = Some(wall));
        for runtime in languages {
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
        }
    }
}

async fn canary(engine: &Engine, runtime: &Runtime) -> Canary {
    let (code, expected) = runtime.canary();
    let request =
        RunRequest { language: runtime.name().to_owned(), code: code.to_owned(), ..RunRequest::default() };
    // Nobody stops it; it has the default limits.
    let (_stop, stopped) = oneshot::channel();
    judge(&engine.run(request, None, stopped).await, expected)
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
