//! Read-only directories of the server: their content is visible inside, and cannot be changed there.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Subject, holds, run};
use crate::{Layer, SandboxSpec};

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
    let kept = fs::read(folder.path.join("words")).map_err(|error| error.to_string())?;
    holds(kept == b"from the server", "a layer stays as it is on the server", &kept.len())
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
