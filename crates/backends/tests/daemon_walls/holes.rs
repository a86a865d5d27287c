//! One hole in each wall, seen to be used: a program reads a secret of the host where the engine shows its directory and
//! a test build does not examine the container.
//!
//! The examination can be switched off only by the environment of a process with the feature `breach`, so a second
//! process attacks.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use backends::daemon::Engine;
use backends::native::NativeBackend;
use libtest_mimic::Failed;
use sandbox::SandboxSpec;
use serde_json::json;

use crate::place::{Place, backend, executor, inhabited};
use crate::wire::{Edit, liar};

pub(crate) const ROLE: &str = "attacker-of-a-hole";

/// Shows a directory of the host in place of a writable one.
fn shows(directory: &Path) -> Edit {
    let source = directory.display().to_string();
    Box::new(move |request| {
        let mounts = request["HostConfig"]["Mounts"].as_array_mut().unwrap();
        mounts.retain(|mount| mount["Target"] != "/home/agent");
        mounts.push(json!({ "Type": "bind", "Source": source, "Target": "/home/agent", "ReadOnly": true }));
    })
}

/// Reads the secret through an engine that shows it.
pub(crate) fn take_role(native: &NativeBackend) -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let (folder, name) = (PathBuf::from(arguments.next()?), arguments.next()?);
    let real = PathBuf::from(arguments.next()?);
    let engine = Engine::ALL.into_iter().find(|engine| engine.name() == name)?;
    let answer = executor().block_on(async {
        let socket = liar(&real, &folder.join("liar"), shows(&folder.join("shown")))?;
        let backend = backend(native, &folder, engine, &socket);
        let (_sandbox, mut shell) = inhabited(&backend, &SandboxSpec::default()).await?;
        Ok::<String, Failed>(shell.run("cat /home/agent/secret").await?)
    });
    println!("{answer:?}");
    Some(ExitCode::SUCCESS)
}

pub(crate) fn is_seen(place: &Place, engine: Engine) -> Result<(), Failed> {
    let name = engine.name();
    if !cfg!(feature = "breach") {
        eprintln!("SKIPPED: built without the feature breach, so no hole can be made in the wall {name}");
        return Ok(());
    }
    let folder = place.folder.join(format!("hole-{name}"));
    std::fs::create_dir_all(folder.join("shown"))?;
    std::fs::write(folder.join("shown/secret"), "of the host")?;
    let socket = place.socket(engine).ok_or("not installed")?;
    let attack = |walls_off: &str| -> Result<String, Failed> {
        let mut attacker = Command::new(std::env::current_exe()?);
        attacker.args([ROLE, &folder.to_string_lossy(), name]).arg(&socket);
        let done = attacker.env("PALISADE_WALLS_OFF", walls_off).output()?;
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let through = attack("verify")?;
    assert!(through.contains("of the host"), "the attack does not use the hole: {through}");
    let refused = attack("")?;
    assert!(refused.contains("Err") && refused.contains("/home/agent"), "the hole is not noticed: {refused}");
    Ok(())
}
