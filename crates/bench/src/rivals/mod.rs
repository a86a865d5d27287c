//! Other installed ways to run the same program: the plain interpreter, and other sandboxes.
//!
//! Each rival is tried once, with a timeout. A rival that is missing or does not work is reported with the
//! reason and is never an error. All rivals get a cleared environment and the interpreter file that the
//! measured server uses.

mod bubblewrap;
mod engines;
mod oci;
mod rootfs;
mod spawn;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::measured::PLAIN;
use super::program::Program;
use super::scene::Scene;

pub(super) use self::spawn::timed;

/// Timeout for the first try of a rival.
const TRY_PATIENCE: Duration = Duration::from_secs(20);

/// A way to run a program.
pub(super) trait Rival {
    /// The name in the table.
    fn name(&self) -> &str;
    /// A command that runs the program once and ends.
    fn command(&mut self, program: &Program) -> Result<Command, String>;
}

/// A working rival, and the time of one run.
pub(super) struct Ready {
    pub(super) rival: Box<dyn Rival>,
    pub(super) took: Duration,
}

/// The working rivals, and the others with the reason.
#[derive(Default)]
pub(super) struct FoundRivals {
    pub(super) ready: Vec<Ready>,
    pub(super) absent: Vec<(String, String)>,
}

/// Variants of one rival, the best first, or the reason why there is none.
type Candidates = Result<Vec<Box<dyn Rival>>, String>;

/// Finds all rivals; each must run `canary`.
pub(super) fn find(scene: &Scene, canary: &Program) -> FoundRivals {
    let mut families: Vec<(&str, Candidates)> =
        vec![(PLAIN, Ok(vec![Box::new(Plain)])), (bubblewrap::NAME, bubblewrap::find(scene))];
    families.extend(oci::RUNTIMES.map(|(name, flags)| (name, oci::find(scene, name, flags))));
    families.extend([(engines::PODMAN, engines::podman(scene)), (engines::DOCKER, engines::docker(scene))]);
    let mut found = FoundRivals::default();
    for (name, candidates) in families {
        match candidates.and_then(|candidates| first_that_works(candidates, canary)) {
            Ok(ready) => found.ready.push(ready),
            Err(reason) => found.absent.push((name.to_owned(), reason)),
        }
    }
    found
}

/// The first candidate that runs the canary, with the faster time of two runs, because the first may include
/// setup.
fn first_that_works(candidates: Vec<Box<dyn Rival>>, canary: &Program) -> Result<Ready, String> {
    let mut reason = "there is no way to set it up".to_owned();
    for mut rival in candidates {
        let mut run = || timed(rival.command(canary)?, &canary.stdout, TRY_PATIENCE);
        match run().and_then(|first| Ok(first.min(run()?))) {
            Ok(took) => return Ok(Ready { rival, took }),
            Err(error) => reason = error,
        }
    }
    Err(reason)
}

/// A command with a cleared environment, because variables of a shell slow interpreters down.
pub(super) fn bare(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
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
        let mut command = bare(interpreter);
        command.args(arguments);
        Ok(command)
    }
}

/// A program on the PATH.
fn on_path(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
    let is_program = |file: &PathBuf| {
        let found = std::fs::metadata(file);
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    files.find(is_program).ok_or_else(|| "it is not installed".to_owned())
}

/// Folders outside of /usr that interpreters need, to be mounted read-only: their installation, which is the
/// folder above `bin`.
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

/// Names in the root directory that are links into /usr on a merged system, and their targets.
fn root_links() -> Vec<(String, PathBuf)> {
    ["bin", "sbin", "lib", "lib32", "lib64", "libx32"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::fs::read_link(format!("/{name}")).ok()?)))
        .collect()
}
