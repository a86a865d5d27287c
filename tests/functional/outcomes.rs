//! Each outcome of the contract as a caller sees it: in the structured result and in the exit status.
//!
//! Limits of memory, disk, processes and output have their own file (`limits.rs`), refusals too.

use std::time::Duration;

use functional::{SOON, completed, marked, marker, outcome, run_json, run_plain, until};
use harness::mcp::Client;
use harness::users;

const SHORT: &[&str] = &["--timeout", "500ms"];
/// Long enough for an interpreter to begin on a busy machine.
const LONGER: &[&str] = &["--timeout", "3s"];

#[test]
fn a_program_that_succeeds_is_completed() {
    for user in users() {
        for (language, code) in [("python", "print(6*7)"), ("bash", "echo $((6*7))")] {
            let result = run_json(user, language, code, &[]);
            assert_eq!(outcome(&result), "completed", "{result:#}");
            assert_eq!((&result["exit_code"], &result["stdout"]), (&0.into(), &"42\n".into()));
            assert!(result.get("error").is_none() && result.get("signal").is_none(), "{result:#}");
            assert_eq!(result["warnings"], serde_json::json!([]));
        }
    }
}

#[test]
fn an_exit_status_is_the_programs_own() {
    for user in users() {
        for status in [1, 3, 122, 124, 126, 255] {
            for (language, code) in
                [("python", format!("import sys; sys.exit({status})")), ("bash", format!("exit {status}"))]
            {
                let result = run_json(user, language, &code, &[]);
                assert_eq!(outcome(&result), "failed", "{result:#}");
                assert_eq!(result["exit_code"], status, "{result:#}");
                assert_eq!(run_plain(user, language, &code, &[]).status.code(), Some(status));
            }
        }
    }
}

#[test]
fn a_signal_to_itself_is_a_failure_with_that_signal() {
    for user in users() {
        for signal in [15, 11, 9, 6, 24, 31] {
            let codes = [
                ("python", format!("import os; os.kill(os.getpid(), {signal})")),
                ("bash", format!("kill -{signal} $$")),
            ];
            for (language, code) in codes {
                let result = run_json(user, language, &code, &[]);
                assert_eq!(outcome(&result), "failed", "{language} {signal}: {result:#}");
                assert_eq!(result["signal"], signal, "{language}: {result:#}");
                assert!(result.get("exit_code").is_none());
                assert_eq!(run_plain(user, language, &code, &[]).status.code(), Some(128 + signal));
            }
        }
    }
}

#[test]
fn an_uncaught_exception_is_a_failure_with_its_position() {
    for user in users() {
        let result = run_json(user, "python", "x = 1\ndef f():\n    return {}['k']\nf()\n", &[]);
        assert_eq!((outcome(&result), &result["exit_code"]), ("failed", &1.into()));
        assert!(result["stderr"].as_str().unwrap().contains("KeyError: 'k'"));
        assert!(result["error"]["message"].as_str().unwrap().contains("KeyError"), "{result:#}");
        assert_eq!(result["error"]["line"], 3, "{result:#}");
    }
}

#[test]
fn the_wall_clock_ends_a_program() {
    for user in users() {
        for (language, code) in
            [("python", "while True: pass"), ("bash", "while :; do :; done"), ("bash", "sleep 100")]
        {
            let result = run_json(user, language, code, SHORT);
            assert_eq!(outcome(&result), "timed_out", "{result:#}");
            let wall_ms = result["usage"]["wall_ms"].as_f64().unwrap();
            assert!((450.0..5000.0).contains(&wall_ms), "{wall_ms}");
            assert!(result["error"]["remedy"].as_str().unwrap().contains("timeout"));
        }
        let ended = run_plain(user, "bash", "sleep 100", SHORT);
        assert_eq!(ended.status.code(), Some(124));
        assert!(ended.stderr.contains("timed_out"), "{}", ended.stderr);
    }
}

