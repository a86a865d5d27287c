//! Images in place of the host's `/usr`: found by digest, their languages probed inside.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use backends::daemon::{DaemonBackend, DaemonConfig, Engine, check_image};
use backends::host::HostParts;
use harness::engines::{ask, import};
use libtest_mimic::Failed;
use sandbox::{Backend, BackendError, Enforcement, Guarantee, InventoryError, SandboxSpec, ToolchainQuery};

use crate::place::{Place, config, executor, inhabited, told};

/// Answers as the probes of languages do.
const PROBE: &str = "import json, platform, sys\n\
    open(sys.argv[1], 'wb').write(b'compiled')\n\
    print(json.dumps({'version': platform.python_version(), 'executable': sys.executable, 'binds': ['/opt/x']}))\n";

/// An image with Python, made of the distribution's packages. Returns its id; `None` without the tools of Debian.
fn make(socket: &Path) -> Result<Option<String>, Failed> {
    if !Path::new("/usr/bin/dpkg-query").exists() {
        eprintln!("SKIPPED: there is no dpkg, so no image can be made of packages");
        return Ok(None);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/images/from-packages.sh");
    let made = Command::new(script)
        .args(["python3", "bash", "coreutils", "dash", "grep"])
        .stderr(Stdio::inherit())
        .output()?;
    if !made.status.success() {
        return Err("the image could not be made".into());
    }
    Ok(Some(import(socket, &made.stdout, "")?))
}

fn with_image(place: &Place, config: DaemonConfig, folder: &str) -> Result<DaemonBackend, Failed> {
    let parts = HostParts { state_dir: place.folder.join(folder), ..HostParts::default() };
    std::fs::create_dir_all(&parts.state_dir)?;
    Ok(DaemonBackend::beside(&place.native, config, &parts))
}

pub(crate) fn have_their_own_languages(place: &Place, engine: Engine) -> Result<(), Failed> {
    let socket = place.socket(engine).ok_or("not installed")?;
    let Some(image) = make(&socket)? else { return Ok(()) };
    let folder = format!("image-{}", engine.name());
    let question = |commands: &[&str]| ToolchainQuery {
        language: "python".to_owned(),
        commands: commands.iter().map(|name| (*name).to_owned()).collect(),
        probe: ["{interpreter}", "{folder}/probe.py", "{out}"].map(str::to_owned).to_vec(),
        files: vec![("probe.py".to_owned(), Arc::from(PROBE.as_bytes()))],
        settings: Vec::new(),
    };
    executor().block_on(async {
        let backend = with_image(
            place,
            DaemonConfig { image: Some(image.clone()), ..config(engine, &socket) },
            &folder,
        )?;
        let found = backend.inventory().find(&question(&["python4", "python3"])).await?;
        assert_eq!(found.executable, "/usr/bin/python3");
        assert!(found.version.starts_with("3."), "{found:?}");
        assert_eq!(found.driver.as_deref(), Some(&b"compiled"[..]));
        assert_eq!(found.binds, Vec::<std::path::PathBuf>::new(), "the whole image is shown");
        let kept = std::fs::read_dir(place.folder.join(&folder).join("image-languages"))?.count();
        assert_eq!(kept, 1, "the answer is kept");
        let missing = backend.inventory().find(&question(&["node"])).await;
        assert!(matches!(missing, Err(InventoryError::Missing { .. })), "{missing:?}");
        assert!(backend.inventory().identity(&found).await?.contains(&image));

        let (sandbox, mut shell) = inhabited(&backend, &SandboxSpec::default()).await?;
        let answer = shell
            .run("python3 -c 'print(6 * 7)'; ls /usr/bin/perl /usr/bin/git 2>&1 | grep -c cannot")
            .await?;
        assert_eq!(answer.trim(), "42\n2", "the system is the image's and not the host's");
        let Enforcement::By { note: Some(note), .. } = sandbox.enforced().get(Guarantee::FilesHidden) else {
            return Err("files_hidden has no note".into());
        };
        assert!(note.contains(&format!("{}'s word", engine.name())), "{note}");
        Ok::<(), Failed>(())
    })?;
    let still = ask(&socket, "GET", &format!("images/{image}/json"), ("", b""))?;
    assert!(String::from_utf8_lossy(&still).contains("\"Id\""), "the operator's image is not removed");
    ask(&socket, "DELETE", &format!("images/{image}?force=true"), ("", b""))?;
    Ok(())
}

pub(crate) fn are_named_by_digest(place: &Place, engine: Engine) -> Result<(), Failed> {
    let socket = place.socket(engine).ok_or("not installed")?;
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_size(0);
    builder.append_data(&mut header, "etc", std::io::empty())?;
    import(&socket, &builder.into_inner()?, "&repo=palisade-tagged&tag=latest")?;
    let result = executor().block_on(async {
        for (reference, words) in [
            ("palisade-tagged:latest", "has no digest"),
            ("../../etc", "no valid reference"),
            (&*format!("nowhere@sha256:{}", "0".repeat(64)), "has no image"),
        ] {
            let backend = with_image(
                place,
                DaemonConfig { image: Some(reference.to_owned()), ..config(engine, &socket) },
                "tags",
            )?;
            match backend.create(&SandboxSpec::default()).await {
                Err(error @ BackendError::Unsupported { .. }) => {
                    let told = told(error);
                    assert!(told.contains(words), "{reference}: {told}");
                }
                other => return Err(format!("{reference}: {:?}", other.map(drop)).into()),
            }
        }
        let report = check_image(&socket, "palisade-tagged:latest").await?;
        assert_eq!(report.age_days, Some(0));
        assert!(report.warnings.iter().any(|warning| warning.contains("a tag can mean another image")));
        assert!(check_image(&socket, "nowhere:latest").await.is_err());
        Ok::<(), Failed>(())
    });
    ask(&socket, "DELETE", "images/palisade-tagged:latest?force=true", ("", b""))?;
    result
}
