//! Hundreds of runs of every kind in a row, four at a time: afterwards the machine is as it was.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use functional::{
    abandoned_cgroups, files_beneath, is_quick, marker, outcome, run_json, wait_for_no_new_abandoned_cgroups,
};
use harness::baseline::{look, wait_until_back};
use harness::{User, state_dir, users};

const AT_ONCE: usize = 4;

/// A program with the outcome it must have.
struct Kind {
    language: &'static str,
    code: &'static str,
    options: &'static [&'static str],
    outcome: &'static str,
}

const KINDS: [Kind; 10] = [
    Kind { language: "python", code: "print(6*7)", options: &[], outcome: "completed" },
    Kind { language: "bash", code: "echo $((6*7))", options: &[], outcome: "completed" },
    Kind { language: "bash", code: "exit 3", options: &[], outcome: "failed" },
    Kind { language: "python", code: "import os; os.kill(os.getpid(), 9)", options: &[], outcome: "failed" },
    Kind {
        language: "bash",
        code: "sleep 100 & sleep 100",
        options: &["--timeout", "100ms"],
        outcome: "timed_out",
    },
    Kind {
        language: "bash",
        code: "setsid sleep 1000 & disown; echo left a daemon",
        options: &[],
        outcome: "completed",
    },
    Kind {
        language: "python",
        code: "x = []\nwhile True: x.append(bytearray(1 << 20))",
        options: &["--memory-mb", "32", "--disk-mb", "1"],
        outcome: "out_of_memory",
    },
    Kind { language: "bash", code: "yes", options: &["--output-kb", "64"], outcome: "output_limit" },
    Kind {
        language: "bash",
        code: "head -c 9M /dev/zero > big",
        options: &["--disk-mb", "4"],
        outcome: "disk_full",
    },
    Kind { language: "nothing", code: "1", options: &[], outcome: "refused" },
];

fn run_all(count: usize, users: &[User], word: &str) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let (kind, user) =
                        (&KINDS[number % KINDS.len()], users[number / KINDS.len() % users.len()]);
                    let result =
                        run_json(user, kind.language, &format!("{}\n# {word}", kind.code), kind.options);
                    if outcome(&result) != kind.outcome {
                        wrong
                            .lock()
                            .unwrap()
                            .push(format!("run {number} as {user:?}, {}: {result:#}", kind.outcome));
                    }
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

#[test]
fn nothing_is_left_after_many_runs() {
    let users = users();
    let word = marker("leaks");
    // Made once, before many threads want it at the same time.
    for user in &users {
        state_dir(*user);
    }
    // The first run of each language and user keeps what it learned about the interpreter.
    let warm_up = run_all(KINDS.len() * users.len(), &users, &word);
    assert!(warm_up.is_empty(), "{}", warm_up.join("\n"));
    let before = look(&word);
    let abandoned = abandoned_cgroups();
    let files: Vec<_> = users.iter().map(|user| files_beneath(&state_dir(*user))).collect();

    let wrong = run_all(if is_quick() { 60 } else { 500 }, &users, &word);

    let after = look(&word);
    assert_eq!(after.processes, before.processes, "alive when the last answer was given");
    assert!(after.mounts <= before.mounts, "{} mounts, {} before", after.mounts, before.mounts);
    wait_for_no_new_abandoned_cgroups(&abandoned);
    for (user, known) in users.iter().zip(files) {
        assert_eq!(files_beneath(&state_dir(*user)), known, "as {user:?}");
    }
    assert!(wrong.is_empty(), "{} runs had another outcome:\n{}", wrong.len(), wrong.join("\n"));
    // With nobody else at work on this machine the groups are gone too, not only free.
    if wait_until_back(&before, &word, Duration::from_secs(2)).is_err() {
        eprintln!("other palisade processes have control groups now; only abandoned ones were looked for");
    }
}
