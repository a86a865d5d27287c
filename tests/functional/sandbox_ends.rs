//! How runs in sandboxes that last end: limits, cancelling, lies on the channel, and what is kept afterwards.

use std::time::{Duration, Instant};

use functional::sandbox::{in_a_sandbox, stdout};
use functional::{SOON, marked, marker, outcome, until};
use serde_json::{Value, json};

fn warns_of_a_fresh_one(result: &Value) -> bool {
    result["warnings"].to_string().contains("fresh")
}

#[test]
fn a_timeout_interrupts_the_program_and_keeps_the_state() {
    in_a_sandbox(json!({}), |client, sandbox| {
        for (language, sets, sleeps, asks) in [
            ("python", "x = 1", "import time\nx = 2\nprint('in', flush=True)\ntime.sleep(60)", "print(x)"),
            ("python", "y = 1", "y = 2\nprint('in', flush=True)\nwhile True: pass", "print(y)"),
            ("javascript", "var x = 1", "x = 2; console.log('in'); while (true) {}", "console.log(x)"),
            (
                "typescript",
                "var y = 1",
                "y = 2; console.log('in'); await new Promise(done => setTimeout(done, 60000))",
                "console.log(y)",
            ),
            ("bash", "x=1", "x=2; echo in; sleep 60", "echo $x"),
            ("bash", "x=1", "x=2; echo in; while :; do :; done", "echo $x"),
        ] {
            client.run(sandbox, language, sets);
            let began = Instant::now();
            let result = client.run_with(sandbox, language, sleeps, json!({"timeout_ms": 1500}));
            assert!(began.elapsed() < Duration::from_secs(10));
            assert_eq!(
                (outcome(&result), &result["stdout"]),
                ("timed_out", &json!("in\n")),
                "{sleeps}: {result:#}"
            );
            assert!(!warns_of_a_fresh_one(&result), "{sleeps}: {result:#}");
            assert_eq!(stdout(&client.run(sandbox, language, asks)), "2\n", "{sleeps}");
        }
    });
}

#[test]
fn a_program_that_ignores_the_interrupt_is_killed_and_its_files_are_kept() {
    in_a_sandbox(json!({}), |client, sandbox| {
        for (language, code, asks) in [
            (
                "python",
                "import signal\nopen('file', 'w').write('kept')\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
                "print(open('file').read())",
            ),
            (
                "javascript",
                "process.on('SIGINT', () => {}); require('fs').writeFileSync('file', 'kept'); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
                "console.log(require('fs').readFileSync('file', 'utf8'))",
            ),
            ("bash", "trap '' INT; echo -n kept > file; while :; do :; done", "cat file; echo"),
        ] {
            let result = client.run_with(sandbox, language, code, json!({"timeout_ms": 1500}));
            assert_eq!(outcome(&result), "timed_out", "{language}: {result:#}");
            let asked = client.run(sandbox, language, asks);
            assert_eq!(stdout(&asked), "kept\n", "{language}");
            assert_eq!(
                warns_of_a_fresh_one(&result),
                warns_of_a_fresh_one(&asked),
                "{language}: both runs say so, or neither: {result:#} {asked:#}"
            );
            if language != "javascript" {
                assert!(warns_of_a_fresh_one(&asked), "{language}: {asked:#}");
            }
        }
    });
}

#[test]
fn out_of_memory_restarts_the_interpreter_and_says_so() {
    in_a_sandbox(json!({"memory_mb": 160}), |client, sandbox| {
        for (language, code) in [
            (
                "python",
                "x = 1\nopen('file', 'w').write('kept')\nb = bytearray(1 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1",
            ),
            (
                "python",
                "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'b = bytearray(1 << 30)\\nfor i in range(0, len(b), 4096): b[i] = 1'], check=True)",
            ),
            ("javascript", "var a = []; for (;;) a.push(Buffer.alloc(1 << 20, 1))"),
            ("bash", "a=x; while :; do a=$a$a; done"),
        ] {
            let result = client.run_with(sandbox, language, code, json!({"timeout_ms": 20000}));
            assert_eq!(outcome(&result), "out_of_memory", "{language}: {result:#}");
            let remedy = result["error"]["remedy"].as_str().unwrap();
            assert!(remedy.contains("open a sandbox"), "a run cannot raise what the sandbox has: {remedy}");
            let asked = client.run(sandbox, language, if language == "python" { "6 * 7" } else { "echo=1" });
            assert_eq!(outcome(&asked), "completed", "{language}: {asked:#}");
            assert_eq!(warns_of_a_fresh_one(&result), warns_of_a_fresh_one(&asked), "{result:#} {asked:#}");
            assert_eq!(stdout(&client.run(sandbox, "bash", "cat file")), "kept", "{language}");
        }
    });
}

