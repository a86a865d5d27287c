//! One hole in each wall, seen to be used: a program reads a secret of the host where the runtime shows its directory and
//! a test build does not examine the container.
//!
//! The examination can be switched off only by the environment of a process with the feature `breach`, so a second
//! process attacks.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use backends::native::NativeBackend;
use backends::oci::OciRuntime;
use libtest_mimic::Failed;
use sandbox::SandboxSpec;

use crate::lies::{liar, shows};
use crate::place::{Place, backend, executor, inhabited};

const ROLE: &str = "attacker-of-a-hole";

/// Reads the secret through a runtime that shows it.
pub(crate) fn take_role(native: &NativeBackend) -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let (folder, name) = (PathBuf::from(arguments.next()?), arguments.next()?);
    let runtime = OciRuntime::ALL.into_iter().find(|runtime| runtime.name() == name)?;
    let answer = executor().block_on(async {
        let liar = liar(&folder, runtime, &shows(&folder))?;
        let backend = backend(native, &folder, runtime, Some(liar));
        let (_sandbox, mut shell) = inhabited(&backend, &SandboxSpec::default()).await?;
        Ok::<String, Failed>(shell.run("cat /home/agent/secret").await?)
    });
    println!("{answer:?}");
    Some(ExitCode::SUCCESS)
}

pub(crate) fn is_seen(place: &Place, runtime: OciRuntime) -> Result<(), Failed> {
    if !cfg!(feature = "breach") {
        eprintln!(
            "SKIPPED: built without the feature breach, so no hole can be made in the wall {}",
            runtime.name()
        );
        return Ok(());
    }
    let folder = place.folder.join(format!("hole-{}", runtime.name()));
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("secret"), "of the host")?;
    let attack = |walls_off: &str| -> Result<String, Failed> {
        let mut attacker = Command::new(std::env::current_exe()?);
        attacker.args([ROLE, &folder.to_string_lossy(), runtime.name()]);
        let done = attacker.env("PALISADE_WALLS_OFF", walls_off).output()?;
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let through = attack("verify")?;
    assert!(through.contains("of the host"), "the attack does not use the hole: {through}");
    let refused = attack("")?;
    assert!(refused.contains("Err") && refused.contains("/home/agent"), "the hole is not noticed: {refused}");
    Ok(())
}
