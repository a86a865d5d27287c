//! Other ways to run the same program that are installed here: the plain interpreter, and walls of others.
//!
//! Each is tried once, bounded in time. One that is missing or does not work is told with its reason and never an
//! error. All get a cleared environment and the interpreter file that our server uses.

mod bubblewrap;
mod spawn;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::measured::PLAIN;
use super::program::Program;
use super::scene::Scene;

pub(super) use self::spawn::timed;

/// How long the first try of a rival may take.
const TRY_PATIENCE: Duration = Duration::from_secs(20);

/// A way to run a program.
pub(super) trait Rival {
    /// As the table calls it.
    fn name(&self) -> &str;
    /// A command that runs the program once and ends.
    fn command(&mut self, program: &Program) -> Result<Command, String>;
}

/// One that works here, and what its first run took.
pub(super) struct Ready {
    pub(super) rival: Box<dyn Rival>,
    pub(super) first: Duration,
}

/// What was found: those that work, and the others with the reason.
#[derive(Default)]
pub(super) struct Found {
    pub(super) ready: Vec<Ready>,
    pub(super) absent: Vec<(String, String)>,
}

/// Looks for all of them; each must run `canary`.
pub(super) fn find(scene: &Scene, canary: &Program) -> Found {
    let candidates: Vec<(&str, Result<Box<dyn Rival>, String>)> = vec![
        (PLAIN, Ok(Box::new(Plain))),
        (bubblewrap::NAME, bubblewrap::find(scene).map(|rival| Box::new(rival) as Box<dyn Rival>)),
    ];
    let mut found = Found::default();
    for (name, candidate) in candidates {
        let tried = candidate.and_then(|mut rival| {
            let took = timed(rival.command(canary)?, &canary.stdout, TRY_PATIENCE)?;
            Ok(Ready { rival, first: took })
        });
        match tried {
            Ok(ready) => found.ready.push(ready),
            Err(reason) => found.absent.push((name.to_owned(), reason)),
        }
    }
    found
}

/// The interpreter without any wall.
struct Plain;

impl Rival for Plain {
    fn name(&self) -> &str {
        PLAIN
    }

    fn command(&mut self, program: &Program) -> Result<Command, String> {
        let line = program.plain_command().ok_or("it cannot be started without a file")?;
        let (interpreter, arguments) = line.split_first().ok_or("it has no command line")?;
        let mut command = Command::new(interpreter);
        command.args(arguments);
        Ok(command)
    }
}

/// A program on the PATH.
fn on_path(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
    files.find(|file| engine::runtimes::is_program(file)).ok_or_else(|| "it is not installed".to_owned())
}

/// Folders outside of /usr that interpreters need, to be shown read-only: their installation, which is the folder
/// above `bin`.
fn installations(scene: &Scene) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = scene
        .languages
        .iter()
        .filter(|language| !language.interpreter.starts_with("/usr"))
        .filter_map(|language| language.interpreter.parent().and_then(Path::parent).map(Path::to_path_buf))
        .filter(|folder| folder != Path::new("/"))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Names at the root that lead into /usr on a merged system, and where they lead.
fn root_links() -> Vec<(String, PathBuf)> {
    ["bin", "sbin", "lib", "lib32", "lib64", "libx32"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::fs::read_link(format!("/{name}")).ok()?)))
        .collect()
}
