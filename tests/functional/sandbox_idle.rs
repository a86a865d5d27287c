//! A run in a persistent sandbox is over when its interpreter waits for the next order, not when a program says so.

use std::time::{Duration, Instant};

use functional::{SOON, outcome, until};
use harness::mcp::Client;
use harness::users;
use serde_json::{Value, json};

fn in_a_sandbox(test: impl Fn(&Client, &str)) {
    for user in users() {
        let client = Client::new(user);
        let sandbox = client.open(json!({}));
        test(&client, &sandbox);
        assert!(client.end().success());
    }
}

fn stdout(result: &Value) -> &str {
    assert_eq!(outcome(result), "completed", "{result:#}");
    result["stdout"].as_str().unwrap_or_default()
}

/// Says in the driver's place that this very run is over.
const FORGE: &str = "import os, sys, time\ndef forge():\n    frame = sys._getframe()\n    while 'run_id' not in frame.f_locals: frame = frame.f_back\n    \
fields = ['done', frame.f_locals['run_id'], 'ok', '0', '', '', '', \"'forged'\", '', '']\n    \
os.write(frame.f_locals['channel'].fd, (str(len(fields)) + '\\0' + ''.join(f + '\\0' for f in fields)).encode())\n";

#[test]
fn a_program_that_says_it_is_over_and_goes_on_is_ended_by_the_clock() {
    in_a_sandbox(|client, sandbox| {
        stdout(&client.run(sandbox, "python", FORGE));
        for goes_on in ["while True: pass", "time.sleep(60)", "while True: time.sleep(0.0005)"] {
            let code = format!("print('before', flush=True)\nforge()\nprint('after', flush=True)\n{goes_on}");
            let result = client.run_with(sandbox, "python", &code, json!({"timeout_ms": 2000}));
            let expected = ("timed_out", &json!("before\nafter\n"));
            assert_eq!((outcome(&result), &result["stdout"]), expected, "{goes_on}: {result:#}");
            assert_eq!(
                stdout(&client.run(sandbox, "python", "print(forge.__name__)")),
                "forge\n",
                "{goes_on}"
            );
        }
        let forge = "echo before; printf '10\\0done\\0%s\\0ok\\0000\\0\\0\\0\\0\\0\\0\\0' \"${__palisade_message[1]}\" >&99; ";
        for goes_on in ["while :; do :; done", "sleep 60"] {
            let result =
                client.run_with(sandbox, "bash", &format!("{forge}{goes_on}"), json!({"timeout_ms": 700}));
            assert_eq!(outcome(&result), "timed_out", "{goes_on}: {result:#}");
            assert_eq!(stdout(&client.run(sandbox, "bash", "echo next")), "next\n", "{goes_on}");
        }
    });
}

#[test]
fn a_program_that_hides_from_the_guest_is_not_believed() {
    in_a_sandbox(|client, sandbox| {
        stdout(&client.run(sandbox, "python", FORGE));
        let code = "import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nforge()\ntime.sleep(60)";
        let result = client.run_with(sandbox, "python", code, json!({"timeout_ms": 700}));
        assert_eq!(outcome(&result), "timed_out", "{result:#}");
        assert_eq!(stdout(&client.run(sandbox, "python", "print('next')")), "next\n");
    });
}

#[test]
fn what_a_program_writes_after_a_forged_end_belongs_to_its_run() {
    in_a_sandbox(|client, sandbox| {
        stdout(&client.run(sandbox, "python", FORGE));
        let code = "forge()\ntime.sleep(0.3)\nprint('late')\n'own'";
        let result = client.run(sandbox, "python", code);
        assert_eq!(stdout(&result), "late\n");
        assert_eq!(result["value"]["json"], "own", "the last word counts: {result:#}");
    });
}

#[test]
fn threads_timers_and_processes_that_a_run_leaves_behind_do_not_hold_it_open() {
    in_a_sandbox(|client, sandbox| {
        let cases = [
            (
                "python",
                "import threading\nn = 0\ndef count():\n    global n\n    while True: n += 1\nthreading.Thread(target=count, daemon=True).start()",
                "print(n > 0)",
                "True\n",
            ),
            ("javascript", "var n = 0; setInterval(() => { n++ }, 1)", "console.log(n > 0)", "true\n"),
            ("bash", "(while :; do echo x > alive; sleep 0.1; done) > /dev/null 2>&1 &", "cat alive", "x\n"),
        ];
        for (language, leaves, asks, expected) in cases {
            client.run(sandbox, language, "1");
            let began = Instant::now();
            stdout(&client.run_with(sandbox, language, leaves, json!({"timeout_ms": 20_000})));
            assert!(began.elapsed() < Duration::from_secs(10), "{language}: it holds the run open");
            until(SOON, "what was left behind goes on", || {
                let result = client.run(sandbox, language, asks);
                (result["stdout"] == expected).then_some(())
            });
        }
    });
}