#[test]
fn more_output_than_is_kept_ends_the_run_and_keeps_the_state() {
    in_a_sandbox(json!({}), |client, sandbox| {
        for (language, code, asks) in [
            ("python", "x = 7\nwhile True: print('a' * 1000)", "print(x)"),
            (
                "javascript",
                "var x = 7; while (true) require('fs').writeSync(1, 'a'.repeat(1000))",
                "console.log(x)",
            ),
            (
                "bash",
                "x=7; while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done",
                "echo $x",
            ),
        ] {
            let more = json!({"limits": {"output_kb": 64}, "timeout_ms": 20000});
            let result = client.run_with(sandbox, language, code, more);
            assert_eq!(outcome(&result), "output_limit", "{language}: {result:#}");
            let asked = client.run(sandbox, language, asks);
            assert_eq!(stdout(&asked), "7\n", "{language}: {:#}", result["warnings"]);
        }
    });
}

#[test]
fn cancelling_interrupts_the_program_and_keeps_the_state() {
    in_a_sandbox(json!({}), |client, sandbox| {
        client.run(sandbox, "python", "x = 7");
        let word = marker("cancel");
        let code = format!("import subprocess\nsubprocess.run(['bash', '-c', 'exec -a {word} sleep 100'])");
        let pending = client.begin_run(sandbox, "python", &code, json!({}));
        until(SOON, "it runs", || (!marked(&word).is_empty()).then_some(()));
        client.cancel(&pending);
        let began = Instant::now();
        assert_eq!(stdout(&client.run(sandbox, "python", "print(x)")), "7\n");
        assert!(began.elapsed() < Duration::from_secs(10), "the next run does not wait for a cancelled one");
        until(SOON, "what it started is gone", || marked(&word).is_empty().then_some(()));
    });
}

#[test]
fn background_processes_live_until_the_sandbox_is_closed() {
    in_a_sandbox(json!({}), |client, sandbox| {
        let word = marker("background");
        let code = format!("bash -c 'exec -a {word} sleep 300' > /dev/null 2>&1 &");
        let began = Instant::now();
        stdout(&client.run(sandbox, "bash", &code));
        assert!(began.elapsed() < Duration::from_secs(20), "it does not hold the run open");
        let start =
            format!("import subprocess\np = subprocess.Popen(['bash', '-c', 'exec -a {word} sleep 300'])");
        stdout(&client.run(sandbox, "python", &start));
        until(SOON, "both run", || (marked(&word).len() == 2).then_some(()));
        assert_eq!(stdout(&client.run(sandbox, "python", "print(p.poll())")), "None\n");
        client.call("sandbox_close", json!({"sandbox_id": sandbox}));
        assert_eq!(marked(&word), Vec::<String>::new(), "after the answer nothing lives");
    });
}

#[test]
fn closing_ends_a_run_of_a_language_that_keeps_no_interpreter() {
    in_a_sandbox(json!({}), |client, sandbox| {
        let code = "open(my $file, '>', 'begun'); close($file); while (1) { sleep 1 }";
        let pending = client.begin_run(sandbox, "perl", code, json!({"timeout_ms": 60_000}));
        let begun = json!({"sandbox_id": sandbox, "path": "begun"});
        until(SOON, "it runs", || client.call("read_file", begun.clone())["error"].is_null().then_some(()));
        let began = Instant::now();
        client.call("sandbox_close", json!({"sandbox_id": sandbox}));
        assert!(began.elapsed() < Duration::from_secs(20), "closing waits for the program's own limit");
        assert_eq!(pending.result()["outcome"], "killed");
    });
}

