//! Packages of persistent sandboxes.

use std::sync::atomic::Ordering;

use engine::packages::Ecosystem;
use engine::{Caller, RunRequest};
use sandbox::Outcome;

use crate::stage::{Stage, program, said, told};

pub(crate) async fn packages_of_a_sandbox_are_there_whenever_it_awakes(stage: &Stage) {
    let id = stage.sandbox(&["alpha==7", "npm:tiny==3"]).await;
    let python = || program("python", "import alpha; print(alpha.VERSION)", &[]);
    let result = stage.run_in(&id, python()).await;
    assert_eq!(told(&result), "7");
    assert_eq!(result.packages.len(), 2);
    let node = || program("javascript", "console.log(require('tiny').version)", &[]);
    assert_eq!(told(&stage.run_in(&id, node()).await), "3");
    assert_eq!(
        told(&stage.run_in(&id, program("bash", "alpha-tool; tiny-tool", &[])).await),
        "alpha 7\ntiny 3"
    );
    // The sandbox sleeps, and another server wakes it.
    stage
        .runs
        .sandboxes()
        .close_context(&Caller::local(), &id, &engine::ContextName::default())
        .await
        .unwrap();
    let list = stage.runs.sandboxes().list(&Caller::local()).await.unwrap();
    let info = list.iter().find(|info| info.id == id).unwrap();
    assert_eq!(info.packages.len(), 2);
    assert_eq!(told(&stage.run_in(&id, python()).await), "7");
}

pub(crate) async fn a_live_python_imports_what_is_installed_while_it_runs(stage: &Stage) {
    let id = stage.sandbox(&[]).await;
    let code = "state = 42\ntry:\n    import gamma\nexcept ImportError as error:\n    print(error)";
    assert_eq!(told(&stage.run_in(&id, program("python", code, &[])).await), "No module named 'gamma'");
    let installed = stage.install(&id, &["gamma==5"]).await.unwrap();
    assert!(
        installed.attach_ms.is_some() && installed.packages[0].packages[0].version == "5",
        "{installed:?}"
    );
    let code = "import gamma, subprocess, sys\nprint(state, gamma.VERSION)\n\
                print(subprocess.run([sys.executable, '-c', 'import gamma; print(gamma.VERSION)'], capture_output=True, text=True).stdout.strip())";
    let result = stage.run_in(&id, program("python", code, &[])).await;
    assert_eq!(told(&result), "42 5\n5");
    assert!(result.warnings.is_empty(), "{:?}", result.warnings);
    assert_eq!(told(&stage.run_in(&id, program("bash", "gamma-tool", &[])).await), "gamma 5");
    let again = stage.install(&id, &["gamma==5"]).await.unwrap();
    assert_eq!((again.attach_ms, again.install_ms), (None, None), "it is there");
}

pub(crate) async fn a_live_node_finds_what_it_did_not_find_before(stage: &Stage) {
    let id = stage.sandbox(&[]).await;
    let code =
        "globalThis.state = 42;\ntry { require('little'); } catch (error) { console.log(error.code); }";
    assert_eq!(told(&stage.run_in(&id, program("javascript", code, &[])).await), "MODULE_NOT_FOUND");
    // A kept interpreter imports only what the parser has seen.
    let has_parser = std::env::var_os("PALISADE_BIN").is_some();
    if has_parser {
        let code = "try { await import('esm-little'); } catch (error) { console.log(error.code); }";
        let missing = told(&stage.run_in(&id, program("javascript", code, &[])).await);
        assert_eq!(missing, "ERR_MODULE_NOT_FOUND");
    }
    stage.install(&id, &["npm:esm-little==9", "npm:little==8"]).await.unwrap();
    let code = "console.log(state, require('little').version);";
    assert_eq!(told(&stage.run_in(&id, program("javascript", code, &[])).await), "42 8");
    if has_parser {
        let code = "console.log((await import('esm-little')).version);";
        assert_eq!(told(&stage.run_in(&id, program("javascript", code, &[])).await), "9");
    }
    // The same once more: the folder has packages now, and another one is missing.
    let code = "try { require('small'); } catch (error) { console.log(error.code); }";
    assert_eq!(told(&stage.run_in(&id, program("javascript", code, &[])).await), "MODULE_NOT_FOUND");
    stage.install(&id, &["npm:small==1"]).await.unwrap();
    let code = "console.log(require('small').version, require('little').version, require.resolve('small'));";
    let lines = told(&stage.run_in(&id, program("javascript", code, &[])).await);
    assert_eq!(lines, "1 8 /node_modules/small/lib/entry.js");
}

pub(crate) async fn a_second_installation_covers_the_first_and_keeps_its_versions(stage: &Stage) {
    let id = stage.sandbox(&["alpha==7"]).await;
    assert_eq!(told(&stage.run_in(&id, program("python", "import alpha; kept = alpha", &[])).await), "");
    let installed = stage.install(&id, &["beta==2"]).await.unwrap();
    assert_eq!(installed.packages[0].requirements, ["alpha==7", "beta==2"]);
    let code = "import beta, alpha.late\nprint(alpha is kept, alpha.late.VERSION, beta.VERSION)";
    assert_eq!(told(&stage.run_in(&id, program("python", code, &[])).await), "True 7 2");
}

pub(crate) async fn a_run_installs_what_it_asks_for(stage: &Stage) {
    let id = stage.sandbox(&[]).await;
    assert_eq!(told(&stage.run_in(&id, program("python", "x = 1", &[])).await), "");
    let code = "import delta; print(x, delta.VERSION)";
    let result = stage.run_in(&id, program("python", code, &["delta==4"])).await;
    assert_eq!(told(&result), "1 4");
    assert!(result.install_ms.is_none() || result.packages[0].name == "delta");
    let packages = stage.runs.sandboxes().packages(&Caller::local(), &id).await.unwrap();
    assert_eq!(packages[0].requirements, ["delta==4"]);
}

pub(crate) async fn a_layer_that_was_removed_is_made_again(stage: &Stage) {
    let id = stage.sandbox(&["epsilon==6"]).await;
    std::fs::remove_dir_all(stage.book.path(Ecosystem::Pypi, &["epsilon==6".to_owned()])).unwrap();
    let before = stage.book.prepared.load(Ordering::SeqCst);
    let runs = stage.restarted().await;
    let request = program("python", "import epsilon; print(epsilon.VERSION)", &[]);
    let request = RunRequest { sandbox: Some(id.into()), ..request };
    let finished = runs.start(&Caller::local(), request).unwrap().finished().await;
    assert_eq!(told(&finished.result), "6");
    assert!(finished.result.install_ms.is_some() && stage.book.prepared.load(Ordering::SeqCst) > before);
    runs.shutdown(engine::Stop::Killed, std::time::Duration::from_secs(10)).await;
}

pub(crate) async fn languages_that_are_not_live_see_the_packages(stage: &Stage) {
    if stage.engine.runtimes().find("perl").await.is_err() {
        eprintln!("SKIPPED: no Perl");
        return;
    }
    let id = stage.sandbox(&["alpha==7"]).await;
    let result = stage.run_in(&id, program("perl", "print `alpha-tool`;", &[])).await;
    assert_eq!(
        (result.outcome, said(&result).0.as_str()),
        (Outcome::Completed, "alpha 7"),
        "{:?}",
        said(&result)
    );
}
