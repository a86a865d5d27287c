//! A wall beside the native one, for the palisades of a test: its runtime is installed, or an engine of the test runs.
//!
//! A wall that cannot be tried here is skipped, and the output says so by name.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::Palisade;
use crate::engines::{DOCKER, PODMAN, Running, ask};

const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// `{"label":["org.palisade.server"]}`
const OF_PALISADE: &str = "%7B%22label%22%3A%5B%22org.palisade.server%22%5D%7D";

/// A running engine in a directory of its own, which is removed after it.
#[derive(Debug)]
pub struct OwnEngine {
    running: Option<Running>,
    folder: PathBuf,
}

impl OwnEngine {
    /// Starts an engine; `None` if it is not installed.
    pub fn start(name: &'static str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Podman takes no long paths.
        let folder = std::env::temp_dir().join(format!("palisade-e{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let running = Running::start(name, &folder);
        let engine = Self { running, folder };
        engine.running.is_some().then_some(engine)
    }

    /// The engine.
    pub fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    /// A directory for files of the test.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sets the socket of its wall.
    #[must_use]
    pub fn set(&self, palisade: Palisade) -> Palisade {
        let variable = format!("PALISADE_WALL_{}_SOCKET", self.running().name().to_uppercase());
        palisade.env(&variable, &self.running().socket().display().to_string())
    }

    /// Containers and images of any palisade that the engine has.
    pub fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for what in ["containers", "images"] {
            let path = format!("{what}/json?all=true&filters={OF_PALISADE}");
            let body = ask(&self.running().socket(), "GET", &path, ("", b"")).unwrap();
            let told: Value = serde_json::from_slice(&body).unwrap();
            left.extend(told.as_array().into_iter().flatten().map(|one| format!("{what} {}", one["Id"])));
        }
        left
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        drop(self.running.take());
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// A wall that can be tried here.
#[derive(Debug)]
pub struct Behind {
    wall: &'static str,
    engine: Option<OwnEngine>,
}

impl Behind {
    /// The wall of that name; `None` where it cannot be tried.
    pub fn new(wall: &'static str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: the suite does not run as root, so the wall {wall} is not tested");
            return None;
        }
        let command = if wall == "gvisor" { "runsc" } else { wall };
        let (is_here, engine) = if [DOCKER, PODMAN].contains(&wall) {
            let engine = OwnEngine::start(wall);
            (engine.is_some(), engine)
        } else {
            (FOLDERS.iter().any(|folder| Path::new(folder).join(command).is_file()), None)
        };
        if !is_here {
            eprintln!(
                "SKIPPED: {command} is not installed, so the wall {wall} is not tested (scripts/setup-tests.sh)"
            );
        }
        is_here.then_some(Self { wall, engine })
    }

    /// Its name.
    pub fn wall(&self) -> &'static str {
        self.wall
    }

    /// Makes the wall available to a palisade.
    #[must_use]
    pub fn set(&self, palisade: Palisade) -> Palisade {
        match &self.engine {
            Some(engine) => engine.set(palisade),
            None => palisade,
        }
    }

    /// Makes it the only wall of a palisade.
    #[must_use]
    pub fn make_default(&self, palisade: Palisade) -> Palisade {
        self.set(palisade).env("PALISADE_WALL_DEFAULT", self.wall)
    }

    /// What its engine has of any palisade.
    pub fn left(&self) -> Vec<String> {
        self.engine.as_ref().map(OwnEngine::left).unwrap_or_default()
    }
}
