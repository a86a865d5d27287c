//! SIGKILL of the server, of the engine, of its shims and of processes inside, at moments that a seed chooses.
//!
//! A second process serves: it builds sandboxes, runs a command in each, and destroys them. A build may fail while its
//! parts are killed; a later one must not. What a killed server leaves is removed by the next one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backends::daemon::{DaemonBackend, Engine};
use backends::native::NativeBackend;
use harness::Chance;
use harness::fire::{UnderFire, kill_one, processes_with, tell_run, until_input_ends};
use libtest_mimic::Failed;
use sandbox::SandboxSpec;

use crate::killed::until_gone;
use crate::place::{Place, backend, engines_folder, executor, inhabited};
use crate::wire::labelled;

pub(crate) const ROLE: &str = "server-under-fire";
const SEED: u64 = 22;
const KILLS: usize = 8;
/// With PALISADE_LONG.
const KILLS_LONG: usize = 60;
/// Longer than it takes to build a sandbox and to destroy it.
const MOMENT_MS: usize = 800;

/// Builds and destroys, two at a time, until standard input ends.
pub(crate) fn take_role(native: &NativeBackend) -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let (folder, name) = (PathBuf::from(arguments.next()?), arguments.next()?);
    let socket = PathBuf::from(arguments.next()?);
    let engine = Engine::ALL.into_iter().find(|engine| engine.name() == name)?;
    let is_over = until_input_ends();
    executor().block_on(async {
        let wall = backend(native, &folder, engine, &socket);
        tokio::join!(serve(&wall, &is_over), serve(&wall, &is_over));
    });
    Some(ExitCode::SUCCESS)
}

async fn serve(wall: &DaemonBackend, is_over: &AtomicBool) {
    /// An engine that is gone refuses at once.
    const AGAIN: Duration = Duration::from_millis(50);
    while !is_over.load(Ordering::Relaxed) {
        // What becomes of it while its parts are killed is not the question.
        let Ok((mut sandbox, mut shell)) = inhabited(wall, &SandboxSpec::default()).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let answer = shell.run("echo ran").await;
        sandbox.destroy().await.ok();
        if answer.is_ok_and(|answer| answer == "ran\n") {
            tell_run();
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Victim {
    Server,
    Engine,
    Shim,
    Member,
}

const VICTIMS: [Victim; 4] = [Victim::Server, Victim::Engine, Victim::Shim, Victim::Member];

/// The server of the moment, and every container that was seen of it.
struct Fired<'a> {
    place: &'a Place,
    engine: Engine,
    folder: PathBuf,
    socket: PathBuf,
    server: UnderFire,
    name: String,
    containers: Vec<String>,
}

impl<'a> Fired<'a> {
    fn start(place: &'a Place, engine: Engine, folder: &Path) -> Result<Self, Failed> {
        let socket = place.socket(engine).ok_or("not installed")?;
        let (at, socket_at) = (folder.display().to_string(), socket.display().to_string());
        let server = UnderFire::start(&[ROLE, &at, engine.name(), &socket_at])?;
        let name = server.locked_in(folder)?;
        Ok(Self { place, engine, folder: folder.to_owned(), socket, server, name, containers: Vec::new() })
    }

    fn look(&mut self) -> Vec<String> {
        let now = labelled(&self.socket, "containers", &self.name);
        self.containers
            .extend(now.iter().filter(|id| !self.containers.contains(id)).cloned().collect::<Vec<_>>());
        now
    }

    /// Kills a party; a moment without it is none.
    fn lose(&mut self, victim: Victim, chance: &mut Chance) {
        let containers = self.look();
        match victim {
            Victim::Server => self.server.kill(),
            Victim::Engine => self.place.restart(self.engine),
            Victim::Shim => {
                let mark = engines_folder().display().to_string();
                let is_shim = |line: &str| {
                    line.contains(&mark) && (line.contains("containerd-shim") || line.contains("conmon"))
                };
                kill_one(&processes_with("cmdline", is_shim), chance);
            }
            Victim::Member => {
                let is_inside = |groups: &str| containers.iter().any(|id| groups.contains(id));
                kill_one(&processes_with("cgroup", is_inside), chance);
            }
        }
    }

    fn until_gone(&self) -> Result<(), Failed> {
        until_gone(&self.folder, self.engine, (&self.name, &self.containers), &self.socket)
    }
}

pub(crate) fn leaves_nothing(place: &Place, engine: Engine) -> Result<(), Failed> {
    let folder = place.folder.join(format!("fire-{}", engine.name()));
    std::fs::create_dir(&folder)?;
    let kills = if std::env::var_os("PALISADE_LONG").is_some() { KILLS_LONG } else { KILLS };
    let mut chance = Chance::new(SEED);
    let mut fired = Fired::start(place, engine, &folder)?;
    for number in 0..kills {
        std::thread::sleep(Duration::from_millis(chance.below(MOMENT_MS) as u64));
        // The first ones in order, so that also few kills are of every kind.
        let victim = VICTIMS[if number < VICTIMS.len() { number } else { chance.below(VICTIMS.len()) }];
        eprintln!("kill {number}: {victim:?}");
        fired.lose(victim, &mut chance);
        if matches!(victim, Victim::Server) {
            let next = Fired::start(place, engine, &folder)?;
            let gone = std::mem::replace(&mut fired, next);
            gone.until_gone()?;
        } else {
            let served = fired.server.serves();
            served.map_err(|_| format!("after kill {number} of {victim:?} no run succeeds"))?;
        }
    }
    fired.look();
    let ended = fired.server.end()?;
    assert!(ended.success(), "{ended}");
    fired.until_gone()
}
