//! Limits of memory, disk, processes and output: each has its outcome when the program did not succeed, a warning
//! when it did, and its exit status.

use functional::{is_quick, outcome, run_json, run_plain};
use harness::{Build, Palisade, User, users};
use serde_json::Value;

const OTHER_LIMIT: Option<i32> = Some(123);
const OUTPUT_LIMIT: Option<i32> = Some(122);
const SMALL_DISK: &[&str] = &["--disk-mb", "8"];
/// Files count as memory, so the kernel's limit is both together: a small disk makes it a narrow one.
const LITTLE_MEMORY: &[&str] = &["--memory-mb", "64", "--disk-mb", "8"];
const FEW_PROCESSES: &[&str] = &["--processes", "8"];

fn expect(user: User, wanted: &str, language: &str, code: &str, options: &[&str]) -> Value {
    let result = run_json(user, language, code, options);
    assert_eq!(outcome(&result), wanted, "as {user:?}: {result:#}\n{code}");
    assert_eq!(result["error"]["code"], wanted, "{result:#}");
    assert!(result["error"]["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{result:#}");
    result
}

/// Succeeded, with a word about the limit it met.
fn expect_warning(user: User, word: &str, code: &str, options: &[&str]) {
    let result = run_json(user, "python", code, options);
    assert_eq!(outcome(&result), "completed", "as {user:?}: {result:#}\n{code}");
    let told =
        result["warnings"].as_array().unwrap().iter().any(|warning| warning.as_str().unwrap().contains(word));
    assert!(told, "as {user:?}, no warning of `{word}`: {result:#}\n{code}");
    let ended = run_plain(user, "python", code, options);
    assert_eq!(ended.status.code(), Some(0));
    assert!(ended.stderr.contains("warning"), "{}", ended.stderr);
}

#[test]
fn memory_of_one_process_is_limited() {
    let code = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    for user in users() {
        let result = expect(user, "out_of_memory", "python", code, LITTLE_MEMORY);
        let peak = result["usage"]["memory_peak_bytes"].as_u64().unwrap();
        assert!(peak >= 48 << 20, "{peak}");
        assert_eq!(run_plain(user, "python", code, LITTLE_MEMORY).status.code(), OTHER_LIMIT);
    }
}

#[test]
fn memory_is_limited_however_large_the_disk_is() {
    let code =
        "x = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time\ntime.sleep(3)";
    for user in users() {
        expect(user, "out_of_memory", "python", code, &["--memory-mb", "64", "--disk-mb", "256"]);
    }
}

#[test]
fn files_are_not_taken_for_memory() {
    let code = "import time\nwith open('/tmp/large', 'wb') as f:\n    for _ in range(200): f.write(bytes(1 << 20))\n\
                time.sleep(0.3)\nprint(sum(len(open('/usr/bin/env', 'rb').read()) > 0 for _ in range(50)))";
    for user in users() {
        let result = run_json(user, "python", code, &["--memory-mb", "64", "--disk-mb", "256"]);
        assert_eq!(outcome(&result), "completed", "as {user:?}: {result:#}");
    }
}

#[test]
fn memory_of_small_objects_is_limited() {
    let code = "x = []\nwhile True: x.append(str(len(x)))";
    for user in users() {
        expect(user, "out_of_memory", "python", code, LITTLE_MEMORY);
    }
}

#[test]
fn memory_of_many_children_together_is_limited() {
    let code = "import os, sys, time\nfor _ in range(10):\n    if os.fork() == 0:\n        x = bytearray(16 << 20)\n        \
                for i in range(0, len(x), 4096): x[i] = 1\n        time.sleep(5)\n        os._exit(0)\n\
                bad = [s for _, s in (os.wait() for _ in range(10)) if s]\nsys.exit(1 if bad else 0)";
    for user in users() {
        expect(user, "out_of_memory", "python", code, LITTLE_MEMORY);
    }
}

#[test]
fn memory_of_a_shell_is_limited() {
    let code = "x=0123456789abcdef; while :; do x=$x$x; done";
    for user in users() {
        let result = run_json(user, "bash", code, LITTLE_MEMORY);
        assert_eq!(outcome(&result), "out_of_memory", "as {user:?}: {result:#}");
    }
}

#[test]
fn a_child_killed_for_its_memory_is_a_warning_when_the_program_succeeds() {
    // Several children: each death is a moment in which the watch could take another process for the largest. The program
    // sleeps after each: the kernel itself kills a program that allocates before the memory of its child is released.
    let code = "import subprocess, sys, time\nfor _ in range(4):\n    subprocess.run([sys.executable, '-c', 'x = bytearray(200 << 20)\\n\
                for i in range(0, len(x), 4096): x[i] = 1'])\n    time.sleep(0.2)\nprint('went on')";
    // Without cgroups the watchdog ends the whole run: only root has the finer wall here.
    for user in users().into_iter().filter(|user| *user == User::Root) {
        expect_warning(user, "memory", code, LITTLE_MEMORY);
    }
}

#[test]
fn the_disk_is_limited_wherever_it_can_be_written() {
    for user in users() {
        for folder in ["/workspace", "/tmp", "/dev/shm", "/home/agent"] {
            let code = format!(
                "with open('{folder}/big', 'wb') as f:\n    for _ in range(64): f.write(bytes(1 << 20))"
            );
            expect(user, "disk_full", "python", &code, SMALL_DISK);
        }
        let code = "set -e; for i in 1 2 3 4; do head -c 3M /dev/zero > /tmp/$i; done";
        expect(user, "disk_full", "bash", code, SMALL_DISK);
        assert_eq!(run_plain(user, "bash", code, SMALL_DISK).status.code(), OTHER_LIMIT);
    }
}

#[test]
fn the_number_of_files_is_limited() {
    let code = "for i in range(100_000): open(f'/tmp/{i}', 'w').close()";
    for user in users() {
        expect(user, "disk_full", "python", code, SMALL_DISK);
    }
}

/// What `tempfile` does: the file is gone when the program ends, and the host must have noticed before.
#[test]
fn a_disk_that_was_full_only_for_a_moment_is_noticed() {
    let code = "import tempfile, time\nwith tempfile.TemporaryFile() as f:\n    try: f.write(bytes(20 << 20))\n    finally: time.sleep(1)";
    for user in users() {
        expect(user, "disk_full", "python", code, SMALL_DISK);
    }
}

#[test]
fn a_full_disk_is_a_warning_when_the_program_succeeds() {
    let code = "try:\n    open('/tmp/big', 'wb').write(bytes(20 << 20))\nexcept OSError as e: print(e)";
    for user in users() {
        expect_warning(user, "disk", code, SMALL_DISK);
    }
}

#[test]
fn forks_are_limited() {
    let code = "import os, time\nfor _ in range(100):\n    if os.fork() == 0:\n        time.sleep(100)\n        os._exit(0)";
    for user in users() {
        expect(user, "process_limit", "python", code, FEW_PROCESSES);
        assert_eq!(run_plain(user, "python", code, FEW_PROCESSES).status.code(), OTHER_LIMIT);
    }
}

#[test]
fn forks_of_a_shell_are_limited() {
    let code = "set -e; for i in {1..100}; do sleep 100 & done; wait";
    // A shell tries again for 15 seconds before it gives up.
    for user in users().into_iter().take(if is_quick() { 1 } else { usize::MAX }) {
        expect(user, "process_limit", "bash", code, &["--processes", "8", "--timeout", "40s"]);
    }
}

#[test]
fn threads_are_limited() {
    let code = "import threading, time\ntry:\n    for _ in range(100): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()\nfinally: time.sleep(1)";
    for user in users() {
        expect(user, "process_limit", "python", code, FEW_PROCESSES);
    }
}

#[test]
fn a_refused_process_is_a_warning_when_the_program_succeeds() {
    let code = "import os, time\ntry:\n    for _ in range(100):\n        if os.fork() == 0:\n            time.sleep(100)\n            \
                os._exit(0)\nexcept OSError as e: print(e)";
    for user in users() {
        expect_warning(user, "process", code, FEW_PROCESSES);
    }
}

#[test]
fn exactly_the_processes_asked_for_can_be_had() {
    let code = "import os, sys\nn = int(sys.argv[1]) - 1\nr, w = os.pipe()\nfor _ in range(n):\n    if os.fork() == 0:\n        \
                os.close(w)\n        os.read(r, 1)\n        os._exit(0)\nos.close(w)\nprint(n)";
    for user in users() {
        let ended = harness::Palisade::new(
            harness::Build::Real,
            user,
            &["run", "python", "--processes", "8", "-c", code, "8"],
        );
        let ended = ended.end();
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "7\n"), "{}", ended.stderr);
    }
}

