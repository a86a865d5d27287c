//! What is left of containers: nothing, whoever ends and however.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use backends::daemon::Engine;
use backends::native::NativeBackend;
use libtest_mimic::Failed;
use sandbox::workspace::WorkspaceRef;
use sandbox::{Backend, SandboxSpec};

use crate::place::{Place, backend, executor, inhabited, told};
use crate::wire::labelled;

pub(crate) const ROLE: &str = "server-to-be-killed";
const PATIENCE: Duration = Duration::from_secs(60);
/// Enough to see something that one of them leaves.
const RUNS: usize = 12;
/// With PALISADE_LONG.
const RUNS_LONG: usize = 500;

/// A workspace whose files must outlive every server.
fn lasting() -> WorkspaceRef {
    WorkspaceRef { id: "lasting".to_owned(), identity: 5 }
}

/// A server that has sandboxes and waits for its death.
pub(crate) fn take_role(native: &NativeBackend) -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let (folder, name) = (PathBuf::from(arguments.next()?), arguments.next()?);
    let socket = PathBuf::from(arguments.next()?);
    let engine = Engine::ALL.into_iter().find(|engine| engine.name() == name)?;
    executor().block_on(async {
        let backend = backend(native, &folder, engine, &socket);
        let _sandboxes = (
            backend.create(&SandboxSpec::default()).await.unwrap(),
            backend.create(&SandboxSpec::default()).await.unwrap(),
        );
        println!("ready");
        std::io::stdout().flush().unwrap();
        // Killed while it builds more, which have files that last.
        let spec = SandboxSpec { workspace: Some(lasting()), ..SandboxSpec::default() };
        loop {
            drop(backend.create(&spec).await.unwrap());
        }
    })
}

pub(crate) fn a_server_leaves_nothing(place: &Place, engine: Engine) -> Result<(), Failed> {
    let folder = place.folder.join(format!("killed-{}", engine.name()));
    std::fs::create_dir(&folder)?;
    let socket = place.socket(engine).ok_or("not installed")?;
    let kept = folder.join("sandboxes").join(lasting().id).join("workspace");
    std::fs::create_dir_all(&kept)?;
    std::fs::write(kept.join("kept"), "a file that lasts")?;
    for _ in 0..3 {
        let mut server = Command::new(std::env::current_exe()?)
            .args([ROLE, &folder.to_string_lossy(), engine.name(), &socket.to_string_lossy()])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let name = server_of(&folder, engine)?;
        let containers = labelled(&socket, "containers", &name);
        server.kill()?;
        server.wait()?;
        assert_eq!(line, "ready\n");
        assert!(containers.len() >= 2, "{containers:?}");
        // The next server with the same state directory.
        let next = backend(&place.native, &folder, engine, &socket);
        until_gone(&folder, engine, (&name, &containers), &socket)?;
        drop(next);
        assert_eq!(std::fs::read_to_string(kept.join("kept"))?, "a file that lasts");
    }
    Ok(())
}

/// The name of the only server in a state directory.
pub(crate) fn server_of(folder: &Path, engine: Engine) -> Result<String, Failed> {
    let above = folder.join("walls").join(engine.name());
    let first = std::fs::read_dir(above)?.flatten().next().ok_or("the server has no directory")?;
    Ok(first.file_name().to_string_lossy().into_owned())
}

pub(crate) fn until_gone(
    folder: &Path,
    engine: Engine,
    (server, containers): (&str, &[String]),
    socket: &Path,
) -> Result<(), Failed> {
    let began = Instant::now();
    loop {
        let left = left(folder, engine, (server, containers), socket);
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("left: {left:?}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Directories, containers, images, processes, mounts and control groups of a server.
fn left(
    folder: &Path,
    engine: Engine,
    (server, containers): (&str, &[String]),
    socket: &Path,
) -> Vec<String> {
    let mut left = Vec::new();
    let home = folder.join("walls").join(engine.name()).join(server);
    left.extend(home.exists().then(|| home.display().to_string()));
    left.extend(labelled(socket, "containers", server));
    left.extend(labelled(socket, "images", server));
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let groups = read("cgroup");
        if containers.iter().any(|id| groups.contains(id)) && !read("status").contains("State:\tZ") {
            left.push(entry.path().display().to_string());
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    left.extend(mounts.lines().filter(|line| line.contains(server)).map(str::to_owned));
    let named = [containers, &[format!("containers.{}.{server}", engine.name())]].concat();
    left.extend(groups(Path::new("/sys/fs/cgroup"), &named, 0));
    left
}

/// Control groups whose names contain one of those.
fn groups(below: &Path, named: &[String], depth: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if named.iter().any(|part| name.contains(part)) {
            found.push(entry.path().display().to_string());
        } else if depth < 4 {
            found.extend(groups(&entry.path(), named, depth + 1));
        }
    }
    found
}

pub(crate) fn many_leave_nothing(place: &Place, engine: Engine) -> Result<(), Failed> {
    let folder = place.folder.join(format!("many-{}", engine.name()));
    std::fs::create_dir(&folder)?;
    let socket = place.socket(engine).ok_or("not installed")?;
    let runs = if std::env::var_os("PALISADE_LONG").is_some() { RUNS_LONG } else { RUNS };
    let (server, containers) = executor().block_on(async {
        let backend = backend(&place.native, &folder, engine, &socket);
        let mut containers = Vec::new();
        for _ in 0..runs {
            let (mut sandbox, mut shell) = inhabited(&backend, &SandboxSpec::default()).await?;
            assert_eq!(shell.run("echo ran").await?, "ran\n");
            let server = server_of(&folder, engine)?;
            containers.extend(labelled(&socket, "containers", &server));
            sandbox.destroy().await.map_err(told)?;
        }
        Ok::<_, Failed>((server_of(&folder, engine)?, containers))
    })?;
    until_gone(&folder, engine, (&server, &containers), &socket)
}

/// Sandboxes end although their engine is gone, and the engine that comes back is used and cleaned.
pub(crate) fn an_engine_leaves_nothing(place: &Place, engine: Engine) -> Result<(), Failed> {
    let folder = place.folder.join(format!("engine-{}", engine.name()));
    std::fs::create_dir(&folder)?;
    let socket = place.socket(engine).ok_or("not installed")?;
    let (server, containers) = executor().block_on(async {
        let backend = backend(&place.native, &folder, engine, &socket);
        let mut sandbox = backend.create(&SandboxSpec::default()).await.map_err(told)?;
        let server = server_of(&folder, engine)?;
        let containers = labelled(&socket, "containers", &server);
        place.restart(engine);
        sandbox.destroy().await.map_err(told)?;
        drop(sandbox);
        let mut another = backend.create(&SandboxSpec::default()).await.map_err(told)?;
        another.destroy().await.map_err(told)?;
        Ok::<_, Failed>((server, containers))
    })?;
    until_gone(&folder, engine, (&server, &containers), &socket)
}
