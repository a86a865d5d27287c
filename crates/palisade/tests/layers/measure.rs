//! Measures layers: how long it takes to attach a cached one, and fresh warm runs that import pandas from a layer, beside
//! runs that import it from the host's Python and runs that print.
//!
//! `benches/layers.py` calls it: `PALISADE_LAYERS_OUT` is the file for the samples, `PALISADE_LAYER` a directory with packages,
//! `PALISADE_PYTHON` an interpreter that has the same packages. Every sample is kept, in milliseconds.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::stage::{Stage, program, run, told};

const WARM_UP: usize = 20;
/// Between two runs, for refills: an import of pandas takes half a second, and a spare of each kind is imported anew.
const PAUSE: Duration = Duration::from_millis(1500);
const IMPORT: &str = "import pandas as pd\nprint(int(pd.Series([1, 2, 3]).sum()))";

pub(crate) async fn measure(stage: &Stage, out: &Path) {
    let samples = std::env::var("PALISADE_SAMPLES").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let mut taken: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for _ in 0..samples {
        let id = stage.sandbox(&[]).await;
        told(&stage.run_in(&id, program("python", "print(1)", &[])).await);
        let installed = stage.install(&id, &["measured"]).await.unwrap();
        taken.entry("attach").or_default().extend(installed.attach_ms);
        stage.runs.sandboxes().close(&engine::Caller::local(), &id).await.unwrap();
    }
    let engine = stage.warm_engine();
    let lanes: [(&str, &str, &[&str]); 3] = [
        ("import from a layer", IMPORT, &["measured"]),
        ("import from the host", IMPORT, &[]),
        ("print", "print(6)", &[]),
    ];
    for round in 0..WARM_UP + samples {
        for step in 0..lanes.len() {
            let (name, code, packages) = lanes[(round + step) % lanes.len()];
            tokio::time::sleep(PAUSE).await;
            let request = program("python", code, packages);
            let began = Instant::now();
            let result = run(&engine, request).await;
            let took = began.elapsed();
            assert_eq!(told(&result), "6");
            if round >= WARM_UP {
                taken.entry(name).or_default().push(took.as_secs_f64() * 1000.0);
            }
        }
    }
    engine.close_pool().await;
    std::fs::write(out, serde_json::to_string(&taken).unwrap()).unwrap();
}