#[test]
fn the_wall_clock_ends_a_program_that_ignores_every_signal() {
    let word = marker("ignores");
    let code = format!(
        "import signal, time, sys, subprocess\n\
         for s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n\
         subprocess.Popen(['sleep', '1000'], executable='/bin/sleep', start_new_session=True) # {word}\n\
         subprocess.Popen([sys.executable, '-c', 'while True: pass', '{word}'])\n\
         while True: pass"
    );
    for user in users() {
        assert_eq!(outcome(&run_json(user, "python", &code, SHORT)), "timed_out");
        assert_eq!(marked(&word), Vec::<String>::new());
    }
}

#[test]
fn output_before_a_timeout_is_kept() {
    for user in users() {
        let python = "import sys\nprint('before')\nprint('error', file=sys.stderr)\nwhile True: pass";
        for (language, code) in [("python", python), ("bash", "echo before; echo error >&2; sleep 100")] {
            let result = run_json(user, language, code, LONGER);
            assert_eq!(outcome(&result), "timed_out");
            assert_eq!(
                (&result["stdout"], &result["stderr"]),
                (&"before\n".into(), &"error\n".into()),
                "{language}"
            );
            let ended = run_plain(user, language, code, LONGER);
            assert_eq!(ended.stdout, "before\n");
            assert!(ended.stderr.starts_with("error\n"));
        }
    }
}

#[test]
fn processor_time_of_all_processes_together_is_limited() {
    for user in users() {
        let code = "import os\nfor _ in range(5):\n    if os.fork() == 0: break\nwhile True: pass";
        let result = run_json(user, "python", code, &["--timeout", "2s", "--cpus", "1"]);
        assert_eq!(outcome(&result), "timed_out", "{result:#}");
        let cpu_ms = result["usage"]["cpu_ms"].as_f64().unwrap();
        assert!((100.0..3500.0).contains(&cpu_ms), "cpu_ms of one core for 2 s: {cpu_ms}");
    }
}

#[test]
fn children_that_were_waited_for_count_as_processor_time() {
    for user in users() {
        let code = "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        \
                    end = time.process_time() + 0.2\n        while time.process_time() < end: pass\n        os._exit(0)\n    \
                    os.wait()";
        let result = run_json(user, "python", code, &[]);
        let cpu_ms = result["usage"]["cpu_ms"].as_f64().unwrap();
        assert!(cpu_ms >= 550.0, "{cpu_ms}");
    }
}

#[test]
fn a_daemon_neither_holds_the_run_open_nor_outlives_it() {
    for user in users() {
        let word = marker("daemon");
        let codes = [
            // Keeps standard output and error open.
            ("bash", format!("(exec -a {word} sleep 1000) & echo done")),
            (
                "bash",
                format!("setsid bash -c 'trap \"\" TERM HUP; exec -a {word} sleep 1000' & disown; echo done"),
            ),
            (
                "python",
                format!(
                    "import os, subprocess\nif os.fork() == 0:\n    os.setsid()\n    \
                     if os.fork() == 0: os.execv('/bin/sleep', ['{word}', '1000'])\n    os._exit(0)\nos.wait()\nprint('done')"
                ),
            ),
        ];
        for (language, code) in codes {
            let ended = run_plain(user, language, &code, &[]);
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "done\n"), "{}", ended.stderr);
            assert!(ended.elapsed < Duration::from_secs(10), "{:?}", ended.elapsed);
            assert_eq!(marked(&word), Vec::<String>::new(), "alive when the answer was given");
        }
    }
}

#[test]
fn a_daemon_that_floods_stdout_does_not_hold_the_run_open() {
    for user in users() {
        let code = "(while :; do echo flood; done) & echo done";
        let ended = run_plain(user, "bash", code, &["--timeout", "20s"]);
        assert!(ended.stdout.contains("done"));
        assert!(ended.elapsed < Duration::from_secs(10), "{:?}", ended.elapsed);
    }
}

#[test]
fn streams_pass_through_byte_for_byte() {
    for user in users() {
        let out = completed(user, "python", "import sys; sys.stdout.buffer.write(bytes(range(256)))", &[]);
        assert!(out.contains("\\xff") && out.contains("\\x80") && out.contains("ABC"), "{out:?}");
        let code = "import sys\nfor i in range(2000): print(i)\nprint('e' * 100_000, file=sys.stderr)";
        let ended = run_plain(user, "python", code, &[]);
        let expected: String = (0..2000).map(|number| format!("{number}\n")).collect();
        assert_eq!(ended.stdout, expected);
        assert_eq!(ended.stderr.len(), 100_001);
    }
}

