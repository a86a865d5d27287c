//! Libraries that start a thread per core learn how many the sandbox may use: in fresh sandboxes, in spares, in copies of
//! a zygote process, and in persistent sandboxes.

use functional::{outcome, run_json};
use harness::mcp::Client;
use harness::warm::Warm;
use harness::{User, users};
use serde_json::{Value, json};

/// What a child process sees, and what the interpreter itself sees.
const SHOW: [(&str, &str); 3] = [
    (
        "python",
        "import os, subprocess\nn = os.environ\nprint(n['OMP_NUM_THREADS'], n['PYTHON_CPU_COUNT'], flush=True)\nsubprocess.run(['sh', '-c', 'echo $OPENBLAS_NUM_THREADS $GOMAXPROCS'])",
    ),
    ("bash", "echo $OMP_NUM_THREADS $PYTHON_CPU_COUNT; sh -c 'echo $OPENBLAS_NUM_THREADS $GOMAXPROCS'"),
    (
        "javascript",
        "console.log(process.env.OMP_NUM_THREADS, process.env.PYTHON_CPU_COUNT); process.stdout.write(require('child_process').execSync('echo $OPENBLAS_NUM_THREADS $GOMAXPROCS'))",
    ),
];
/// The processors of a request, and the share that its programs are told.
const SHARES: [(f64, u32); 3] = [(0.5, 1), (1.0, 1), (1.5, 2)];

/// The most that a machine of one core gives.
fn given(share: u32) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    share.min(cores)
}

fn told(result: &Value, share: u32, user: User) {
    assert_eq!(outcome(result), "completed", "as {user:?}: {result:#}");
    assert_eq!(result["stdout"], format!("{share} {share}\n{share} {share}\n"), "as {user:?}: {result:#}");
}

#[test]
fn programs_are_told_the_share_of_their_sandbox() {
    for user in users() {
        for (language, code) in SHOW {
            for (cpus, share) in SHARES {
                let result = run_json(user, language, code, &["--cpus", &cpus.to_string()]);
                told(&result, given(share), user);
            }
        }
    }
}

#[test]
fn spares_and_copies_of_zygotes_serve_only_runs_with_their_share() {
    for user in users() {
        let warm = Warm::start(user);
        for (language, code) in SHOW {
            // Spares and zygote processes appear while these runs are served.
            for _ in 0..20 {
                for (cpus, share) in SHARES {
                    let request = json!({"language": language, "code": code, "limits": {"cpus": cpus}});
                    told(&warm.run(request), given(share), user);
                }
            }
        }
    }
}

#[test]
fn interpreters_of_a_persistent_sandbox_have_its_share() {
    for user in users() {
        let client = Client::new(user);
        for (cpus, share) in SHARES {
            let sandbox = client.open(json!({"limits": {"cpus": cpus}}));
            for (language, code) in SHOW {
                told(&client.run(&sandbox, language, code), given(share), user);
            }
        }
    }
}

#[test]
fn a_number_of_threads_that_the_caller_sets_wins() {
    for user in users() {
        let code = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['RAYON_NUM_THREADS'])";
        let options = ["--env", "OMP_NUM_THREADS=7", "--env", "RAYON_NUM_THREADS=5"];
        let result = run_json(user, "python", code, &options);
        assert_eq!(result["stdout"], "7 5\n", "as {user:?}: {result:#}");
        let code = "class P { public static void main(String[] a) { System.out.print(Runtime.getRuntime().availableProcessors()); } }";
        let result = run_json(user, "java", code, &["--cpus", "1"]);
        if result["error"]["code"] == "language_missing" {
            eprintln!("SKIPPED as {user:?}: no Java");
            continue;
        }
        assert_eq!(result["stdout"], "1", "as {user:?}: {result:#}");
    }
}
