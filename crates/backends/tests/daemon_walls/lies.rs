//! Engines that do not do what they were asked: a proxy changes each request for a container.

use std::path::Path;
use std::time::Duration;

use backends::daemon::Engine;
use harness::engines::{ask, import};
use libtest_mimic::Failed;
use sandbox::workspace::WorkspaceRef;
use sandbox::{Backend, BackendError, SandboxSpec, WORKSPACE};
use serde_json::{Value, json};

use crate::killed::{server_of, until_gone};
use crate::place::{Place, backend, executor, told};
use crate::wire::{Edit, labelled, liar, without_filters};

const PATIENCE: Duration = Duration::from_secs(40);

/// What an engine does wrong, how, and one of the words of the refusal.
fn lies(folder: &Path, image: &str) -> Vec<(&'static str, Edit, &'static str)> {
    let with = |key: &'static str, value: Value| -> Edit {
        Box::new(move |request| request["HostConfig"][key] = value.clone())
    };
    let without = |keys: &'static [&'static str]| -> Edit {
        Box::new(move |request| {
            let host = request["HostConfig"].as_object_mut().unwrap();
            keys.iter().for_each(|key| drop(host.remove(*key)));
        })
    };
    let bind = |target: &'static str| -> Edit {
        let source = folder.join("other").display().to_string();
        Box::new(move |request| {
            let mounts = request["HostConfig"]["Mounts"].as_array_mut().unwrap();
            mounts.retain(|mount| mount["Target"] != target);
            mounts.push(json!({ "Type": "bind", "Source": source, "Target": target, "ReadOnly": true }));
        })
    };
    let image = image.to_owned();
    vec![
        (
            "network",
            Box::new(|request| {
                request["NetworkDisabled"] = json!(false);
                request["HostConfig"]["NetworkMode"] = json!("host");
                request["HostConfig"].as_object_mut().unwrap().remove("Sysctls");
            }),
            "net",
        ),
        ("processes", with("PidMode", json!("host")), "pid"),
        ("ipc", with("IpcMode", json!("host")), "ipc"),
        ("limits", without(&["Memory", "MemorySwap", "PidsLimit", "CpuPeriod", "CpuQuota"]), " is "),
        ("process limit", without(&["PidsLimit"]), "pids.max"),
        ("root", without(&["ReadonlyRootfs"]), "/ can be written"),
        ("capabilities", without(&["CapDrop"]), "CapBnd"),
        ("filter", with("SecurityOpt", json!(["seccomp=unconfined"])), "filter"),
        ("a directory more", bind("/host"), "/host"),
        ("another directory", bind("/home/agent"), "/home/agent"),
        ("another system", bind("/usr"), "guest"),
        ("user", Box::new(|request| request["User"] = json!("12345:12345")), "guest"),
        ("image", Box::new(move |request| request["Image"] = json!(image)), "/planted"),
    ]
}

/// An image with a file that no plan has.
fn other_image(place: &Place, engine: Engine) -> Result<String, Failed> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    header.set_mode(0o444);
    builder.append_data(&mut header, "planted", &b"hi\n"[..])?;
    for (name, target) in
        [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("sbin", "usr/sbin")]
    {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, name, target)?;
    }
    let socket = place.socket(engine).ok_or("not installed")?;
    Ok(import(&socket, &builder.into_inner()?, "")?)
}

