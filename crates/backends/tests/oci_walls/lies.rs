//! Runtimes that do not do what they were asked: a wrapper changes `config.json` before the real one reads it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use backends::oci::OciRuntime;
use libtest_mimic::Failed;
use sandbox::{Backend, BackendError, SandboxSpec};

use crate::place::{Place, executor, told};

/// A runtime that edits the configuration with this expression of Python, in which `c` is the configuration.
pub(crate) fn liar(folder: &Path, runtime: OciRuntime, edit: &str) -> Result<PathBuf, Failed> {
    let real = runtime.find().ok_or("not installed")?;
    let path = folder.join(format!("liar-{}", runtime.name()));
    let script = format!(
        "#!/usr/bin/python3\nimport json, os, sys\na = sys.argv\nif 'create' in a:\n    \
         p = os.path.join(a[a.index('--bundle') + 1], 'config.json')\n    c = json.load(open(p))\n    {edit}\n    \
         json.dump(c, open(p, 'w'))\nos.execv('{}', a)\n",
        real.display()
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// The edit that shows a directory of the host in a sandbox.
pub(crate) fn shows(directory: &Path) -> String {
    let mount = "'destination': '/home/agent', 'type': 'bind', 'options': ['bind', 'nosuid', 'nodev']";
    format!("c['mounts'].append({{ {mount}, 'source': '{}' }})", directory.display())
}

/// What a runtime does wrong, how, and the words of the refusal.
fn lies() -> [(&'static str, String, &'static str); 5] {
    let without = |kind: &str| {
        format!("l = c['linux']; l['namespaces'] = [n for n in l['namespaces'] if n['type'] != '{kind}']")
    };
    let all = "['bounding', 'effective', 'inheritable', 'permitted', 'ambient']";
    [
        ("network", without("network"), "net"),
        ("ipc", without("ipc"), "ipc"),
        ("groups", "c['linux']['cgroupsPath'] = c['linux']['cgroupsPath'] + '-other'".to_owned(), "group"),
        ("directory", shows(Path::new("/etc")), "/home/agent"),
        (
            "capabilities",
            format!("c['process']['capabilities'] = dict.fromkeys({all}, ['CAP_SYS_ADMIN'])"),
            "capabilities",
        ),
    ]
}

pub(crate) fn what_is_left_out_is_noticed(place: &Place, runtime: OciRuntime) -> Result<(), Failed> {
    for (what, edit, words) in lies() {
        // gVisor makes these namespaces for its own kernel, and a program's capabilities are its word.
        if runtime == OciRuntime::Gvisor && !matches!(what, "groups" | "directory") {
            continue;
        }
        let liar = liar(&place.folder, runtime, &edit)?;
        executor().block_on(async {
            let backend = place.backend(runtime, Some(liar));
            match backend.create(&SandboxSpec::default()).await {
                Ok(_) => Err(Failed::from(format!("a container without its {what} became a sandbox"))),
                Err(error) => {
                    let told = told(error);
                    if told.contains(words) { Ok(()) } else { Err(format!("{what}: {told}").into()) }
                }
            }
        })?;
    }
    Ok(())
}

pub(crate) fn a_failure_is_explained(place: &Place, runtime: OciRuntime) -> Result<(), Failed> {
    let liar = liar(&place.folder, runtime, "c['root']['path'] = '/nowhere'")?;
    executor().block_on(async {
        let backend = place.backend(runtime, Some(liar));
        match backend.create(&SandboxSpec::default()).await {
            Err(error @ BackendError::Build { .. }) => {
                let told = told(error);
                if told.contains("create") && (told.contains("root") || told.contains("nowhere")) {
                    Ok(())
                } else {
                    Err(told.into())
                }
            }
            other => Err(format!("{:?}", other.map(drop)).into()),
        }
    })
}

pub(crate) fn a_missing_runtime_is_named(place: &Place) -> Result<(), Failed> {
    executor().block_on(async {
        let backend = place.backend(OciRuntime::Runc, Some("/nowhere/runc".into()));
        match backend.create(&SandboxSpec::default()).await {
            Err(BackendError::Unsupported { what, remedy }) => {
                assert_eq!(what, "runc is not installed");
                assert!(remedy.contains("install the package `runc`"), "{remedy}");
                Ok(())
            }
            other => Err(format!("{:?}", other.map(drop)).into()),
        }
    })
}