#[test]
fn a_fork_bomb_ends_with_the_run() {
    for user in users() {
        let ended = run_plain(user, "bash", "f() { f | f & }; f; sleep 100", &["--timeout", "2s"]);
        assert!(matches!(ended.status.code(), Some(123 | 124)), "{:?} {}", ended.status, ended.stderr);
    }
}

#[test]
fn output_beyond_what_is_kept_ends_the_run() {
    let cases = [
        ("python", "while True: print('x' * 100)"),
        ("bash", "while :; do echo error >&2; done"),
        ("python", "import sys\nwhile True:\n    print('x' * 100)\n    print('y' * 100, file=sys.stderr)"),
        ("bash", "exec 2>/dev/stdout; yes"),
    ];
    for user in users() {
        for (language, code) in cases {
            let result = expect(user, "output_limit", language, code, &["--output-kb", "64"]);
            let kept = result["stdout"].as_str().unwrap().len() + result["stderr"].as_str().unwrap().len();
            assert_eq!(kept, 64 << 10, "{language}");
            let ended = run_plain(user, language, code, &["--output-kb", "64"]);
            assert_eq!(ended.status.code(), OUTPUT_LIMIT);
        }
    }
}

/// One byte less than the limit is not over it, and a program that ends right after the flood is still over it.
#[test]
fn the_output_limit_is_exact() {
    for user in users() {
        let exact = "import sys; sys.stdout.write('x' * 65536)";
        assert_eq!(outcome(&run_json(user, "python", exact, &["--output-kb", "64"])), "completed");
        let one_more = "import sys; sys.stdout.write('x' * 65537)";
        assert_eq!(outcome(&run_json(user, "python", one_more, &["--output-kb", "64"])), "output_limit");
    }
}

