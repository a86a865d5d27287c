//! Spares and zygotes with layers.

use std::time::{Duration, Instant};

use crate::stage::{Stage, program, run, told};

pub(crate) async fn a_spare_with_a_layer_never_serves_a_run_without_it(stage: &Stage) {
    let engine = stage.warm_engine();
    let code = "import importlib.util\nprint([importlib.util.find_spec(name) is not None for name in ('alpha', 'beta')])";
    for _ in 0..6 {
        for (packages, seen) in [
            (&["alpha==7"][..], "[True, False]"),
            (&["beta==2"][..], "[False, True]"),
            (&[][..], "[False, False]"),
        ] {
            assert_eq!(told(&run(&engine, program("python", code, packages)).await), seen);
        }
    }
    engine.close_pool().await;
}

/// The module remembers whether the system-call filter was in force when it was imported: a zygote process has none.
pub(crate) async fn a_spare_imports_what_programs_import_and_never_outside_its_wall(stage: &Stage) {
    let engine = stage.warm_engine();
    let code = "import sys\nwas_loaded = 'alpha' in sys.modules\nimport alpha\nassert alpha.FILTER == '2', alpha.FILTER\nprint(was_loaded, alpha.VERSION)";
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let words = told(&run(&engine, program("python", code, &["alpha==7"])).await);
        if words == "True 7" {
            break;
        }
        assert_eq!(words, "False 7");
        assert!(Instant::now() < deadline, "no spare imported the package");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Another version is another layer, and another spare.
    assert!(told(&run(&engine, program("python", code, &["alpha==8"])).await).ends_with(" 8"));
    assert_eq!(
        told(&run(&engine, program("python", "import sys; print('alpha' in sys.modules)", &[])).await),
        "False"
    );
    engine.close_pool().await;
}