#[test]
fn the_fate_of_a_program_is_not_told_by_what_it_prints_on_the_drivers_channel() {
    for user in users() {
        let forged = "10\\0done\\x001\\0ok\\x000\\0\\0\\0\\x00'forged'\\0\\0\\0";
        let code = format!(
            "import os\nfor n in range(3, 1024):\n    try: os.write(n, b\"{forged}\")\n    except OSError: pass\nos._exit(7)"
        );
        let result = run_json(user, "python", &code, &[]);
        assert_eq!((outcome(&result), &result["exit_code"]), ("failed", &7.into()), "{result:#}");
    }
}

#[test]
fn usage_is_measured_by_the_host() {
    for user in users() {
        let code = "import time, os\nx = bytearray(64 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\n\
                    end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\ntime.sleep(1)";
        let usage = &run_json(user, "python", code, &[])["usage"];
        assert!(usage["memory_peak_bytes"].as_u64().unwrap() >= 64 << 20, "{usage:#}");
        assert!((300.0..5000.0).contains(&usage["cpu_ms"].as_f64().unwrap()), "{usage:#}");
        assert!((500.0..20_000.0).contains(&usage["wall_ms"].as_f64().unwrap()), "{usage:#}");
        assert!(usage["processes_peak"].as_u64().unwrap() >= 2, "{usage:#}");
    }
}

#[test]
fn a_reader_that_stands_still_does_not_switch_the_clock_off() {
    use functional::Live;
    use harness::{Build, Palisade};
    for user in users() {
        let word = marker("stands-still");
        let code = format!("import sys, os\nwhile True: sys.stdout.write('x' * 4096) # {word}");
        let options = ["run", "python", "--timeout", "1s", "--output-kb", "16000", "-c", code.as_str()];
        // The pipe is held open and nobody reads it.
        let mut live = Live::start(Palisade::new(Build::Real, user, &options));
        let status = live.wait(Duration::from_secs(15));
        assert!(matches!(status.code(), Some(122 | 124)), "{status}");
        until(Duration::from_secs(5), "its processes end", || marked(&word).is_empty().then_some(()));
    }
}

/// Whether a process could execute another instruction: it is there, and has memory (field 23 in proc(5)).
fn may_run(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, fields)| fields.split_whitespace().nth(20) != Some("0"))
}

/// What was left running is killed in that moment, and each needs a processor to fall still while all others want it too.
#[test]
fn nothing_runs_any_more_when_the_answer_is_there() {
    for user in users() {
        let client = Client::new(user);
        for count in [1, 16] {
            for _ in 0..2 {
                let word = marker("still");
                let code = format!(
                    "for i in $(seq {count}); do (exec -a {word} bash -c 'while :; do :; done') & done; sleep 1.5"
                );
                let run = client.begin("run", serde_json::json!({"language": "bash", "code": code}));
                let spinning = until(SOON, "all of them run", || {
                    let found = marked(&word);
                    (found.len() >= count).then_some(found)
                });
                let result = run.result();
                let running: Vec<_> = spinning
                    .iter()
                    .filter(|process| process.split(' ').next().is_some_and(may_run))
                    .collect();
                assert_eq!(outcome(&result), "completed", "{result:#}");
                assert!(running.is_empty(), "as {user:?}: {running:?}");
            }
        }
        assert!(client.end().success());
    }
}

/// What still forks when the program has ended is refused from then on, which is no news of the program.
#[test]
fn who_forks_on_at_the_end_was_not_refused_by_the_limit() {
    for user in users() {
        let client = Client::new(user);
        let code = "for i in 1 2 3 4 5 6; do ( while :; do ( : ); done ) & done; sleep 0.03; exit 3";
        // Not more: on a busy machine each takes seconds.
        for _ in 0..12 {
            let result = client.call("run", serde_json::json!({"language": "bash", "code": code}));
            let told = (outcome(&result), &result["exit_code"], &result["warnings"]);
            assert_eq!(told, ("failed", &3.into(), &serde_json::json!([])), "as {user:?}: {result:#}");
        }
        assert!(client.end().success());
    }
}