#[test]
fn open_files_are_limited_without_an_outcome_of_their_own() {
    let code = "f = []\nwhile True: f.append(open('/dev/null'))";
    for user in users() {
        let result = run_json(user, "python", code, &["--open-files", "64"]);
        assert_eq!(outcome(&result), "failed", "{result:#}");
        assert!(result["stderr"].as_str().unwrap().contains("Too many open files"));
    }
}

#[test]
fn what_is_not_given_is_told() {
    for user in users() {
        let options = ["--processes", "100000", "--timeout", "100m", "--disk-mb", "1"];
        let result = run_json(user, "bash", "echo ok", &options);
        assert_eq!(outcome(&result), "completed", "{result:#}");
        let clamped = result["clamped"].as_array().unwrap();
        let names: Vec<&str> = clamped.iter().map(|clamp| clamp["limit"].as_str().unwrap()).collect();
        assert_eq!(names, ["timeout_ms", "processes"], "{result:#}");
        assert_eq!(clamped[0]["given"].as_f64(), Some(600_000.0));
        assert_eq!(clamped[1]["asked"].as_f64(), Some(100_000.0));
        let ended = run_plain(user, "bash", "echo ok", &options);
        assert!(
            ended.stderr.contains("processes is 512 instead of the 100000 asked for"),
            "{}",
            ended.stderr
        );
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "ok\n"));
    }
}

#[test]
fn less_than_a_runtime_needs_is_raised_and_told() {
    for user in users() {
        let result = run_json(user, "bash", "echo ok", &["--memory-mb", "1", "--open-files", "1"]);
        assert_eq!(outcome(&result), "completed", "{result:#}");
        assert_eq!(result["clamped"].as_array().unwrap().len(), 2, "{result:#}");
    }
}

#[test]
fn recursion_in_c_may_use_the_stack_and_no_more() {
    let code = "#include <stdio.h>\n#include <stdlib.h>\n\
        int f(int n) { volatile char b[1024]; b[0] = 1; return n == 0 ? 0 : f(n - 1) + b[0]; }\n\
        int main(int c, char **v) { printf(\"%d\\n\", f(atoi(v[1]))); }";
    for user in users() {
        let run = |depth: &str| {
            let ended = Palisade::new(Build::Real, user, &["run", "--json", "c", "-c", code, depth]).end();
            serde_json::from_str::<Value>(&ended.stdout).unwrap()
        };
        let result = run("7000");
        assert_eq!((outcome(&result), &result["stdout"]), ("completed", &"7000\n".into()), "{result:#}");
        let result = run("1000000");
        assert_eq!((outcome(&result), &result["signal"]), ("failed", &11.into()), "{result:#}");
        // Where no control group counts memory, a short peak may be missed.
        if let Some(cause) = result["error"]["cause"].as_str() {
            assert!(cause.contains("stack overflow"), "{result:#}");
        } else {
            assert_ne!(user, User::Root, "{result:#}");
        }
    }
}
