//! Read-only directories of the server: their content is visible inside, and cannot be changed there.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Subject, holds, run};
use crate::{BackendError, Layer, SandboxSpec};

const TARGET: &str = "/opt/conformance";
/// More than one piece of anything that carries it.
const LARGE_BYTES: usize = 300_000;

static MADE: AtomicU64 = AtomicU64::new(0);

pub(super) async fn check(subject: Subject<'_>) -> Result<(), String> {
    let folder = Folder::make().map_err(|error| format!("the layer of the test: {error}"))?;
    let layer = Layer { digest: folder.digest.clone(), path: folder.path.clone(), target: TARGET.into() };
    let spec = SandboxSpec { layers: vec![layer], ..SandboxSpec::default() };
    // The second sandbox has the layer by its digest alone, where the backend remembers it.
    for _ in 0..2 {
        let (_sandbox, mut shell) = subject.inhabited(&spec).await?;
        for (command, expected, clause) in [
            ("cat words", "from the server".to_owned(), "the files of a layer are visible"),
            ("cat deep/er/words", "deep".to_owned(), "the directories of a layer are visible"),
            ("cat link", "from the server".to_owned(), "the links of a layer lead where they led"),
            ("wc -c < large", format!("{LARGE_BYTES}\n"), "the files of a layer are whole"),
            ("./program", "ran\n".to_owned(), "the programs of a layer can be executed"),
            (
                "(echo x > words) 2>/dev/null; cat words",
                "from the server".to_owned(),
                "a layer cannot be written",
            ),
            ("rm -f words 2>/dev/null; cat words", "from the server".to_owned(), "a layer keeps its files"),
        ] {
            let output = run(&mut shell, &format!("cd {TARGET} && {command}")).await?;
            holds(output == expected, clause, &output)?;
        }
    }
    attached(subject, &folder).await?;
    let kept = fs::read(folder.path.join("words")).map_err(|error| error.to_string())?;
    holds(kept == b"from the server", "a layer stays as it is on the server", &kept.len())
}

/// A layer that is attached to an existing sandbox, unless the backend says that it cannot.
async fn attached(subject: Subject<'_>, folder: &Folder) -> Result<(), String> {
    let spec = SandboxSpec { attach_points: vec![TARGET.into()], ..SandboxSpec::default() };
    let (mut sandbox, mut shell) = subject.inhabited(&spec).await?;
    let (_other, mut beside) = subject.inhabited(&spec).await?;
    let layer = Layer { digest: folder.digest.clone(), path: folder.path.clone(), target: TARGET.into() };
    let elsewhere = Layer { target: "/opt/elsewhere".into(), ..layer.clone() };
    let refused = sandbox.attach(&elsewhere).await;
    holds(refused.is_err(), "a layer is attached at an attach point and nowhere else", &refused)?;
    match sandbox.attach(&layer).await {
        Err(BackendError::Unsupported { .. }) => return Ok(()),
        answer => holds(answer.is_ok(), "a layer can be attached, or the wall says that it cannot", &answer)?,
    }
    let newer = Folder::make().map_err(|error| format!("the layer of the test: {error}"))?;
    fs::write(newer.path.join("words"), "newer").map_err(|error| error.to_string())?;
    let changed = "(echo x > words; rm words; chmod 777 .; touch new) 2>/dev/null; cat words; ls | wc -l";
    for (command, expected, clause) in [
        ("cat words deep/er/words", "from the serverdeep", "an attached layer is visible at once"),
        ("./program", "ran\n", "the programs of an attached layer can be executed"),
        (changed, "from the server5\n", "an attached layer cannot be changed"),
        ("cat ../../words ../words 2>/dev/null", "", "nothing beside an attached layer is visible"),
    ] {
        let output = run(&mut shell, &format!("cd {TARGET} && {command}")).await?;
        holds(output == expected, clause, &output)?;
    }
    let output = run(&mut beside, &format!("ls {TARGET} | wc -l")).await?;
    holds(output == "0\n", "a layer is attached to one sandbox alone", &output)?;
    let over = Layer { digest: newer.digest.clone(), path: newer.path.clone(), target: TARGET.into() };
    let answer = sandbox.attach(&over).await;
    holds(answer.is_ok(), "a layer can be attached over another one", &answer)?;
    let output = run(&mut shell, &format!("cat {TARGET}/words")).await?;
    holds(output == "newer", "a layer that is attached later covers the earlier one", &output)?;
    sandbox.destroy().await.map_err(|error| error.to_string())?;
    let answer = sandbox.attach(&layer).await;
    holds(answer.is_err(), "nothing is attached to a destroyed sandbox", &answer)
}

/// A directory that is removed at the end.
struct Folder {
    path: PathBuf,
    digest: String,
}

impl Folder {
    fn make() -> io::Result<Self> {
        let (pid, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let digest = format!("conformance-{pid}-{number}");
        let path = std::env::temp_dir().join(format!("palisade-test-{pid}-layer-{number}"));
        fs::create_dir(&path)?;
        let folder = Self { path, digest };
        folder.fill()?;
        Ok(folder)
    }

    fn fill(&self) -> io::Result<()> {
        let readable = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        readable(&self.path, 0o755)?;
        fs::create_dir_all(self.path.join("deep/er"))?;
        for (name, content, mode) in [
            ("words", b"from the server".to_vec(), 0o644),
            ("deep/er/words", b"deep".to_vec(), 0o644),
            ("large", vec![b'x'; LARGE_BYTES], 0o644),
            ("program", b"#!/bin/sh\necho ran\n".to_vec(), 0o755),
        ] {
            let file = self.path.join(name);
            fs::write(&file, content)?;
            readable(&file, mode)?;
        }
        readable(&self.path.join("deep"), 0o755)?;
        readable(&self.path.join("deep/er"), 0o755)?;
        std::os::unix::fs::symlink("words", self.path.join("link"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover in the directory for temporary files harms nothing.
        fs::remove_dir_all(&self.path).ok();
    }
}