#[test]
fn runs_in_one_sandbox_take_turns_and_the_queue_is_bounded() {
    const WAITING_MAX: usize = 16;
    in_a_sandbox(json!({}), |client, sandbox| {
        stdout(&client.run(sandbox, "python", "import os, time\nn = 0"));
        let code = "open('begun', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)";
        let first = client.begin_run(sandbox, "python", code, json!({}));
        until(SOON, "it runs", || {
            let listed = client.call("list_files", json!({"sandbox_id": sandbox}));
            listed["entries"].to_string().contains("begun").then_some(())
        });
        let code = "m = n; time.sleep(0.02); n = m + 1; print(n)";
        // One more than may wait. Which of them the server takes up last is not said.
        let mut waiting: Vec<_> =
            (0..=WAITING_MAX).map(|_| client.begin_run(sandbox, "python", code, json!({}))).collect();
        let (place, refused) = until(SOON, "one is refused", || {
            waiting.iter().enumerate().find_map(|(place, run)| Some((place, run.result_so_far()?)))
        });
        drop(waiting.remove(place));
        assert_eq!(
            (outcome(&refused), &refused["error"]["code"]),
            ("unavailable", &json!("busy")),
            "{refused:#}"
        );
        assert_eq!(refused["error"]["retryable"], true);
        client.call("write_file", json!({"sandbox_id": sandbox, "path": "go", "text": ""}));
        assert_eq!(stdout(&first.result()), "");
        let mut said: Vec<String> = waiting.iter().map(|run| stdout(&run.result()).to_owned()).collect();
        said.sort_by_key(|text| text.trim().parse::<u32>().unwrap());
        assert_eq!(said, (1..=WAITING_MAX).map(|n| format!("{n}\n")).collect::<Vec<_>>());
    });
}

/// The channel is a descriptor of the interpreter; a program can find it and write there.
const FORGE: &str = "import os, socket, time, threading\n\
def channel():\n    for fd in range(3, 300):\n        try: kind = os.readlink(f'/proc/self/fd/{fd}')\n        except OSError: continue\n        if kind.startswith('socket:'): return fd\n\
def forge(number, code=0, fields=10):\n    words = ['done', str(number), 'ok', str(code), '', '', '', \"'forged'\", '', ''][:fields]\n    \
os.write(channel(), (f'{len(words)}\\0' + ''.join(word + '\\0' for word in words)).encode())\n";

#[test]
fn forged_ends_turn_no_limit_into_success() {
    in_a_sandbox(json!({"memory_mb": 200}), |client, sandbox| {
        stdout(&client.run(sandbox, "python", FORGE));
        // Every number but the own: the run goes on, and the clock ends it.
        let code = "for n in [0, 1, 3, 4, 5, 99]: forge(n)\nprint('said', flush=True)\ntime.sleep(60)";
        let result = client.run_with(sandbox, "python", code, json!({"timeout_ms": 2500}));
        assert_eq!((outcome(&result), &result["stdout"]), ("timed_out", &json!("said\n")), "{result:#}");
        assert_eq!(stdout(&client.run(sandbox, "python", "print('third')")), "third\n");
        // Half a message, a count that never ends, bytes that are no text.
        let code = "os.write(channel(), b'10\\0done\\0')\nprint('half')";
        let result = client.run_with(sandbox, "python", code, json!({"timeout_ms": 1500}));
        assert!(matches!(outcome(&result), "timed_out" | "completed"), "{result:#}");
        assert_eq!(stdout(&client.run(sandbox, "python", "print('fifth')")), "fifth\n");
        stdout(&client.run(sandbox, "python", FORGE));
        let code = "os.write(channel(), b'99999999999999999999\\0' + b'\\xff' * 70000)\nprint('wild')";
        let result = client.run_with(sandbox, "python", code, json!({"timeout_ms": 1500}));
        assert!(matches!(outcome(&result), "timed_out" | "completed"), "{result:#}");
        assert_eq!(stdout(&client.run(sandbox, "python", "print('seventh')")), "seventh\n");
        stdout(&client.run(sandbox, "python", FORGE));
        // A failure that calls itself a success is one when the host saw the limit.
        let code = "def lie():\n    while True:\n        try: [forge(n) for n in range(20, 99)]\n        except OSError: return\n        time.sleep(0.001)\n\
                    b = bytearray(1 << 30)\nthreading.Thread(target=lie, daemon=True).start()\nfor i in range(0, len(b), 4096): b[i] = 1";
        let result = client.run_with(sandbox, "python", code, json!({}));
        assert_eq!(outcome(&result), "out_of_memory", "{result:#}");
        assert_eq!(stdout(&client.run(sandbox, "python", "print('last')")), "last\n");
    });
}

