//! Popular Python packages behind the wall, from the environment that `scripts/setup-tests.sh` makes.
//!
//! Where it is missing, or a user cannot reach it, the tests say so and prove nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use functional::own_folder;
use harness::warm::Warm;
use harness::{Build, Palisade, User, users};
use serde_json::json;

/// PATH with the environment in front, and the users who can run its interpreter.
fn environment() -> Option<(String, Vec<User>)> {
    let bin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-venv/bin");
    let Ok(bin) = fs::canonicalize(bin) else {
        eprintln!("SKIPPED: no test environment with packages: run scripts/setup-tests.sh");
        return None;
    };
    let can_import = |user: &User| {
        let reachable = import_check(*user, &bin.join("python3"));
        if !reachable {
            eprintln!("SKIPPED as {user:?}: the packages in {} cannot be used by this user", bin.display());
        }
        reachable
    };
    let users = users().into_iter().filter(can_import).collect();
    Some((format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()), users))
}

fn import_check(user: User, python: &PathBuf) -> bool {
    let mut command = if user == User::Ordinary && rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        let ids =
            [format!("--reuid={}", harness::ORDINARY_USER), format!("--regid={}", harness::ORDINARY_USER)];
        command.args(ids).args(["--clear-groups", "--"]).arg(python);
        command
    } else {
        Command::new(python)
    };
    command.args(["-I", "-c", "import numpy, pandas, matplotlib, requests"]).env_clear().current_dir("/");
    command.output().is_ok_and(|output| output.status.success())
}

fn works(code: &str, check: impl Fn(&Path)) {
    let Some((path, users)) = environment() else { return };
    for user in users {
        let out = own_folder(user, "packages");
        let options =
            ["run", "python", "--timeout", "60s", "--output-dir", out.to_str().unwrap(), "-c", code];
        let ended = Palisade::new(Build::Real, user, &options).env("PATH", &path).end();
        assert_eq!(
            (ended.status.code(), ended.stdout.as_str()),
            (Some(0), "ok\n"),
            "as {user:?}: {}\n{code}",
            ended.stderr
        );
        check(&out);
    }
}

#[test]
fn numpy_computes() {
    let code = "import numpy as n\na = n.arange(10_000, dtype=float).reshape(100, 100)\nb = a @ a.T\nassert b.shape == (100, 100)\n\
                q, r = n.linalg.qr(n.random.default_rng(1).normal(size=(200, 200))); assert n.allclose(q @ q.T, n.eye(200))\n\
                assert n.fft.fft(n.ones(8))[0] == 8\nn.save('a.npy', a); assert (n.load('a.npy', mmap_mode='r') == a).all()\nprint('ok')";
    works(code, |out| assert!(out.join("a.npy").exists()));
}

/// The number of threads is read when the library is loaded, which in a copy of a zygote process was long before.
#[test]
fn numpy_has_as_many_threads_as_the_sandbox_may_use() {
    let Some((path, users)) = environment() else { return };
    let code = "import ctypes, numpy, sys\nmaps = open('/proc/self/maps').read().split()\n\
                lib = ctypes.CDLL(next(m for m in maps if 'openblas' in m))\n\
                names = [p + 'openblas_get_num_threads' + s for p in ('', 'scipy_') for s in ('', '64_', '_64_')]\n\
                print(next(getattr(lib, n)() for n in names if hasattr(lib, n)))";
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    // The usual share is that of the zygote processes.
    for (user, usual) in users.into_iter().flat_map(|user| [(user, "1"), (user, "2")]) {
        let warm = Warm::start_with(user, &[("PATH", &path), ("PALISADE_LIMITS_DEFAULT_CPUS", usual)]);
        for (cpus, threads) in [(1.0, 1), (2.0, 2.min(cores))].into_iter().cycle().take(40) {
            let limits = json!({"cpus": cpus, "memory_mb": 1024});
            let request = json!({"language": "python", "code": code, "timeout_ms": 60_000, "limits": limits});
            let result = warm.run(request);
            assert_eq!(result["stdout"], format!("{threads}\n"), "as {user:?}: {result:#}");
        }
    }
}

#[test]
fn pandas_computes() {
    let code = "import pandas as p, io\nd = p.read_csv(io.StringIO('g,v\\na,1\\nb,2\\na,3\\n'))\n\
                assert d.groupby('g').v.sum().to_dict() == {'a': 4, 'b': 2}\n\
                t = p.date_range('2024-01-01', periods=3, tz='Europe/Berlin'); assert str(t[0].utcoffset()) == '1:00:00'\n\
                d.to_csv('d.csv', index=False); assert p.read_csv('d.csv').equals(d)\nprint('ok')";
    works(code, |out| assert_eq!(fs::read_to_string(out.join("d.csv")).unwrap(), "g,v\na,1\nb,2\na,3\n"));
}

#[test]
fn matplotlib_draws_a_figure() {
    let code = "import matplotlib.pyplot as p\np.plot([1, 4, 9]); p.title('grüße'); p.savefig('figure.png'); p.show()\nprint('ok')";
    works(code, |out| assert!(fs::read(out.join("figure.png")).unwrap().starts_with(b"\x89PNG\r\n")));
}

#[test]
fn requests_talks_to_a_server_inside_and_fails_clearly_outside() {
    let code = "import requests, http.server, threading\nclass H(http.server.BaseHTTPRequestHandler):\n    \
                def do_GET(s): s.send_response(200); s.end_headers(); s.wfile.write(b'{\"a\": 1}')\n    def log_message(s, *a): pass\n\
                s = http.server.HTTPServer(('127.0.0.1', 0), H); threading.Thread(target=s.serve_forever, daemon=True).start()\n\
                assert requests.get(f'http://localhost:{s.server_port}/').json() == {'a': 1}\n\
                try: requests.get('http://host.invalid/', timeout=5); assert False\nexcept requests.ConnectionError: pass\nprint('ok')";
    works(code, |_| {});
}

/// Its libraries start a thread per core at import.
#[test]
fn the_packages_work_together_within_default_limits() {
    let code = "import numpy, pandas, matplotlib.pyplot as p, requests\nfrom multiprocessing import Pool\n\
                def f(n): return float(numpy.linalg.norm(numpy.ones(n)))\n\
                with Pool(2) as pool: assert pool.map(f, [1, 4, 9]) == [1.0, 2.0, 3.0]\n\
                pandas.DataFrame({'x': [1, 2]}).plot(); p.savefig('both.svg')\nprint('ok')";
    works(code, |out| assert!(fs::read_to_string(out.join("both.svg")).unwrap().contains("<svg")));
}