pub(crate) fn are_refused(place: &Place, engine: Engine) -> Result<(), Failed> {
    let folder = place.folder.join(format!("lies-{}", engine.name()));
    std::fs::create_dir(&folder)?;
    let real = place.socket(engine).ok_or("not installed")?;
    std::fs::create_dir(folder.join("other"))?;
    let image = other_image(place, engine)?;
    let mut wrong = Vec::new();
    for (what, edit, words) in lies(&folder, &image) {
        let socket = liar(&real, &folder.join("liar"), edit)?;
        executor().block_on(async {
            let backend = backend(&place.native, &folder, engine, &socket);
            let spec = SandboxSpec::default();
            let built = tokio::time::timeout(PATIENCE, backend.create(&spec));
            match built.await {
                Err(_) => wrong.push(format!("{what}: no answer")),
                Ok(Ok(_)) => wrong.push(format!("a container with another {what} became a sandbox")),
                Ok(Err(error)) => {
                    let told = told(error);
                    eprintln!("{what}: {told}");
                    if !told.contains(words) {
                        wrong.push(format!("{what}: {told}"));
                    }
                }
            }
        });
    }
    ask(&real, "DELETE", &format!("images/{image}?force=true"), ("", b""))?;
    let server = std::fs::read_dir(folder.join("walls").join(engine.name()))?.flatten().next();
    if let Some(server) = server {
        let name = server.file_name().to_string_lossy().into_owned();
        let left = labelled(&real, "containers", &name);
        wrong.extend((!left.is_empty()).then(|| format!("left: {left:?}")));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}

/// An engine that shows another directory as the workspace, or the right one in another way. The files of the workspace
/// stay.
pub(crate) fn a_wrong_workspace_is_refused(place: &Place, engine: Engine) -> Result<(), Failed> {
    let folder = place.folder.join(format!("workspace-{}", engine.name()));
    let of = WorkspaceRef { id: format!("lies-{}", engine.name()), identity: 7 };
    let right = place.folder.join("sandboxes").join(&of.id).join("workspace");
    std::fs::create_dir_all(folder.join("other"))?;
    std::fs::create_dir_all(&right)?;
    std::fs::write(right.join("kept"), "a file that lasts")?;
    let real = place.socket(engine).ok_or("not installed")?;
    let spec = SandboxSpec { workspace: Some(of), ..SandboxSpec::default() };
    let show = |change: &'static str, to: Value| -> Edit {
        Box::new(move |request| {
            let mut mounts = request["HostConfig"]["Mounts"].as_array_mut().unwrap().iter_mut();
            mounts.find(|mount| mount["Target"] == WORKSPACE).unwrap()[change] = to.clone();
        })
    };
    let edits = [
        ("another directory", show("Source", json!(folder.join("other"))), true),
        ("the directory itself, with set-uid", show("Source", json!(right)), true),
        ("another place", show("Target", json!("/elsewhere")), true),
        ("the right one", Box::new(|_: &mut Value| ()), false),
    ];
    for (what, edit, is_refused) in edits {
        let socket = liar(&real, &folder.join("liar"), edit)?;
        let refusal = executor().block_on(async {
            let backend = backend(&place.native, &folder, engine, &socket);
            let built = tokio::time::timeout(PATIENCE, backend.create(&spec)).await;
            built.map_err(|_| format!("{what}: no answer")).map(|built| built.err().map(told))
        })?;
        eprintln!("{what}: {refusal:?}");
        assert_eq!(refusal.is_some(), is_refused, "{what}: {refusal:?}");
        assert_eq!(std::fs::read_to_string(right.join("kept"))?, "a file that lasts", "{what}");
    }
    Ok(())
}

/// The end of a server, with an engine that lists the containers and images of all.
pub(crate) fn what_others_have_stays(place: &Place, engine: Engine) -> Result<(), Failed> {
    let folder = place.folder.join(format!("others-{}", engine.name()));
    std::fs::create_dir(&folder)?;
    let real = place.socket(engine).ok_or("not installed")?;
    let image = other_image(place, engine)?;
    let request = json!({
        "Image": image, "Cmd": ["/planted"], "HostConfig": { "NetworkMode": "none" },
        "Labels": { "org.palisade.server": "palisade-other" },
    });
    let content = ("application/json", request.to_string());
    ask(&real, "POST", "containers/create?name=other", (content.0, content.1.as_bytes()))?;
    let theirs = labelled(&real, "containers", "palisade-other");
    assert_eq!(theirs.len(), 1, "{theirs:?}");
    let socket = without_filters(&real, &folder.join("proxy"))?;
    let server = executor().block_on(async {
        let backend = backend(&place.native, &folder, engine, &socket);
        let mut sandbox = backend.create(&SandboxSpec::default()).await.map_err(told)?;
        sandbox.destroy().await.map_err(told)?;
        server_of(&folder, engine)
    })?;
    until_gone(&folder, engine, (&server, &[]), &real)?;
    assert_eq!(labelled(&real, "containers", "palisade-other"), theirs);
    ask(&real, "DELETE", &format!("containers/{}?force=true", theirs[0]), ("", b""))?;
    let found = ask(&real, "GET", &format!("images/{image}/json"), ("", b""))?;
    assert!(String::from_utf8_lossy(&found).contains("\"Id\""), "the image is gone");
    ask(&real, "DELETE", &format!("images/{image}?force=true"), ("", b""))?;
    Ok(())
}

pub(crate) fn a_refusal_is_explained(place: &Place, engine: Engine) -> Result<(), Failed> {
    let folder = place.folder.join(format!("refusal-{}", engine.name()));
    std::fs::create_dir(&folder)?;
    let real = place.socket(engine).ok_or("not installed")?;
    let edit: Edit = Box::new(|request| request["Image"] = json!(format!("sha256:{}", "0".repeat(64))));
    let socket = liar(&real, &folder.join("liar"), edit)?;
    executor().block_on(async {
        let backend = backend(&place.native, &folder, engine, &socket);
        match backend.create(&SandboxSpec::default()).await {
            Err(error @ BackendError::Build { .. }) => {
                let told = told(error);
                if told.contains("the engine answered 404") { Ok(()) } else { Err(told.into()) }
            }
            other => Err(format!("{:?}", other.map(drop)).into()),
        }
    })
}

pub(crate) fn a_missing_engine_is_named(place: &Place, engine: Engine) -> Result<(), Failed> {
    executor().block_on(async {
        let backend = backend(&place.native, &place.folder, engine, Path::new("/nowhere/engine.sock"));
        match backend.create(&SandboxSpec::default()).await {
            Err(BackendError::Unsupported { what, remedy }) => {
                assert_eq!(what, format!("{} has no socket at /nowhere/engine.sock", engine.name()));
                assert!(remedy.contains("start") && remedy.contains("socket"), "{remedy}");
                Ok(())
            }
            other => Err(format!("{:?}", other.map(drop)).into()),
        }
    })
}