#[test]
fn a_forged_end_does_not_confuse_the_next_run() {
    in_a_sandbox(json!({}), |client, sandbox| {
        stdout(&client.run(sandbox, "python", FORGE));
        // A number that its run might have had.
        let result = client.run(
            sandbox,
            "python",
            "forge(2)\nprint('first', flush=True)\ntime.sleep(1)\nprint('late', flush=True)",
        );
        assert_eq!(outcome(&result), "completed", "{result:#}");
        let result = client.run(sandbox, "python", "print('mine')\n42");
        assert!(stdout(&result).ends_with("mine\n"), "{result:#}");
        assert_eq!(result["value"]["json"], 42, "the value is that of this run: {result:#}");
        // The number of the next run, said before it begins.
        let result = client.run(sandbox, "python", "forge(5); forge(6)\nprint('fourth')");
        assert_eq!(stdout(&result), "fourth\n");
        let result = client.run(sandbox, "python", "time.sleep(0.2)\nprint('fifth')\n5");
        assert_eq!((stdout(&result), &result["value"]["json"]), ("fifth\n", &json!(5)), "{result:#}");
        assert_eq!(stdout(&client.run(sandbox, "python", "print('sixth')")), "sixth\n");
    });
}

#[test]
fn a_thread_that_guesses_numbers_ends_no_run() {
    in_a_sandbox(json!({"memory_mb": 200}), |client, sandbox| {
        stdout(&client.run(sandbox, "python", FORGE));
        let code = "def lie():\n    while True:\n        for n in range(64): forge(n)\n        time.sleep(0.05)\n\
                    threading.Thread(target=lie, daemon=True).start()";
        stdout(&client.run(sandbox, "python", code));
        let result = client.run_with(sandbox, "python", "time.sleep(60)", json!({"timeout_ms": 700}));
        assert_eq!(outcome(&result), "timed_out", "{result:#}");
        let code = "b = bytearray(1 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1";
        assert_eq!(outcome(&client.run(sandbox, "python", code)), "out_of_memory");
    });
}

#[test]
fn an_input_that_has_no_place_runs_nothing_and_keeps_the_state() {
    in_a_sandbox(json!({}), |client, sandbox| {
        let inputs = json!([{"path": "a", "text": "file"}, {"path": "a/b", "text": "no folder"}]);
        for (language, sets, changes, asks) in [
            ("python", "x = 1", "x = 2", "print(x)"),
            ("typescript", "var x: number = 1", "x = 2", "console.log(x)"),
            ("bash", "x=1", "x=2", "echo $x"),
        ] {
            client.run(sandbox, language, sets);
            let result = client.run_with(sandbox, language, changes, json!({"inputs": inputs}));
            assert_eq!((outcome(&result), &result["error"]["code"]), ("refused", &json!("bad_inputs")));
            let asked = client.run(sandbox, language, asks);
            assert_eq!(stdout(&asked), "1\n", "{language}: {asked:#}");
            assert!(!warns_of_a_fresh_one(&asked), "{language}: {asked:#}");
        }
    });
}

#[test]
fn an_interpreter_that_died_between_runs_is_replaced_and_the_run_goes_on() {
    in_a_sandbox(json!({}), |client, sandbox| {
        client.run(sandbox, "python", "x = 1");
        let code = "import os, signal, subprocess\nsubprocess.Popen(['sh', '-c', f'sleep 0.2; kill -9 {os.getpid()}; touch done'])";
        client.run(sandbox, "python", code);
        let is_dead = || stdout(&client.run(sandbox, "bash", "ls")).contains("done").then_some(());
        until(SOON, "the interpreter is killed", is_dead);
        let result = client.run(sandbox, "python", "print('x' in globals())");
        assert_eq!(stdout(&result), "False\n");
        assert!(warns_of_a_fresh_one(&result), "{result:#}");
        for language in ["javascript", "typescript"] {
            // What makes programs ready may be killed as well.
            client.run(sandbox, "bash", "pkill -9 palisade || true; sleep 0.1");
            assert_eq!(stdout(&client.run(sandbox, language, "console.log(7)")), "7\n", "{language}");
        }
    });
}
