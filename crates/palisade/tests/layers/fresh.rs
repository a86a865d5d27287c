//! Packages of fresh runs.

use engine::InputFile;

use crate::stage::{Stage, program, run, told};

pub(crate) async fn python_and_its_child_processes_import_a_package(stage: &Stage) {
    let code = r#"
import alpha, importlib.metadata, multiprocessing, os, shutil, subprocess, sys
print(alpha.VERSION, importlib.metadata.version("alpha"), os.path.dirname(alpha.__file__))
print(alpha.__cached__.endswith(".pyc") and os.path.exists(alpha.__cached__))
print(subprocess.run([sys.executable, "-c", "import alpha; print(alpha.VERSION)"], capture_output=True, text=True).stdout.strip())
print(subprocess.run(["alpha-tool"], capture_output=True, text=True).stdout.strip(), shutil.which("alpha-tool"))
places = [index for index, path in enumerate(sys.path) if path == "/palisade/packages/python"]
print(len(places), sys.path[0], sys.path.index(os.path.dirname(os.__file__)) < places[0])
"#;
    let result = run(&stage.engine, program("python", code, &["alpha==7"])).await;
    let lines = told(&result);
    let expected = "7 7 /palisade/packages/python/alpha\nTrue\n7\nalpha 7 /palisade/packages/python/bin/alpha-tool\n1 /workspace True";
    assert_eq!(lines, expected);
    assert_eq!((result.packages[0].name.as_str(), result.packages[0].version.as_str()), ("alpha", "7"));
    let again = run(&stage.engine, program("python", "import alpha", &["alpha==7"])).await;
    assert_eq!((again.install_ms, again.packages.len()), (None, 1), "the layer was there");
}

/// `distutils` and `json` come with the language; `pip` or `apt_pkg` with the host.
pub(crate) async fn a_package_wins_over_one_of_the_host_and_not_over_the_programs_own_file(stage: &Stage) {
    let print = "import beta, json; print(beta.VERSION, hasattr(json, 'VERSION'))";
    let mut request = program("python", print, &["beta==2", "json==3"]);
    assert_eq!(stage.completes(request).await, "2 False", "the standard library comes first");
    request = program("python", print, &["beta==2", "json==3"]);
    request.inputs = vec![InputFile {
        path: "beta.py".to_owned(),
        content: b"VERSION = 'own'".to_vec(),
        ..InputFile::default()
    }];
    assert_eq!(stage.completes(request).await, "own False");
    let order = "import sys\nhost = [n for n, p in enumerate(sys.path) if p.endswith(('site-packages', 'dist-packages'))]\n\
                 print(all(sys.path.index('/palisade/packages/python') < n for n in host))";
    assert_eq!(stage.completes(program("python", order, &["beta==2"])).await, "True");
}

pub(crate) async fn javascript_requires_and_imports_a_package(stage: &Stage) {
    let packages = ["npm:tiny==3", "npm:esm-tiny==4"];
    let required = "const tiny = require('tiny'); console.log(tiny.version, require.resolve('tiny'));\n\
                    console.log(require('child_process').execFileSync('tiny-tool').toString().trim());\n\
                    import('esm-tiny').then((found) => console.log(found.version, found.default));";
    let lines = stage.completes(program("javascript", required, &packages)).await;
    assert_eq!(lines, "3 /node_modules/tiny/lib/entry.js\ntiny 3\n4 esm-tiny");
    let imported =
        "import { version } from 'esm-tiny';\nimport tiny from 'tiny';\nconsole.log(version, tiny.version);";
    assert_eq!(stage.completes(program("javascript", imported, &packages)).await, "4 3");
}

pub(crate) async fn typescript_imports_a_package(stage: &Stage) {
    if std::env::var_os("PALISADE_BIN").is_none() {
        eprintln!("SKIPPED: PALISADE_BIN names no executable");
        return;
    }
    let code = "import tiny from 'tiny';\nconst version: string = tiny.version;\nconsole.log(version);";
    assert_eq!(stage.completes(program("typescript", code, &["npm:tiny==3"])).await, "3");
}

pub(crate) async fn bash_finds_the_commands_of_packages(stage: &Stage) {
    let code = "alpha-tool; tiny-tool; python3 -c 'import alpha; print(alpha.VERSION)'; node -p 'require(\"tiny\").version'";
    let lines = stage.completes(program("bash", code, &["alpha==7", "npm:tiny==3"])).await;
    assert_eq!(lines, "alpha 7\ntiny 3\n7\n3");
}

pub(crate) async fn a_compiled_program_has_them_on_its_path(stage: &Stage) {
    if stage.engine.runtimes().find("c").await.is_err() {
        eprintln!("SKIPPED: no C compiler");
        return;
    }
    let code = "#include <stdlib.h>\nint main(void) { return system(\"alpha-tool\"); }";
    assert_eq!(stage.completes(program("c", code, &["alpha==7"])).await, "alpha 7");
}

pub(crate) async fn a_run_without_packages_sees_none(stage: &Stage) {
    let code = "import os, sys\nprint([p for p in sys.path if 'palisade' in p], [n for n in os.environ if 'PYTHONPATH' in n],\n\
                'packages' in os.environ['PATH'], os.path.exists('/node_modules'), os.path.exists('/palisade/packages'))";
    assert_eq!(stage.completes(program("python", code, &[])).await, "[] [] False False False");
}
