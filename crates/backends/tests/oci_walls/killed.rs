//! What is left of containers: nothing, whoever ends and however.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use backends::native::NativeBackend;
use backends::oci::OciRuntime;
use libtest_mimic::Failed;
use sandbox::{Backend, SandboxSpec};

use crate::place::{Place, backend, executor, inhabited, told};

const ROLE: &str = "server-to-be-killed";
const PATIENCE: Duration = Duration::from_secs(60);
/// Enough to see something that one of them leaves.
const RUNS: usize = 12;
/// With PALISADE_LONG.
const RUNS_LONG: usize = 500;

/// A server that has sandboxes and waits for its death.
pub(crate) fn take_role(native: &NativeBackend) -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let (folder, name) = (PathBuf::from(arguments.next()?), arguments.next()?);
    let runtime = OciRuntime::ALL.into_iter().find(|runtime| runtime.name() == name)?;
    executor().block_on(async {
        let backend = backend(native, &folder, runtime, None);
        let _sandboxes = (
            backend.create(&SandboxSpec::default()).await.unwrap(),
            backend.create(&SandboxSpec::default()).await.unwrap(),
        );
        println!("ready");
        std::io::stdout().flush().unwrap();
        std::future::pending::<()>().await;
    });
    Some(ExitCode::SUCCESS)
}

pub(crate) fn leaves_nothing(place: &Place, runtime: OciRuntime) -> Result<(), Failed> {
    let folder = place.folder.join(format!("killed-{}", runtime.name()));
    std::fs::create_dir(&folder)?;
    let mut server = Command::new(std::env::current_exe()?)
        .args([ROLE, &folder.to_string_lossy(), runtime.name()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let group = group_of(&folder, runtime)?;
    server.kill()?;
    server.wait()?;
    assert_eq!(line, "ready\n");
    // The next server with the same state directory.
    let parts = backends::host::HostParts { state_dir: folder.clone(), ..Default::default() };
    let next = place.beside(runtime, &parts);
    until_gone(&folder, runtime, &group)?;
    drop(next);
    Ok(())
}

/// The name of the groups of the only server in a state directory.
fn group_of(folder: &Path, runtime: OciRuntime) -> Result<String, Failed> {
    let above = folder.join("walls").join(runtime.name());
    let first = std::fs::read_dir(above)?.flatten().next().ok_or("the server has no directory")?;
    Ok(first.file_name().to_string_lossy().into_owned())
}

/// No directory, no process, no control group and no mount of that server is left.
pub(crate) fn until_gone(folder: &Path, runtime: OciRuntime, group: &str) -> Result<(), Failed> {
    let began = Instant::now();
    loop {
        let left = left(folder, runtime, group);
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("left: {left:?}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn left(folder: &Path, runtime: OciRuntime, group: &str) -> Vec<String> {
    let mut left = Vec::new();
    let home = folder.join("walls").join(runtime.name()).join(group);
    left.extend(home.exists().then(|| home.display().to_string()));
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        // A process that has ended and waits for its parent is not left.
        if read("cgroup").contains(group) && !read("status").contains("State:\tZ") {
            left.push(entry.path().display().to_string());
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    left.extend(mounts.lines().filter(|line| line.contains(group)).map(str::to_owned));
    left.extend(groups(Path::new("/sys/fs/cgroup"), group, 0));
    left
}

fn groups(below: &Path, name: &str, depth: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy() == name {
            found.push(entry.path().display().to_string());
        } else if depth < 4 {
            found.extend(groups(&entry.path(), name, depth + 1));
        }
    }
    found
}

pub(crate) fn many_leave_nothing(place: &Place, runtime: OciRuntime) -> Result<(), Failed> {
    let folder = place.folder.join(format!("many-{}", runtime.name()));
    std::fs::create_dir(&folder)?;
    let parts = backends::host::HostParts { state_dir: folder.clone(), ..Default::default() };
    let group = executor().block_on(async {
        let backend = place.beside(runtime, &parts);
        let runs = if std::env::var_os("PALISADE_LONG").is_some() { RUNS_LONG } else { RUNS };
        for _ in 0..runs {
            let (mut sandbox, mut shell) = inhabited(&backend, &SandboxSpec::default()).await?;
            assert_eq!(shell.run("echo ran").await?, "ran\n");
            sandbox.destroy().await.map_err(told)?;
        }
        group_of(&folder, runtime)
    })?;
    // The groups of this test's own process stay in the hierarchies of its native wall.
    let began = Instant::now();
    loop {
        let left: Vec<String> =
            left(&folder, runtime, &group).into_iter().filter(|left| !left.ends_with(&group)).collect();
        let stays = folder.join("walls").join(runtime.name()).join(&group).exists();
        if left.is_empty() && !stays {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("left: {left:?}, directory: {stays}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
