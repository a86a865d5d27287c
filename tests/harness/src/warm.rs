//! A server whose next run takes a spare, for tests of sandboxes built ahead of time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::Server;
use crate::{Build, Palisade, User};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A `palisade serve` with its pool of spares.
pub struct Warm {
    /// The server itself.
    pub server: Server,
    /// The user that runs it.
    pub user: User,
}

impl Warm {
    /// Starts one on a free port, for this test only.
    pub fn start(user: User) -> Self {
        Self::start_with(user, &[])
    }

    /// The same with settings as environment variables.
    pub fn start_with(user: User, variables: &[(&str, &str)]) -> Self {
        let listen = ["serve", "--listen", "127.0.0.1:0", "--no-auth"];
        let start = Palisade::new(Build::Real, user, &listen);
        let palisade = variables.iter().fold(start, |palisade, (name, value)| palisade.env(name, value));
        Self { server: Server::start(palisade), user }
    }

    /// Calls `run`. Returns the result without the long list of guarantees.
    pub fn run(&self, arguments: Value) -> Value {
        let mut result = self.server.call("run", arguments);
        result.as_object_mut().map(|fields| fields.remove("isolation"));
        result
    }

    /// A value of `/metrics`; zero if it is absent.
    pub fn metric(&self, name: &str) -> u64 {
        let (status, page) = self.server.request("GET", "/metrics", &[], b"");
        assert_eq!(status, 200);
        let page = String::from_utf8_lossy(&page).into_owned();
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse::<f64>().unwrap() as u64)
    }

    /// How many spares of a language are ready.
    pub fn spares(&self, language: &str) -> u64 {
        // Both languages share an interpreter, and its spares.
        let language = if language == "typescript" { "javascript" } else { language };
        self.metric(&format!("palisade_pool_spares{{language=\"{language}\",purpose=\"run\"}}"))
    }

    /// How many runs got a spare.
    pub fn hits(&self) -> u64 {
        self.metric("palisade_pool_leases_total{result=\"hit\"}")
    }

    /// How many spares were discarded for that reason.
    pub fn discards(&self, reason: &str) -> u64 {
        self.metric(&format!("palisade_pool_discards_total{{reason=\"{reason}\"}}"))
    }

    /// Ensures that a spare of that language is ready.
    pub fn warm_up(&self, language: &str, program: &str) {
        if self.spares(language) == 0 {
            let first = self.run(json!({"language": language, "code": program}));
            assert_eq!(first["outcome"], "completed", "as {:?}: {first:#}", self.user);
        }
        let deadline = Instant::now() + PATIENCE;
        while self.spares(language) == 0 {
            assert!(Instant::now() < deadline, "as {:?}: no spare of {language}", self.user);
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// A run that must take a spare.
    pub fn leased(&self, arguments: Value) -> Value {
        let language = arguments["language"].as_str().unwrap().to_owned();
        self.warm_up(&language, trivial(&language));
        let before = self.hits();
        let result = self.run(arguments);
        assert_eq!(self.hits(), before + 1, "as {:?}, no spare was taken: {result:#}", self.user);
        result
    }
}

/// A program that any interpreter of that language accepts.
pub fn trivial(language: &str) -> &'static str {
    match language {
        "bash" => ":",
        "php" => "<?php",
        "tcl" => "set x 1",
        "lua" => "x = 1",
        "awk" => "BEGIN { x = 1 }",
        _ => "1",
    }
}
